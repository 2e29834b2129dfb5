"""Decides when an update is aborted: by a user, at its deadline, when too many VMs fail with the new template, or when
a check of its analysis fails.

The VMs of an aborted update get the last template again that all VMs had. The pool's status records the abort for the
revision, so the same template is not tried again until it changes, or a user retries it.
"""

from dataclasses import replace
from datetime import datetime

from controllers.pool import analysis
from controllers.pool.progress import vms_overdue
from controllers.pool.reasons import PoolReason
from controllers.pool.selection import STUCK
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.conditions import join_names
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.kinds.pool import UpdateAbort
from poolhouse.api.kinds.pool_strategies import UpdateProactive


def abort_of(snapshot: PoolSnapshot, now: datetime) -> UpdateAbort | None:
    """Why the update to the pool's template is aborted; None if it is not. Without an earlier template that all VMs
    had, no update is aborted."""
    pool, revision = snapshot.pool, snapshot.revision.name
    if snapshot.stable_revision is None:
        return None
    update = pool.status.update
    known = update.aborted if update is not None and update.revision == revision else None
    if known is not None and pool.retry != known.time:
        return known
    if pool.abort == revision:
        return UpdateAbort(reason=PoolReason.ABORTED, message="a user aborted the update", time=format_time(now))
    if known is not None:
        return None
    return _failure(snapshot, now)


def with_abort(snapshot: PoolSnapshot, now: datetime) -> PoolSnapshot:
    """The snapshot in which VMs should have their former template, if the update is aborted. Its pool still has the
    new template."""
    abort, stable = abort_of(snapshot, now), snapshot.stable_revision
    if abort is None or stable is None:
        return snapshot
    return replace(snapshot, revision=stable, revision_saved=True, aborted=(snapshot.revision, abort))


def _failure(snapshot: PoolSnapshot, now: datetime) -> UpdateAbort | None:
    strategy = snapshot.pool.spec.update_strategy.chosen
    if not isinstance(strategy, UpdateProactive) or snapshot.pool.spec.paused:
        return None
    if message := analysis.failure(snapshot):
        return UpdateAbort(reason=PoolReason.ANALYSIS_FAILED, message=message, time=format_time(now))
    if strategy.rollback is None:
        return None
    limit, failing = strategy.rollback.failure_threshold, [vm for vm in snapshot.active if _fails(snapshot, vm)]
    if limit is not None and len(failing) >= limit:
        names = join_names(f"{vm.name} ({vm.printable_status or 'no status'})" for vm in failing)
        fail = count_noun(len(failing), "VM", "fails", "fail")
        message = f"{fail} with the new template, failureThreshold is {limit}: {names}"
        return UpdateAbort(reason=PoolReason.TOO_MANY_FAILING, message=message, time=format_time(now))
    # Without answers to its queries, an update past its deadline only stops.
    if reason := analysis.unsuccessful(snapshot, now) or vms_overdue(snapshot, now):
        return UpdateAbort(reason=PoolReason.PROGRESS_DEADLINE_EXCEEDED, message=reason, time=format_time(now))
    return None


def _fails(snapshot: PoolSnapshot, vm: VM) -> bool:
    """Whether a VM with the new template cannot start, or its VMI has failed."""
    if snapshot.outdated(vm) or not vm.should_run or vm.available:
        return False
    ended = vm.vmi is not None and vm.vmi.phase == "Failed" and vm.vmi.revision == snapshot.revision.label
    return vm.start_failures > 0 or vm.printable_status in STUCK or ended
