"""Plans the next actions of a pool: a pure function of the snapshot and the time.

The steps in `scaling`, `autohealing` and `rollout` are functions `(snapshot, now) -> actions`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from controllers.pool import lifetime, windows
from controllers.pool.actions import Action
from controllers.pool.analysis import jobs_to_run, seconds_until_overdue
from controllers.pool.autohealing import failing, heal, held_back, seconds_until_healing
from controllers.pool.before_update import prune_snapshots, seconds_until_retry
from controllers.pool.hooks import end_holds, gate, seconds_until_timeout, set_in_service
from controllers.pool.lifetime import end_lifetimes
from controllers.pool.progress import count_outdated, seconds_until_deadline
from controllers.pool.replacement import retain_replaced
from controllers.pool.restores import label_states, prune_restores
from controllers.pool.retention import delete_disks, seconds_until_expiry
from controllers.pool.rollout import (
    adopt_revisions,
    keep_disks,
    label_vmis,
    prune_revisions,
    rewrite_revisions,
    roll_out,
    waiting,
)
from controllers.pool.scaling import (
    adopt,
    blocked_reason,
    cancel_deletions,
    release_disks,
    return_disks,
    scale_in,
    scale_out,
    seconds_until_deletion_timeout,
)
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.steps import update_limit
from controllers.pool.waiting import Waiting

Step = Callable[[PoolSnapshot, datetime], Iterator[Action]]


def run_jobs(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    yield from jobs_to_run(snapshot, update_limit(snapshot, now).progress)


CLEANUP: tuple[Step, ...] = (
    adopt,
    return_disks,
    retain_replaced,
    cancel_deletions,
    adopt_revisions,
    prune_revisions,
    label_vmis,
    prune_snapshots,
    label_states,
    prune_restores,
    end_holds,
    set_in_service,
    delete_disks,
    run_jobs,
)
"""Steps that never prevent other steps."""
STEPS: tuple[Step, ...] = (scale_out, scale_in, heal, roll_out, end_lifetimes)
"""The first step with actions ends the plan. The next plan uses a new snapshot."""


@dataclass(frozen=True)
class Plan:
    actions: tuple[Action, ...] = ()
    blocked: str = ""
    """why the pool keeps too many VMs"""
    waits: tuple[Waiting, ...] = ()
    """VMs that need an action, with the reason why the action must wait"""
    again_seconds: float | None = None
    """Seconds until the passage of time can change the plan, or None."""


def plan(snapshot: PoolSnapshot, now: datetime) -> Plan:
    """The actions in the order of execution.

    Disks are always released, because a deleted VM waits for the release. Revisions are always rewritten, because the
    deletion of a pool without its VMs waits for it. The plan has no other actions if the pool is paused or being
    deleted, or if its stores do not show earlier writes."""
    actions, left = [*release_disks(snapshot), *rewrite_revisions(snapshot)], snapshot
    held: list[Waiting] = []
    if not (snapshot.pool.deleting or snapshot.pool.spec.paused) and snapshot.synced:
        for step in CLEANUP:
            actions += step(snapshot, now)
        for step in STEPS:
            found, held_now = gate(left, step(left, now), now)
            held += held_now
            if found:
                actions += found
                # A refused action must not block the next steps, so the plan continues after a failure.
                if snapshot.failure is None:
                    break
                left = _without(found, left, now)
    times = (
        seconds_until_deletion_timeout(snapshot, now),
        seconds_until_deadline(snapshot, now),
        seconds_until_overdue(snapshot, now),
        seconds_until_healing(snapshot, now),
        seconds_until_retry(snapshot, now),
        update_limit(snapshot, now).again_seconds,
        seconds_until_timeout(snapshot, now),
        lifetime.seconds_until_end(snapshot, now),
        _seconds_until_window(snapshot, now),
        seconds_until_expiry(snapshot, now),
    )
    again = min((seconds for seconds in times if seconds is not None), default=None)
    later = (*waiting(left, now), *lifetime.outlived(left, now))
    waits = (*held, *held_back(snapshot, now), *later, *keep_disks(snapshot))
    return Plan(tuple(actions), blocked_reason(snapshot, now), waits, again)


def _seconds_until_window(snapshot: PoolSnapshot, now: datetime) -> float | None:
    """Seconds until a maintenance window opens or closes. None if the plan depends on none."""
    if not snapshot.pool.spec.maintenance_windows:
        return None
    waits = count_outdated(snapshot, now) or lifetime.decisions(snapshot, now) or failing(snapshot, now)
    return windows.seconds_until_change(snapshot, now) if waits else None


def _without(found: Iterable[Action], snapshot: PoolSnapshot, now: datetime) -> PoolSnapshot:
    """The snapshot in which these actions have begun, so that later steps count their VMs as unavailable."""
    begun = {each.name: each for each in found}
    vms = (begun[vm.name].begun(vm, now) if vm.name in begun else vm for vm in snapshot.vms)
    return replace(snapshot, vms=tuple(vms))
