"""Plans the next actions of a replica set, and computes its status: pure functions of the snapshot and the time.

The plan adopts and releases VMIs first. As in the design document, VMIs that have ended or are being deleted do not
count, and are replaced at once.

Replacements of VMIs that repeatedly end early have a back-off. The first VMI that ends is replaced at once, as is a VMI
that ran longer. If the replacement ends early too, it stays for inspection, and the next replacement waits. The pauses
grow. An annotation of the VMI counts the attempts, so a restart of the controller does not reset the back-off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from controllers.replicaset.actions import Action, Adopt, Create, Delete, Release
from controllers.replicaset.observe import InvalidReplicaSet, ReplicaSetSnapshot
from controllers.replicaset.reasons import ReplicaSetReason
from controllers.shared.conditions import condition, merge, set_times
from controllers.shared.decisions import decision
from controllers.shared.names import free_names
from controllers.shared.readiness import Readiness, exceeds_quota
from controllers.shared.replica_limits import SCALING_LIMITED
from controllers.shared.vmi import VMI
from poolhouse.api.apimachinery.counting import count_noun, count_of, count_verb
from poolhouse.api.apimachinery.label_selectors import to_string
from poolhouse.api.apimachinery.timestamps import format_time, parse_time
from poolhouse.api.kinds.decisions import Decision, vm_reference
from poolhouse.api.kinds.metav1 import Condition
from poolhouse.api.kinds.replicaset import ReplicaSetStatus
from poolhouse.runtime.backoff import Backoff

MAX_CAUSES = 3
IS_PAUSED = "spec.paused is true: the controller creates and deletes nothing"


@dataclass(frozen=True)
class Plan:
    actions: tuple[Action, ...] = ()
    """the actions, which `apply.WRITES` sorts"""
    waits: tuple[BackOff, ...] = ()
    """back-offs of VMIs that have ended and are replaced later"""
    again_seconds: float | None = None
    """Seconds until the first back-off ends. None without a back-off."""


def plan(snapshot: ReplicaSetSnapshot, now: datetime) -> Plan:
    """Returns no actions if the set is being deleted, or if the stores do not show its earlier writes. A paused set
    only adopts and releases VMIs."""
    if snapshot.replica_set.deleting or not snapshot.synced:
        return Plan()
    membership = (*release(snapshot), *adopt(snapshot))
    if snapshot.replica_set.spec.paused:
        return Plan(membership)
    waits = tuple(_waits(snapshot, now))
    numbers = (*delete_ended(snapshot, waits), *scale_out(snapshot, waits, now), *scale_in(snapshot))
    again = min(((each.until - now).total_seconds() for each in waits), default=None)
    return Plan((*membership, *numbers), waits, again)


def release(snapshot: ReplicaSetSnapshot) -> Iterator[Action]:
    for vmi in snapshot.unmatched:
        if not vmi.deleting:
            yield Release(vmi.name, vmi.uid, vmi.resource_version, "its labels do not match the selector any more")


def adopt(snapshot: ReplicaSetSnapshot) -> Iterator[Action]:
    for vmi in snapshot.orphans:
        yield Adopt(vmi.name, vmi.uid, vmi.resource_version, "the selector matches it and it has no controller")


def delete_ended(snapshot: ReplicaSetSnapshot, waits: tuple[BackOff, ...]) -> Iterator[Action]:
    """Deletes ended VMIs, except VMIs whose replacement waits: users can inspect those."""
    stay = {each.vmi.uid for each in waits}
    for vmi in [vmi for vmi in _ended(snapshot) if vmi.uid not in stay][: snapshot.burst]:
        yield Delete(vmi.name, vmi.uid, vmi.resource_version, f"it has ended ({describe_end(vmi)})")


def scale_out(snapshot: ReplicaSetSnapshot, waits: tuple[BackOff, ...], now: datetime) -> Iterator[Action]:
    spec, known = snapshot.replica_set.spec, len(_known(snapshot))
    missing = spec.replicas - known - len(waits)
    if missing <= 0:
        return
    # The highest attempts come first: a VMI that replaces two VMIs continues the longer history of failures.
    attempts = sorted((next_attempt(vmi) for vmi in _ended(snapshot) if back_off(vmi, now) is None), reverse=True)
    found = snapshot.replica_set
    names = free_names(found.uid, found.base_name, snapshot.taken_names, min(missing, snapshot.burst))
    for number, name in enumerate(names):
        attempt = attempts[number] if number < len(attempts) else 0
        yield Create(name, f"{known} of {spec.replicas} exist", attempt)


def scale_in(snapshot: ReplicaSetSnapshot) -> Iterator[Action]:
    """Deletes VMIs that are not ready first, then migrating VMIs, then others. Newer VMIs come before older VMIs.

    A VMI in the phase Unknown already has a replacement. The plan deletes the VMI once enough others are ready."""
    wanted, known = snapshot.replica_set.spec.replicas, _known(snapshot)
    excess = max(0, len(known) - wanted)
    victims = [
        (vmi, f"{count_verb(len(known), 'exists', 'exist')}, {count_verb(wanted, 'is', 'are')} wanted")
        for vmi in sorted(known, key=_order)[:excess]
    ]
    if sum(vmi.ready for vmi in known) >= wanted:
        unknown = (vmi for vmi in snapshot.active if vmi.unknown)
        victims += [(vmi, "its phase is Unknown, and enough others are ready") for vmi in unknown]
    # A VMI that is being adopted is deleted by a later plan.
    for vmi, reason in [(vmi, reason) for vmi, reason in victims if vmi.owner_uid][: snapshot.burst]:
        yield Delete(vmi.name, vmi.uid, vmi.resource_version, reason)


def _order(vmi: VMI) -> tuple[int, tuple[int, ...], str]:
    rank = 0 if not vmi.ready else 1 if vmi.migrating else 2
    return rank, tuple(-ord(letter) for letter in vmi.created_at), vmi.name


def _known(snapshot: ReplicaSetSnapshot) -> list[VMI]:
    """Active VMIs whose phase is not Unknown."""
    return [vmi for vmi in snapshot.active if not vmi.unknown]


def _ended(snapshot: ReplicaSetSnapshot) -> list[VMI]:
    return [vmi for vmi in snapshot.present if vmi.final]


def _waits(snapshot: ReplicaSetSnapshot, now: datetime) -> list[BackOff]:
    """The back-offs that end first, at most as many as VMIs are missing."""
    found = [each for vmi in _ended(snapshot) if (each := back_off(vmi, now))]
    missing = max(0, snapshot.replica_set.spec.replicas - len(_known(snapshot)))
    return sorted(found, key=lambda each: (each.until, each.vmi.name))[:missing]


EARLY = timedelta(minutes=1)
"""A VMI that ran for a shorter time ended early."""
RETRIED_FOR = timedelta(minutes=10)
"""Time for which the API server may refuse a VMI until a person must help. Pools have the same default deadline."""
PAUSES = Backoff(base_seconds=10, cap_seconds=300)
"""The same pauses as KubeVirt's between starts of a crashing VM."""
LONGEST = timedelta(seconds=2 * PAUSES.cap_seconds)
"""A back-off that ends later began before the clock was set back, and is over. Clocks of nodes may differ a little."""


@dataclass(frozen=True)
class BackOff:
    """An ended VMI, and the time of its replacement."""

    vmi: VMI
    until: datetime

    @property
    def why(self) -> str:
        return (
            f"ended ({describe_end(self.vmi)}) early, and so did {self.vmi.attempt} before it: it is replaced at "
            f"{self.until.astimezone(UTC):%H:%M:%S} UTC"
        )

    def __str__(self) -> str:
        return f"{self.vmi.name} {self.why}"


def ended_early(vmi: VMI) -> bool:
    if not vmi.final or not vmi.started_at or not vmi.ended_at:
        return vmi.final
    return parse_time(vmi.ended_at) - parse_time(vmi.started_at) < EARLY


def next_attempt(vmi: VMI) -> int:
    """The attempt number of the VMI that replaces this VMI."""
    return vmi.attempt + 1 if ended_early(vmi) else 0


def back_off(vmi: VMI, now: datetime) -> BackOff | None:
    ended = vmi.ended_at or vmi.created_at
    if vmi.attempt == 0 or not ended_early(vmi) or not ended:
        return None
    until = parse_time(ended) + timedelta(seconds=PAUSES.delay(vmi.attempt, vmi.uid))
    return BackOff(vmi, until) if now < until <= now + LONGEST else None


def describe_end(vmi: VMI) -> str:
    return f"{vmi.phase}: {vmi.reason}" if vmi.reason else vmi.phase


def replica_set_status(snapshot: ReplicaSetSnapshot, plan: Plan, now: datetime) -> ReplicaSetStatus:
    found = snapshot.replica_set
    before = found.status.conditions
    conditions = (*_conditions(snapshot, plan), *readiness(snapshot, plan, now).conditions)
    return ReplicaSetStatus(
        observed_generation=found.generation,
        replicas=len(snapshot.active),
        desired_replicas=found.spec.replicas,
        ready_replicas=sum(vmi.ready for vmi in snapshot.active),
        terminating_replicas=sum(vmi.deleting for vmi in snapshot.members),
        label_selector=to_string(found.selector),
        decisions=found.status.decisions,
        conditions=set_times(conditions, before, generation=found.generation, now=now),
    )


def decisions(snapshot: ReplicaSetSnapshot, actions: Iterable[Action], now: datetime) -> Iterator[Decision]:
    """The actions for the log in the status."""
    found = snapshot.replica_set
    for each in actions:
        excess = isinstance(each, Delete) and len(_known(snapshot)) > found.spec.replicas
        vmi = vm_reference(each.name, "" if isinstance(each, Create) else each.uid)
        client = found.replicas_by if excess else ""
        yield decision(format_time(now), each.succeeded, each.reason, vmi, set_by=client)


def invalid_spec_status(found: InvalidReplicaSet, now: datetime) -> ReplicaSetStatus:
    """The last status, with a condition that reports the invalid spec."""
    fresh = condition("ReplicaFailure", True, ReplicaSetReason.INVALID_SPEC, found.problem)
    stalled = Readiness("Stalled", ReplicaSetReason.INVALID_SPEC, found.problem).conditions
    conditions = merge((fresh, *stalled), found.status.conditions, generation=found.generation, now=now)
    return found.status.model_copy(update={"observed_generation": found.generation, "conditions": conditions})


def _conditions(snapshot: ReplicaSetSnapshot, plan: Plan) -> Iterator[Condition]:
    """The conditions ReplicaFailure, ScalingLimited and ReplicaPaused, while they are True."""
    if failure := _failure(snapshot, plan):
        yield condition("ReplicaFailure", True, *failure)
    if snapshot.excess is not None:
        yield condition(SCALING_LIMITED, True, ReplicaSetReason.TOO_MANY_REPLICAS, str(snapshot.excess))
    if snapshot.replica_set.spec.paused:
        yield condition("ReplicaPaused", True, ReplicaSetReason.PAUSED, IS_PAUSED)


def _failure(snapshot: ReplicaSetSnapshot, plan: Plan) -> tuple[str, str] | None:
    if snapshot.failure is not None:
        return snapshot.failure.reason, snapshot.failure.message
    return (ReplicaSetReason.FAILURE_START, str(plan.waits[0])) if plan.waits else None


def readiness(snapshot: ReplicaSetSnapshot, plan: Plan, now: datetime) -> Readiness:
    """The set is ready if as many VMIs as desired exist, and all are ready."""
    if failure := _failure(snapshot, plan):
        waits = exceeds_quota(failure[1]) or (snapshot.failure is not None and not _is_late(snapshot, now))
        return Readiness("Reconciling" if waits else "Stalled", *failure)
    if snapshot.excess is not None:
        return Readiness("Stalled", ReplicaSetReason.TOO_MANY_REPLICAS, str(snapshot.excess))
    wanted, ready = snapshot.replica_set.spec.replicas, sum(vmi.ready for vmi in snapshot.active)
    message = f"{count_of(ready, wanted, 'VMI', 'is', 'are')} ready"
    if len(snapshot.active) == ready == wanted:
        return Readiness("Ready", ReplicaSetReason.READY, message)
    if len(snapshot.active) > wanted:
        message = (
            f"{count_noun(len(snapshot.active), 'VMI', 'exists', 'exist')}, {count_verb(wanted, 'is', 'are')} wanted"
        )
    if snapshot.replica_set.spec.paused:
        return Readiness("Waiting", ReplicaSetReason.PAUSED, f"{message}; {IS_PAUSED}")
    return Readiness("Reconciling", ReplicaSetReason.SCALING, message + _why_not_started(snapshot))


def _is_late(snapshot: ReplicaSetSnapshot, now: datetime) -> bool:
    """Whether the API server has refused VMIs for `RETRIED_FOR`. The controller goes on trying."""
    known = {each.type: each for each in snapshot.replica_set.status.conditions}
    failure = known.get("ReplicaFailure")
    if failure is None or failure.status != "True" or failure.last_transition_time is None:
        return False
    return now >= parse_time(failure.last_transition_time) + RETRIED_FOR


def _why_not_started(snapshot: ReplicaSetSnapshot) -> str:
    """The causes that VMIs name, each with the first of its VMIs."""
    first: dict[str, str] = {}
    for vmi in sorted(snapshot.active, key=lambda each: each.name):
        if vmi.start_failure and not vmi.ready:
            detail = f": {vmi.message}" if vmi.message else ""
            first.setdefault(vmi.start_failure, f"{vmi.name}: {vmi.start_failure}{detail}")
    return "".join(f"; {cause}" for cause in list(first.values())[:MAX_CAUSES])
