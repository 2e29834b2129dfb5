"""What a warm pool's status says, from the same State that its plan is made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from controllers.warmpool.heal import mass_failure
from controllers.warmpool.rate_limit import FailureBackoff
from controllers.warmpool.rollout import count_outdated, disruption_budget, why_stalled
from controllers.warmpool.scale import missing
from controllers.warmpool.snapshot import WarmPoolSnapshot
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool
from controllers.warmpool.warm_vm import why_unavailable
from kinds import meta
from kinds.metav1 import Condition, with_transition_times
from kinds.warm_states import COUNTED, WarmState
from kinds.warmpool import PlacementStatus, PoolFailures, WarmPoolStatus

NAMES_SAID = 5
ANNOUNCED = ("Degraded",)
"""Conditions that are left out while they have never been True."""


def status(state: WarmPoolSnapshot, now: datetime) -> WarmPoolStatus:
    pool = state.pool
    counts = Counter(m.state for m in state.members)
    fresh = pool.status.model_copy(
        update={
            "observed_generation": pool.generation,
            "available_replicas": len(state.available),
            "ready_replicas": counts[WarmState.READY],
            "replicas": sum(counts[each] for each in COUNTED),
            "provisioning": counts[WarmState.PROVISIONING] + counts[WarmState.STANDING_BY],
            "allocating": sum(m.state is WarmState.ALLOCATING for m in state.claimed),
            "claimed": sum(m.state is WarmState.IN_USE for m in state.claimed),
            "unhealthy": counts[WarmState.UNHEALTHY],
            "unknown": counts[WarmState.UNKNOWN],
            "terminating": len(state.leaving),
            "orphaned": len(state.orphaned),
            "queued_claims": state.demand,
            "updated_replicas": sum(not state.outdated(m) for m in state.members if m.state in COUNTED),
            "template_hash": pool.template_hash,
            "label_selector": f"{meta.WARM_POOL}={pool.name}",
            "placements": tuple(_placements(state)),
            "failures": _failures(state.failures),
            "conditions": tuple(_stamped(_conditions(state, now), pool, now)),
        }
    )
    return fresh.model_copy(update={"last_progress_time": _last_progress(state, fresh, now)})


def misfit_status(pool: InvalidWarmPool, now: datetime) -> WarmPoolStatus:
    """What was known stays; that nothing is done any more is said where people look for it."""
    said = (
        _say("Valid", False, "InvalidSpec", pool.problem),
        _say("Progressing", False, "InvalidSpec", pool.problem),
    )
    left = [c for c in pool.status.conditions if c.type not in {each.type for each in said}]
    conditions = (*_stamped(said, pool, now), *left)
    return pool.status.model_copy(update={"observed_generation": pool.generation, "conditions": conditions})


def unseen_status(pool: WarmPool, why: str, now: datetime) -> WarmPoolStatus:
    """What was seen last stays, with why nobody knows whether it is still so."""
    told = f"{why}; until its machines can be seen, none is made, counted or removed"
    said = (_say("Progressing", False, "MachinesUnseen", told), _say("Degraded", True, "MachinesUnseen", told))
    left = [c for c in pool.status.conditions if c.type not in {each.type for each in said}]
    return pool.status.model_copy(update={"conditions": (*_stamped(said, pool, now), *left)})


def _conditions(state: WarmPoolSnapshot, now: datetime) -> Iterator[Condition]:
    yield _say("Valid", True, "Valid", "the spec can be carried out")
    yield _available(state, now)
    yield _progressing(state, now)
    yield _degraded(state)
    yield _rollout(state, now)
    yield from _default(state)


def _available(state: WarmPoolSnapshot, now: datetime) -> Condition:
    pool, there = state.pool, len(state.available)
    said = f"{there} of {pool.spec.replicas} machines are ready to be claimed"
    if there >= pool.spec.replicas - disruption_budget(state).down and (there or not pool.spec.replicas):
        return _say("Available", True, "EnoughMachines", said)
    if state.held or state.failures.reason == "CapacityExhausted":
        return _say("Available", False, "InsufficientCapacity", f"{said}; {_why_held(state)}")
    if state.breaker_open:
        return _say("Available", False, "BreakerOpen", f"{said}; {_why_failing(state)}")
    if unknown := _why_unknown(state):
        return _say("Available", False, "MachinesUnknown", f"{said}; {unknown}")
    if full := _why_full(state, now):
        return _say("Available", False, "PoolFull", f"{said}; {full}")
    return _say("Available", False, "Filling", said)


def _progressing(state: WarmPoolSnapshot, now: datetime) -> Condition:
    if state.pool.spec.paused:
        return _say("Progressing", False, "Paused", "spec.paused is true: no machine is made or removed for its number")
    if reason := why_stalled(state, now):
        return _say("Progressing", False, "ProgressDeadlineExceeded", reason)
    if state.breaker_open:
        return _say("Progressing", False, "BreakerOpen", _why_failing(state))
    if state.held:
        return _say("Progressing", False, "InsufficientCapacity", _why_held(state))
    if state.failures.consecutive:
        return _say("Progressing", False, state.failures.reason, state.failures.message)
    if full := _why_full(state, now):
        return _say("Progressing", False, "PoolFull", full)
    if old := count_outdated(state):
        return _say("Progressing", True, "RollingOut", f"{_machines(old)} of an old template to replace")
    under_way = state.in_state(WarmState.PROVISIONING, WarmState.STANDING_BY)
    if under_way or missing(state, now) or len(state.depth) > state.target:
        there = f"{len(state.depth)} of {state.target} machines are there"
        return _say("Progressing", True, "Filling", f"{there}; {state.hindrance}" if state.hindrance else there)
    if state.hindrance:
        return _say("Progressing", True, "Filling", state.hindrance)
    if unknown := _why_unknown(state):
        return _say("Progressing", True, "MachinesUnknown", f"{unknown}; they are neither replaced nor deleted yet")
    return _say("Progressing", True, "Complete", "all machines are as they should be")


def _degraded(state: WarmPoolSnapshot) -> Condition:
    if mass_failure(state):
        count, there = len(state.in_state(WarmState.UNHEALTHY)), len(state.available)
        said = f"unhealthy are {_machines(count)}, available {there}: they are kept to be looked at while there is room"
        return _say("Degraded", True, "MassFailure", said)
    if state.breaker_open:
        return _say("Degraded", True, "BreakerOpen", _why_failing(state))
    if state.failures.consecutive:
        return _say("Degraded", True, state.failures.reason, state.failures.message)
    if state.failing:
        return _say("Degraded", True, "MachinesFailing", _why_failing(state))
    if state.held:
        return _say("Degraded", True, "InsufficientCapacity", _why_held(state))
    if unknown := _why_unknown(state):
        return _say("Degraded", True, "MachinesUnknown", unknown)
    if state.impossible:
        names = _names(m.name for m in state.impossible)
        return _say("Degraded", True, "LabelsContradict", f"labels that contradict each other or the owner: {names}")
    return _say("Degraded", False, "AsExpected", "")


def _rollout(state: WarmPoolSnapshot, now: datetime) -> Condition:
    if reason := why_stalled(state, now):
        return _say("RolloutComplete", False, "ProgressDeadlineExceeded", reason)
    if old := sum(state.outdated(m) for m in state.members):
        waits = state.pool.spec.update_strategy.type == "OnReplenish"
        said = "replaced when claimed" if waits else "being replaced"
        return _say("RolloutComplete", False, "RollingOut", f"{_machines(old)} of an old template: {said}")
    return _say("RolloutComplete", True, "Complete", "all machines are of today's template")


def _default(state: WarmPoolSnapshot) -> Iterator[Condition]:
    """Of those that want to be, and of all where nobody does."""
    chosen, wants = state.default, state.pool.spec.default
    if chosen is None:
        yield _say(
            "Default", False, "NoDefaultPool", "claims that name no pool get none: no pool here has default: true"
        )
    elif wants and chosen.uid == state.pool.uid:
        yield _say("Default", True, "Elected", "claims that name no pool are served from here")
    elif wants:
        yield _say("Default", False, "DefaultConflict", f"pool {chosen.name} is older and has default: true as well")


def _placements(state: WarmPoolSnapshot) -> Iterator[PlacementStatus]:
    depth = [m for m in state.members if m.state in COUNTED]
    for name in dict.fromkeys([*state.pool.placements, *sorted(m.placement for m in depth if m.placement)]):
        here = [m for m in depth if m.placement == name]
        yield PlacementStatus(name=name, replicas=len(here), ready=sum(not why_unavailable(m) for m in here))


def _failures(failures: FailureBackoff) -> PoolFailures | None:
    if not failures.consecutive and not failures.retry_at:
        return None
    return PoolFailures(
        consecutive=failures.consecutive,
        last_reason=failures.reason,
        last_message=failures.message,
        next_retry_at=failures.retry_at or None,
    )


def _last_progress(state: WarmPoolSnapshot, fresh: WarmPoolStatus, now: datetime) -> str | None:
    """When a rollout last came nearer: another template, more machines of it that are there, fewer of the old."""
    before = state.pool.status
    old, old_before = fresh.replicas - fresh.updated_replicas, before.replicas - before.updated_replicas
    nearer = (
        before.last_progress_time is None
        or fresh.template_hash != before.template_hash
        or old < old_before
        or (old and fresh.available_replicas > before.available_replicas)
    )
    return _text(now) if nearer else before.last_progress_time


def _why_failing(state: WarmPoolSnapshot) -> str:
    if not state.failing:
        return f"{state.failures.consecutive} failures in a row: {state.failures.message}"
    if len(state.failing) == 1:
        (m,) = state.failing
        said = f"{m.name} fails to start: {(m.vmi.trouble if m.vmi else '') or m.printable_status or 'Failing'}"
        return f"{said}: {m.vmi.message}" if m.vmi and m.vmi.message else said
    words = Counter((m.vmi.trouble if m.vmi else "") or m.printable_status or "Failing" for m in state.failing)
    common, count = words.most_common(1)[0]
    message = next((m.vmi.message for m in state.failing if m.vmi and m.vmi.message), "")
    said = f"{len(state.failing)} machines fail to start, {count} of them with {common}"
    return f"{said}: {message}" if message else said


def _why_full(state: WarmPoolSnapshot, now: datetime) -> str:
    most = state.pool.spec.max_total
    if (
        most is None
        or state.room
        or not missing(state, now)
        or state.in_state(WarmState.PROVISIONING, WarmState.STANDING_BY)
    ):
        return ""
    counts = {"claimed": state.claimed, "unhealthy": state.in_state(WarmState.UNHEALTHY), "going": state.leaving}
    there = [f"{len(found)} of them {word}" for word, found in counts.items() if found]
    return f"maxTotal is {', '.join([str(most), *there])}: no more is made until one goes"


def _why_unknown(state: WarmPoolSnapshot) -> str:
    unknown = state.in_state(WarmState.UNKNOWN)
    if not unknown:
        return ""
    messages = (state.vital(m).waiting for m in unknown)
    why = next((each.message for each in messages if each.verdict == "Unable"), "they answer again, and are looked at")
    return f"{_machines(len(unknown))} can't be checked: {why}"


def _why_held(state: WarmPoolSnapshot) -> str:
    if not state.held:
        return state.failures.message
    message = next((m.vmi.message for m in state.held if m.vmi and m.vmi.message), "the cluster has no room")
    return f"{_machines(len(state.held))} can't be scheduled: {message}"


def _machines(count: int) -> str:
    return "1 machine" if count == 1 else f"{count} machines"


def _names(names: Iterable[str]) -> str:
    found = sorted(names)
    more = f" and {len(found) - NAMES_SAID} more" if len(found) > NAMES_SAID else ""
    return ", ".join(found[:NAMES_SAID]) + more


def _say(kind: str, holds: bool, reason: str, message: str) -> Condition:
    return Condition(type=kind, status="True" if holds else "False", reason=reason, message=message)


def _stamped(conditions: Iterable[Condition], pool: WarmPool | InvalidWarmPool, now: datetime) -> Iterator[Condition]:
    before, time = pool.status.conditions, _text(now)
    return with_transition_times(conditions, before, generation=pool.generation, now=time, announced=ANNOUNCED)


def _text(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
