"""Machines that nobody can have, in the place of those that are wanted: one at a time makes room.

What is unhealthy in mass is kept to be looked at, and what is on a node that is being emptied until others are there.
Where `maxTotal`, a quota or the cluster lets no others come, that would be for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from controllers.warmpool.actions import Action, Terminate
from controllers.warmpool.heal import mass_failure, tired
from controllers.warmpool.scale_out import missing
from controllers.warmpool.snapshot import State, displaced, held
from controllers.warmpool.warm_vm import Machine
from kinds.warm import Warm


def machines_are_in_the_way(state: State, now: datetime) -> Iterator[Action]:
    """The next one only when the place of the last was taken and has shown what that is worth, and each after a longer
    pause. In an outage of all that is checked the pool loses one of them by this, and not one after the other. What
    can't be checked says that there may be such an outage: then all stay."""
    if not state.failures.due(now) or state.in_state(Warm.UNKNOWN) or state.leaving or _coming(state):
        return
    # Refused once, it is tried once more first: in another subnet there may be room.
    refused = state.failures.reason == "CapacityExhausted" and state.failures.consecutive > 1
    capped = missing(state, now) > 0 and (not state.room or refused)
    if capped and (left := [m for m in state.in_state(Warm.READY) if displaced(m)]):
        yield _clear(_longest(left), "it is on a node that is being emptied")
    elif (capped or _crowded(state)) and mass_failure(state):
        failing = [m for m in tired(state) if state.vital(m).waiting.verdict == "Failed"]
        if failing:
            m = _longest(failing)
            yield _clear(m, f"it has been unhealthy for long ({state.vital(m).waiting.message})")


def _crowded(state: State) -> bool:
    """The cluster has no room for what was made. What somebody gates would not be let in by more room."""
    return any(m.guest is None or m.guest.trouble != "SchedulingGated" for m in state.held)


def _coming(state: State) -> bool:
    return any(not held(m) for m in state.in_state(Warm.PROVISIONING, Warm.STANDING_BY))


def _longest(useless: list[Machine]) -> Machine:
    return min(useless, key=lambda m: (m.since, m.uid))


def _clear(m: Machine, why: str) -> Terminate:
    return Terminate(m, "NoRoom", f"{why}, and nothing else makes room for another")
