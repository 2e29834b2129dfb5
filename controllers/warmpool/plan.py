"""What a warm pool does next: an ordinary function of what was observed and of the time.

Each concern is a module with steps of one signature, `(state, now) -> actions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from controllers.warmpool import heal, readiness, rollout, scale_out
from controllers.warmpool.actions import Action, Create, Hold, Terminate
from controllers.warmpool.heal import machines_fail_their_checks, machines_never_get_ready, machines_stay_unhealthy
from controllers.warmpool.make_room import machines_are_in_the_way
from controllers.warmpool.orphaning import (
    labels_contradict,
    machines_were_disowned,
    machines_were_marked,
    pool_goes,
    pool_holds_on,
)
from controllers.warmpool.readiness import machines_are_healthy, machines_lie_down
from controllers.warmpool.rollout import machines_are_displaced, machines_are_outdated
from controllers.warmpool.scale_in import too_many_machines
from controllers.warmpool.scale_out import too_few_machines
from controllers.warmpool.snapshot import State
from controllers.warmpool.standby import machines_wait_otherwise

Step = Callable[[State, datetime], Iterator[Action]]

KEEPING: tuple[Step, ...] = (
    labels_contradict,
    machines_were_disowned,
    machines_were_marked,
    machines_fail_their_checks,
    machines_stay_unhealthy,
    machines_never_get_ready,
    machines_are_healthy,
    machines_lie_down,
)
"""Each machine by itself: its label is kept true, whatever else the pool is about. The first action of a machine is the
only one; the next look begins from its result."""
TIMERS: tuple[Callable[[State, datetime], float | None], ...] = (
    readiness.seconds_until_ripe,
    heal.seconds_until_late,
    scale_out.seconds_until_allowed,
    rollout.seconds_until_due,
)


@dataclass(frozen=True)
class Plan:
    actions: tuple[Action, ...] = ()
    again_seconds: float | None = None
    """when time alone will change the plan"""


def plan(state: State, now: datetime) -> Plan:
    """The actions in the order in which they are to be done. A pool that is paused
    makes and removes nothing; one whose store doesn't show yet what it made or removed waits with the next."""
    if state.pool.deleting:
        return Plan(tuple(pool_goes(state, now)))
    kept = _once_each(action for step in KEEPING for action in step(state, now))
    numbers = () if state.pool.spec.paused else tuple(_numbers(state, now, kept))
    # What has to go need not be kept true first.
    going = {_uid(action) for action in numbers}
    kept = tuple(action for action in kept if _uid(action) not in going)
    actions = (*pool_holds_on(state, now), *kept, *numbers)
    times = (seconds for timer in TIMERS if (seconds := timer(state, now)) is not None)
    return Plan(actions, min(times, default=None))


def _numbers(state: State, now: datetime, kept: tuple[Action, ...]) -> Iterator[Action]:
    """How many there are and what they are, in steps that don't add up: who removes two for two reasons that are one
    removes too many."""
    busy = {_uid(action) for action in kept}
    if state.settled and not any(isinstance(action, Terminate) for action in kept):
        surplus = tuple(too_many_machines(state, now))
        going = _once_each((*(surplus or machines_are_outdated(state, now)), *machines_are_displaced(state, now)))
        cleared = () if going else tuple(machines_are_in_the_way(state, now))
        busy |= {_uid(action) for action in (*going, *cleared)}
        yield from (*going, *cleared)
        if not surplus and not cleared:  # what makes room has not made it yet
            yield from too_few_machines(state, now)
    yield from (action for action in machines_wait_otherwise(state, now) if _uid(action) not in busy)


def _once_each(actions: Iterable[Action]) -> tuple[Action, ...]:
    found: dict[str, Action] = {}
    for action in actions:
        found.setdefault(_uid(action), action)
    return tuple(found.values())


def _uid(action: Action) -> str:
    return f"{action}" if isinstance(action, Create | Hold) else action.machine.uid
