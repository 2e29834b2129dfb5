"""How many VMs a warm pool has: scale-out, scale-in, and deletions that make room for others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256

from controllers.warmpool.actions import Action, CreateVM, DeleteVM
from controllers.warmpool.heal import failed_for_long, mass_failure
from controllers.warmpool.naming import draw_placement, unused_names
from controllers.warmpool.rollout import disruption_budget, why_replaced
from controllers.warmpool.snapshot import WarmPoolSnapshot, on_leaving_node, waits_for_scheduling
from controllers.warmpool.standby import standby_of_new_vm
from controllers.warmpool.warm_vm import WarmVM, why_unavailable
from kinds.warm_states import WarmState


def scale_out(state: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    pool = state.pool
    count = min(missing(state, now), allowed(state, now))
    depth = len(state.depth)
    taken = {m.name for m in state.machines}
    for made, name in enumerate(unused_names(pool.name, state.seed, count, taken)):
        placement = draw_placement(pool.uid, name, pool.spec.places) or next(iter(pool.placements))
        reason = f"{depth} of {state.target} were there or on their way"
        yield CreateVM(name, placement, standby_of_new_vm(state, made), reason)


def missing(state: WarmPoolSnapshot, now: datetime) -> int:
    """How many more the target and the strategy want."""
    old = [m for m in state.depth if why_replaced(state, m, now)]
    keepers = len(state.depth) - len(old)
    above = disruption_budget(state).surge if old else 0
    return max(0, min(state.target - keepers, state.target + above - len(state.depth)))


def allowed(state: WarmPoolSnapshot, now: datetime) -> int:
    """How many may be made now, whatever is missing."""
    refill = state.pool.spec.refill
    if not state.failures.due(now):
        return 0
    under_way = len(state.in_state(WarmState.PROVISIONING))
    most = min(refill.max_concurrent - under_way, state.room)
    if not math.isinf(state.tokens):
        most = min(most, int(state.tokens))
    # After many failures one is made to see whether it goes again.
    return max(0, min(most, 1) if state.breaker_open else most)


def seconds_until_allowed(state: WarmPoolSnapshot, now: datetime) -> float | None:
    if not missing(state, now):
        return None
    if (wait := state.failures.seconds_until_due(now)) is not None:
        return wait
    rate = state.pool.spec.refill.rate_per_second
    return max(0.02, (1 - state.tokens) / rate) if rate and state.tokens < 1 else None


def scale_in(state: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """Who can't be given away goes first, then who would have to go anyway, then the youngest."""
    old = {m.uid for m in state.depth if why_replaced(state, m, now)}
    excess = len(state.depth) - state.target - (disruption_budget(state).surge if old else 0)
    if excess <= 0:
        return

    def rank(m: WarmVM) -> tuple[bool, bool, bool, tuple[int, ...], str]:
        age = tuple(-ord(letter) for letter in m.created_at)
        return (
            m.state is WarmState.READY,
            not why_unavailable(m),
            m.uid not in old,
            age,
            sha256(m.uid.encode()).hexdigest(),
        )

    candidates = [m for m in state.depth if m.state is not WarmState.UNKNOWN]
    for m in sorted(candidates, key=rank)[:excess]:
        yield DeleteVM(m, "Excess", f"{len(state.depth)} machines are there, {state.target} are wanted")


def make_room(state: WarmPoolSnapshot, now: datetime) -> Iterator[Action]:
    """The next one only when the place of the last was taken and has shown what that is worth, and each after a longer
    pause. In an outage of all that is checked the pool loses one of them by this, and not one after the other. What
    can't be checked says that there may be such an outage: then all stay."""
    if not state.failures.due(now) or state.in_state(WarmState.UNKNOWN) or state.leaving or _coming(state):
        return
    # Refused once, it is tried once more first: in another subnet there may be room.
    refused = state.failures.reason == "CapacityExhausted" and state.failures.consecutive > 1
    capped = missing(state, now) > 0 and (not state.room or refused)
    if capped and (left := [m for m in state.in_state(WarmState.READY) if on_leaving_node(m)]):
        yield _clear(_longest(left), "it is on a node that is being emptied")
    elif (capped or _crowded(state)) and mass_failure(state):
        failing = [m for m in failed_for_long(state) if state.vital(m).waiting.verdict == "Failed"]
        if failing:
            m = _longest(failing)
            yield _clear(m, f"it has been unhealthy for long ({state.vital(m).waiting.message})")


def _crowded(state: WarmPoolSnapshot) -> bool:
    """The cluster has no room for what was made. What somebody gates would not be let in by more room."""
    return any(m.vmi is None or m.vmi.trouble != "SchedulingGated" for m in state.held)


def _coming(state: WarmPoolSnapshot) -> bool:
    return any(not waits_for_scheduling(m) for m in state.in_state(WarmState.PROVISIONING, WarmState.STANDING_BY))


def _longest(useless: list[WarmVM]) -> WarmVM:
    return min(useless, key=lambda m: (m.state_since, m.uid))


def _clear(m: WarmVM, why: str) -> DeleteVM:
    return DeleteVM(m, "NoRoom", f"{why}, and nothing else makes room for another")
