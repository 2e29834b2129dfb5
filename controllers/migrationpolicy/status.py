"""Computes the status of a policy: its counts, and the conditions Active and Enforced."""

from dataclasses import dataclass
from datetime import datetime

from controllers.migrationpolicy.observe import PolicySnapshot
from controllers.migrationpolicy.plan import is_orphaned, is_ours
from controllers.migrationpolicy.reasons import ActiveReason, EnforcedReason
from controllers.shared.conditions import condition, join_names, set_times
from controllers.shared.readiness import Readiness
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.reasons import Reason
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.kinds.metav1 import Condition
from poolhouse.api.kinds.migrationpolicy import MigrationPolicyStatus
from poolhouse.api.migrationpolicies.effective_settings import ignored_settings


@dataclass(frozen=True)
class Finding:
    reason: Reason
    message: str


def active(snapshot: PolicySnapshot) -> Finding:
    policy = snapshot.policy
    if policy.problem:
        return Finding(ActiveReason.INVALID_SPEC, f"The policy is invalid and never applies: {policy.problem}.")
    if snapshot.expired:
        return Finding(
            ActiveReason.EXPIRED,
            f"The policy expired at {_end(snapshot)} and matches no VMI. Delete it, or set another expiresAt.",
        )
    if snapshot.older is not None:
        return Finding(
            ActiveReason.SAME_SELECTORS,
            f"Policy {snapshot.older} is older and has the same selectors; this policy never applies. Delete one.",
        )
    if not policy.ranked.selectors:
        return Finding(ActiveReason.NO_SELECTORS, "The policy has no label in either selector and matches no VMI.")
    until = f" until {_end(snapshot)}" if policy.expires_at is not None else ""
    return Finding(ActiveReason.ACCEPTED, f"The policy can win VMIs{until}.")


def _end(snapshot: PolicySnapshot) -> str:
    return format_time(snapshot.policy.expires_at) if snapshot.policy.expires_at is not None else ""


def enforced(snapshot: PolicySnapshot) -> Finding:
    for check in CHECKS:
        if finding := check(snapshot):
            return finding
    name = snapshot.policy.name
    return Finding(EnforcedReason.IN_SYNC, f"KubeVirt's migration policy {name} has the same settings.")


def _not_active(snapshot: PolicySnapshot) -> Finding | None:
    return None if snapshot.active else Finding(EnforcedReason.NOT_ACTIVE, "The condition Active is False.")


def _crd_not_installed(snapshot: PolicySnapshot) -> Finding | None:
    if snapshot.served:
        return None
    return Finding(EnforcedReason.CRD_NOT_INSTALLED, "This cluster does not serve migrations.kubevirt.io.")


def _name_conflict(snapshot: PolicySnapshot) -> Finding | None:
    found = snapshot.enforcing
    if found is None or is_ours(snapshot, found) or is_orphaned(found):
        return None
    message = f"KubeVirt has a migration policy {found.name} that Poolhouse does not own, so none enforces this policy."
    return Finding(EnforcedReason.NAME_CONFLICT, message)


def _failed_update(snapshot: PolicySnapshot) -> Finding | None:
    if not snapshot.refusal:
        return None
    message = f"KubeVirt's migration policy could not be written: {snapshot.refusal}."
    return Finding(EnforcedReason.FAILED_UPDATE, message)


def _update_conflict(snapshot: PolicySnapshot) -> Finding | None:
    if not snapshot.repair_postponed:
        return None
    return Finding(
        EnforcedReason.UPDATE_CONFLICT,
        f"Another client changes KubeVirt's migration policy {snapshot.policy.name} after each repair. The controller "
        "repairs it less and less often.",
    )


def _failed_label(snapshot: PolicySnapshot) -> Finding | None:
    number, message = snapshot.unlabelled
    if not number:
        return None
    return Finding(
        EnforcedReason.FAILED_LABEL,
        f"{count_noun(number, 'VMI')} could not be labelled, so KubeVirt does not apply the policy to them: {message}.",
    )


def _overridden(snapshot: PolicySnapshot) -> Finding | None:
    if not snapshot.overriding:
        return None
    return Finding(
        EnforcedReason.OVERRIDDEN,
        f"KubeVirt may prefer {join_names(sorted(snapshot.overriding))} (migrations.kubevirt.io) for VMIs that match "
        "both, because KubeVirt counts labels and the enforcing policy has one.",
    )


def _unsupported(snapshot: PolicySnapshot) -> Finding | None:
    settings = ignored_settings(snapshot.policy.spec, snapshot.cluster)
    if not settings:
        return None
    reasons = "; ".join(f"{name}: {why}" for name, why in settings.items())
    return Finding(
        EnforcedReason.UNSUPPORTED,
        f"This cluster ignores {count_noun(len(settings), 'setting')}, and applies the others. {reasons}.",
    )


CHECKS = (
    _not_active,
    _crd_not_installed,
    _name_conflict,
    _failed_update,
    _update_conflict,
    _failed_label,
    _overridden,
    _unsupported,
)
"""The checks in order of precedence. Checks of the whole policy come before checks of a part."""


def status(snapshot: PolicySnapshot, now: datetime) -> MigrationPolicyStatus:
    policy = snapshot.policy
    findings = {"Active": active(snapshot), "Enforced": enforced(snapshot)}
    good = (ActiveReason.ACCEPTED, EnforcedReason.IN_SYNC)
    conditions = (
        *(condition(kind, each.reason in good, each.reason, each.message) for kind, each in findings.items()),
        *readiness(findings["Active"], findings["Enforced"]).conditions,
    )
    return MigrationPolicyStatus(
        observed_generation=policy.generation,
        wins=snapshot.wins,
        losses=snapshot.losses,
        conditions=set_times(conditions, policy.status.conditions, generation=policy.generation, now=now),
    )


RETRIED = (EnforcedReason.FAILED_UPDATE, EnforcedReason.FAILED_LABEL)
"""Reasons for which the controller tries again. Other reasons need a change by a user."""


def readiness(active: Finding, enforced: Finding) -> Readiness:
    """The policy is ready if it can win VMIs and KubeVirt applies it. An expired policy is as its author wants it."""
    if active.reason == ActiveReason.EXPIRED:
        return Readiness("Ready", active.reason, active.message)
    if active.reason != ActiveReason.ACCEPTED:
        return Readiness("Stalled", active.reason, active.message)
    if enforced.reason == EnforcedReason.IN_SYNC:
        return Readiness("Ready", enforced.reason, enforced.message)
    return Readiness("Reconciling" if enforced.reason in RETRIED else "Stalled", enforced.reason, enforced.message)


def changed(before: MigrationPolicyStatus, after: MigrationPolicyStatus) -> tuple[Condition, ...]:
    """The conditions Active and Enforced that have changed. The others follow from these."""
    known = {each.type: (each.status, each.reason) for each in before.conditions}
    own = (each for each in after.conditions if each.type in ("Active", "Enforced"))
    return tuple(each for each in own if known.get(each.type) != (each.status, each.reason))
