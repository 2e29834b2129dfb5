"""What to say of a policy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apimachinery.unstructured import Json
from controllers.migrationpolicy.plan import orphaned, ours
from controllers.migrationpolicy.state import State
from migrationpolicies.effective_settings import unsupported_settings

SHOWN = 5


@dataclass(frozen=True)
class News:
    """A condition's answer. The reason is the news that it brings."""

    holds: bool
    reason: str
    message: str


def active(state: State) -> News:
    policy = state.policy
    if policy.problem:
        return News(False, "Invalid", f"It is not valid, and so never applied: {policy.problem}.")
    if state.elder is not None:
        return News(
            False,
            "SameSelectors",
            f"Policy {state.elder} has the same selectors and is older; this one is never applied. Delete one of them.",
        )
    if not policy.ranked.selectors:
        return News(False, "NoSelectors", "It has no label in either selector, and so matches no VM.")
    return News(True, "TakesPart", "It takes part in deciding.")


def enforced(state: State) -> News:
    """Whether KubeVirt obeys."""
    for check in CHECKS:
        if news := check(state):
            return news
    return News(True, "InStep", f"KubeVirt's migration policy {state.policy.name} says the same.")


def _not_active(state: State) -> News | None:
    return None if state.active else News(False, "NotActive", "It takes no part in deciding.")


def _kind_missing(state: State) -> News | None:
    if state.served:
        return None
    return News(False, "KindMissing", "This cluster does not serve migrations.kubevirt.io, by which KubeVirt is told.")


def _name_taken(state: State) -> News | None:
    found = state.enforcer
    if found is None or ours(state, found) or orphaned(found):
        return None
    return News(
        False,
        "NameTaken",
        f"KubeVirt has a migration policy {found.name} that is not ours, and so none that enforces this one.",
    )


def _refused(state: State) -> News | None:
    if not state.refusal:
        return None
    return News(False, "Refused", f"KubeVirt's migration policy could not be written: {state.refusal}.")


def _contested(state: State) -> News | None:
    if not state.contested:
        return None
    return News(
        False,
        "Contested",
        f"Somebody changes KubeVirt's migration policy {state.policy.name} whenever it is repaired, which is therefore "
        "done ever more rarely.",
    )


def _stamp_refused(state: State) -> News | None:
    number, why = state.unstamped
    if not number:
        return None
    return News(
        False,
        "StampRefused",
        f"{number} of its VMs could not be labelled, so KubeVirt does not obey it for them: {why}.",
    )


def _outranked(state: State) -> News | None:
    if not state.threats:
        return None
    return News(
        False,
        "Outranked",
        f"KubeVirt may prefer {_listed(state.threats)} of its own migration policies (migrations.kubevirt.io), for VMs "
        "that match both: it counts labels, and ours has the one of the stamp.",
    )


def _unheeded(state: State) -> News | None:
    left = unsupported_settings(state.policy.spec, state.configuration)
    if not left:
        return None
    return News(
        False,
        "Unsupported",
        f"{_listed(left)} cannot be set for some VMs: KubeVirt has it for the whole cluster, and differs there. "
        "Everything else in the policy is enforced.",
    )


CHECKS = (_not_active, _kind_missing, _name_taken, _refused, _contested, _stamp_refused, _outranked, _unheeded)
"""The first that has news decides: from what keeps all of a policy from being obeyed to what concerns a part."""


def status(state: State, now: datetime) -> Json:
    policy = state.policy
    before = {each["type"]: each for each in policy.status.get("conditions") or () if isinstance(each, dict)}
    return {
        "observedGeneration": policy.generation,
        "wins": state.wins,
        "losses": state.losses,
        "conditions": [
            _condition("Active", active(state), before, policy.generation, now),
            _condition("Enforced", enforced(state), before, policy.generation, now),
        ],
    }


def turned(before: Json, after: Json) -> tuple[Json, ...]:
    """Conditions that hold now and did not, or the other way round, or for another reason."""
    known = {each["type"]: (each["status"], each.get("reason")) for each in before.get("conditions") or ()}
    return tuple(c for c in after["conditions"] if known.get(c["type"]) != (c["status"], c["reason"]))


def _condition(name: str, news: News, before: dict[str, Any], generation: int, now: datetime) -> Json:
    holds = "True" if news.holds else "False"
    known = before.get(name, {})
    since = known.get("lastTransitionTime") if known.get("status") == holds else None
    return {
        "type": name,
        "status": holds,
        "reason": news.reason,
        "message": news.message,
        "observedGeneration": generation,
        "lastTransitionTime": since or now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _listed(names: Iterable[str]) -> str:
    found = sorted(names)
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more
