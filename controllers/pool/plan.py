"""The plan of a pool: a pure function of the snapshot and of the time.

Each concern is a module with steps of one signature, `(snapshot, now) -> actions`: `scaling`, `autohealing` and
`rollout`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from controllers.pool.actions import Action, Delete, Heal
from controllers.pool.autohealing import heal, held_back, seconds_until_healing
from controllers.pool.observe import PoolSnapshot
from controllers.pool.rollout import Waiting, prune_revisions, roll_out, seconds_until_deadline, waiting
from controllers.pool.scaling import (
    blocked_reason,
    cancel_deletions,
    release_disks,
    return_disks,
    scale_in,
    scale_out,
    seconds_until_deletion_timeout,
)

Step = Callable[[PoolSnapshot, datetime], Iterator[Action]]

CLEANUP: tuple[Step, ...] = (return_disks, cancel_deletions, prune_revisions)
"""Steps that never delay other steps."""
STEPS: tuple[Step, ...] = (scale_out, scale_in, heal, roll_out)
"""The first step with actions ends the plan. The next plan starts from its result."""


@dataclass(frozen=True)
class Plan:
    actions: tuple[Action, ...] = ()
    blocked: str = ""
    """why the pool keeps too many VMs"""
    waits: tuple[Waiting, ...] = ()
    """VMs that need an action, and why the action must wait"""
    again_seconds: float | None = None
    """Seconds after which the plan can change without a change of any object. None if it cannot."""


def plan(snapshot: PoolSnapshot, now: datetime) -> Plan:
    """The actions in the order in which they are to be done.

    Disks are always released: a VM cannot go before. A pool that is paused, is being deleted, or has writes that its
    stores do not show yet does nothing else."""
    actions, left = list(release_disks(snapshot)), snapshot
    if not (snapshot.pool.deleting or snapshot.pool.spec.paused) and snapshot.synced:
        for step in CLEANUP:
            actions += step(snapshot, now)
        for step in STEPS:
            if found := tuple(step(left, now)):
                actions += found
                # An action that was refused the last time must not block the steps after it.
                if snapshot.failure is None:
                    break
                left = _without(found, left, now)
    times = (
        seconds_until_deletion_timeout(snapshot, now),
        seconds_until_deadline(snapshot, now),
        seconds_until_healing(snapshot, now),
    )
    again = min((seconds for seconds in times if seconds is not None), default=None)
    return Plan(tuple(actions), blocked_reason(snapshot), (*held_back(snapshot), *waiting(left, now)), again)


def _without(found: tuple[Action, ...], snapshot: PoolSnapshot, now: datetime) -> PoolSnapshot:
    """The snapshot with these deletions begun, so that later steps count those VMs as unavailable."""
    deleted = {each.uid for each in found if isinstance(each, Delete | Heal)}
    vms = (replace(vm, deleted_at=now.isoformat()) if vm.uid in deleted else vm for vm in snapshot.vms)
    return replace(snapshot, vms=tuple(vms))
