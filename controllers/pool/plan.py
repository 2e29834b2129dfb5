"""What a pool does next: an ordinary function of what was observed and of the time.

Each concern is a module with steps of one signature, `(state, now) -> actions`: `keep`, `grow`, `shrink`,
`heal`, `rollout`, `history`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from controllers.pool.actions import Action, Delete, Heal
from controllers.pool.autohealing import heal, held_back, seconds_until_healing
from controllers.pool.history import prune_revisions
from controllers.pool.keep import (
    cancel_deletions,
    release_disks,
    return_disks,
)
from controllers.pool.progress import seconds_until_deadline
from controllers.pool.rollout import Waiting, roll_out, waiting
from controllers.pool.scale_in import blocked_reason, scale_in
from controllers.pool.scale_out import scale_out, seconds_until_a_name_is_given_up
from controllers.pool.snapshot import PoolSnapshot

Step = Callable[[PoolSnapshot, datetime], Iterator[Action]]

TIDYING: tuple[Step, ...] = (return_disks, cancel_deletions, prune_revisions)
"""What is done beside anything else."""
STEPS: tuple[Step, ...] = (scale_out, scale_in, heal, roll_out)
"""The first that finds something to do is all that is done; the next look begins from its result."""


@dataclass(frozen=True)
class Plan:
    actions: tuple[Action, ...] = ()
    blocked: str = ""
    """why the pool keeps more VMs than it should have"""
    waits: tuple[Waiting, ...] = ()
    """VMs that would be acted on, and why they are not yet"""
    again_seconds: float | None = None
    """when time alone will change the plan"""


def plan(state: PoolSnapshot, now: datetime) -> Plan:
    """The actions in the order in which they are to be done.

    Disks are released whatever else holds: a VM that waits for it can't go. For the rest, a pool that is paused or
    being deleted does nothing, and neither does one whose store doesn't show yet what it wrote last.
    """
    actions, left = list(release_disks(state)), state
    if not (state.pool.deleting or state.pool.spec.paused) and state.settled:
        for step in TIDYING:
            actions += step(state, now)
        for step in STEPS:
            if found := tuple(step(left, now)):
                actions += found
                # What was refused the last time must not hold up all that comes after it.
                if state.failure is None:
                    break
                left = _without(found, left, now)
    times = (
        seconds_until_a_name_is_given_up(state, now),
        seconds_until_deadline(state, now),
        seconds_until_healing(state, now),
    )
    again = min((seconds for seconds in times if seconds is not None), default=None)
    return Plan(tuple(actions), blocked_reason(state), (*held_back(state), *waiting(left, now)), again)


def _without(found: tuple[Action, ...], state: PoolSnapshot, now: datetime) -> PoolSnapshot:
    """As if those that are to be deleted were on their way out: nobody else has the room that they take."""
    going = {each.uid for each in found if isinstance(each, Delete | Heal)}
    machines = (replace(m, deleted_at=now.isoformat()) if m.uid in going else m for m in state.machines)
    return replace(state, machines=tuple(machines))
