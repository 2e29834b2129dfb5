"""What a warm pool does next: an ordinary function of what was observed and of the time.

Each concern is a module with steps of one signature, `(state, now) -> actions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from controllers.warmpool import heal, rollout, scale, standby
from controllers.warmpool.actions import Action, CreateVM, DeleteVM, SetFinalizer
from controllers.warmpool.heal import delete_not_ready, delete_unhealthy, update_health_states
from controllers.warmpool.orphaning import (
    delete_contradictory,
    delete_terminating,
    orphan_disowned,
    orphan_members,
    update_finalizer,
)
from controllers.warmpool.rollout import replace_on_leaving_nodes, replace_outdated
from controllers.warmpool.scale import make_room, scale_in, scale_out
from controllers.warmpool.snapshot import WarmPoolSnapshot
from controllers.warmpool.standby import change_standby, enter_standby, finish_provisioning

Step = Callable[[WarmPoolSnapshot, datetime], Iterator[Action]]

KEEPING: tuple[Step, ...] = (
    delete_contradictory,
    orphan_disowned,
    delete_terminating,
    update_health_states,
    delete_unhealthy,
    delete_not_ready,
    finish_provisioning,
    enter_standby,
)
"""Each machine by itself: its label is kept true, whatever else the pool is about. The first action of a machine is the
only one; the next look begins from its result."""
TIMERS: tuple[Callable[[WarmPoolSnapshot, datetime], float | None], ...] = (
    standby.seconds_until_ready,
    heal.seconds_until_timeout,
    scale.seconds_until_allowed,
    rollout.seconds_until_due,
)


@dataclass(frozen=True)
class Plan:
    actions: tuple[Action, ...] = ()
    again_seconds: float | None = None
    """when time alone will change the plan"""


def plan(state: WarmPoolSnapshot, now: datetime) -> Plan:
    """The actions in the order in which they are to be done. A pool that is paused
    makes and removes nothing; one whose store doesn't show yet what it made or removed waits with the next."""
    if state.pool.deleting:
        return Plan(tuple(orphan_members(state, now)))
    kept = _once_each(action for step in KEEPING for action in step(state, now))
    numbers = () if state.pool.spec.paused else tuple(_numbers(state, now, kept))
    # What has to go need not be kept true first.
    going = {_uid(action) for action in numbers}
    kept = tuple(action for action in kept if _uid(action) not in going)
    actions = (*update_finalizer(state, now), *kept, *numbers)
    times = (seconds for timer in TIMERS if (seconds := timer(state, now)) is not None)
    return Plan(actions, min(times, default=None))


def _numbers(state: WarmPoolSnapshot, now: datetime, kept: tuple[Action, ...]) -> Iterator[Action]:
    """How many there are and what they are, in steps that don't add up: who removes two for two reasons that are one
    removes too many."""
    busy = {_uid(action) for action in kept}
    if state.settled and not any(isinstance(action, DeleteVM) for action in kept):
        surplus = tuple(scale_in(state, now))
        going = _once_each((*(surplus or replace_outdated(state, now)), *replace_on_leaving_nodes(state, now)))
        cleared = () if going else tuple(make_room(state, now))
        busy |= {_uid(action) for action in (*going, *cleared)}
        yield from (*going, *cleared)
        if not surplus and not cleared:  # what makes room has not made it yet
            yield from scale_out(state, now)
    yield from (action for action in change_standby(state, now) if _uid(action) not in busy)


def _once_each(actions: Iterable[Action]) -> tuple[Action, ...]:
    found: dict[str, Action] = {}
    for action in actions:
        found.setdefault(_uid(action), action)
    return tuple(found.values())


def _uid(action: Action) -> str:
    return f"{action}" if isinstance(action, CreateVM | SetFinalizer) else action.machine.uid
