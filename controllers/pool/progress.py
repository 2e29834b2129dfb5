"""Whether a pool makes progress, and its deadline `progressDeadlineSeconds`."""

from datetime import datetime, timedelta

from controllers.pool import live_updates
from controllers.pool.analysis import overdue
from controllers.pool.counts import count_vms
from controllers.pool.reasons import PoolReason
from controllers.pool.replacement import unready_disk
from controllers.pool.snapshot import PoolSnapshot, once
from controllers.pool.snapshots_before_update import held_by_snapshots
from controllers.pool.update_limit import update_limit, with_template
from controllers.shared.conditions import join_names
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.timestamps import parse_time
from poolhouse.api.kinds.pool import PoolStatus
from poolhouse.api.kinds.pool_strategies import UpdateProactive

OWN_REASONS = (
    PoolReason.PROGRESS_DEADLINE_EXCEEDED,
    PoolReason.FAILED_UPDATE,
    PoolReason.FAILED_RESTART,
    PoolReason.FAILED_RUN_JOB,
    PoolReason.UPDATE_ABORTED,
)
"""Reasons of Progressing=False that do not restart the deadline. A pool past its deadline updates no VMs, so the API
server cannot refuse an update."""
WAITS = (
    PoolReason.WAITING_FOR_WINDOW,
    PoolReason.UPDATE_PAUSED,
    PoolReason.ANALYSIS_RUNNING,
    PoolReason.ANALYSIS_INCONCLUSIVE,
    PoolReason.UPDATE_ABORTED,
)
"""Reasons of Progressing with which an update waits, as the spec asks. This time does not count for the deadline."""


@once
def count_outdated(snapshot: PoolSnapshot, now: datetime) -> int:
    """The number of VMs that are to be updated or restarted now. Steps and partition keep others waiting. With another
    strategy, the VMs that KubeVirt changes while they run."""
    if not _updates_proactively(snapshot):
        updated = (vm for vm in snapshot.active if not snapshot.outdated(vm))
        return sum(bool(live_updates.waits_for(snapshot, vm, now)) for vm in updated)
    counts = count_vms(snapshot)
    may_be_updated = max(0, update_limit(snapshot, now).allowed - with_template(snapshot))
    return counts.restart + min(counts.old, may_be_updated)


def is_progressing(snapshot: PoolSnapshot, now: datetime) -> bool:
    """Whether VMs are missing, outdated or unavailable."""
    return bool(snapshot.missing or count_outdated(snapshot, now) or not all(vm.available for vm in snapshot.active))


def last_progress(snapshot: PoolSnapshot, fresh: PoolStatus, now: str) -> str | None:
    """The time of the last progress: a new spec, more VMs that exist, are updated or are available, or an update that
    continues.

    For a pool that was complete, it is the time at which a VM first became unavailable."""
    before = snapshot.pool.status
    goal = (fresh.update_revision, fresh.observed_generation)
    progressed = (
        before.last_progress_time is None
        or goal != (before.update_revision, before.observed_generation)
        or fresh.replicas > before.replicas
        or fresh.updated_replicas > before.updated_replicas
        or fresh.available_replicas > before.available_replicas
        or fresh.held_replicas != before.held_replicas
        or (_reason(before) in WAITS and _reason(fresh) == PoolReason.UPDATING)
        or (fresh.unavailable_replicas > 0 and _starts(snapshot))
    )
    return now if progressed else before.last_progress_time


def _end_without_progress(snapshot: PoolSnapshot) -> datetime | None:
    """When `progressDeadlineSeconds` have passed since the last progress. None for a paused pool, and for one whose
    status is that of an earlier spec."""
    pool, status = snapshot.pool, snapshot.pool.status
    known = status.update_revision == snapshot.revision.name and status.observed_generation == pool.generation
    if pool.spec.paused or not known or status.last_progress_time is None:
        return None
    return parse_time(status.last_progress_time) + timedelta(seconds=pool.spec.progress_deadline_seconds)


def deadline(snapshot: PoolSnapshot) -> datetime | None:
    waiting = wait_for_disks(snapshot) or _waits_for_snapshots(snapshot) or live_updates.required(snapshot)
    prepares = waiting and _reason(snapshot.pool.status) not in WAITS
    # The time that VMs wait for lifecycle hooks does not count.
    if (_starts(snapshot) and not prepares) or any(vm.held for vm in snapshot.active):
        return None
    return _end_without_progress(snapshot)


@once
def deadline_exceeded(snapshot: PoolSnapshot, now: datetime) -> str:
    """Why no more VMs are updated or restarted, or ""."""
    return overdue(snapshot, now) or vms_overdue(snapshot, now)


@once
def vms_overdue(snapshot: PoolSnapshot, now: datetime) -> str:
    """Why VMs exceed the deadline: they made no progress for progressDeadlineSeconds. Otherwise ""."""
    end, failing = deadline(snapshot), _failing(snapshot)
    held, waiting = held_by_snapshots(snapshot, now), wait_for_disks(snapshot) | live_updates.required(snapshot)
    if end is None or now < end or not (failing or waiting or snapshot.missing or held):
        return ""
    if waiting and not failing:
        name, reason = min(waiting.items())
        return f"no progress for {snapshot.pool.spec.progress_deadline_seconds} s; {name}: {reason}"
    names = join_names(f"{vm.name} ({vm.printable_status or 'no status'})" for vm in failing)
    what = f"not available: {names}" if failing else f"{count_noun(snapshot.missing, 'VM', 'is', 'are')} missing"
    if not failing and not snapshot.missing:
        what = f"{join_names(each.name for each in held)} waits: {held[0].reason}"
    return f"no progress for {snapshot.pool.spec.progress_deadline_seconds} s; {what}"


def _failing(snapshot: PoolSnapshot) -> list[VM]:
    """VMs that should be available and are not. An outdated VM may become available with the new template."""
    down = (vm for vm in snapshot.active if vm.should_run and not vm.available)
    return [vm for vm in down if not (_updates_proactively(snapshot) and snapshot.outdated(vm))]


def wait_for_disks(snapshot: PoolSnapshot) -> dict[str, str]:
    """VMs that still run from a replaced disk because the new one is not ready, with the reason."""
    return {vm.name: reason for vm in snapshot.active if (reason := unready_disk(snapshot, vm))}


def _waits_for_snapshots(snapshot: PoolSnapshot) -> bool:
    """Whether a snapshot before an update has failed or is not ready yet."""
    known = (snapshot.next_snapshot(vm) for vm in snapshot.active if snapshot.vm_snapshots and snapshot.outdated(vm))
    return any(not each.usable for each in known if each is not None)


def seconds_until_deadline(snapshot: PoolSnapshot, now: datetime) -> float | None:
    end = deadline(snapshot)
    if end is None or now >= end or not is_progressing(snapshot, now):
        return None
    return (end - now).total_seconds()


def stalls_at(snapshot: PoolSnapshot) -> datetime | None:
    """When a pool that does not reach its spec, though the controller repeats what it can, needs a person: it has made
    no progress for `progressDeadlineSeconds`. For a pool that was complete, the time begins when a VM becomes
    unavailable."""
    down = snapshot.missing or not all(vm.available for vm in snapshot.active)
    begins = down and not snapshot.pool.status.unavailable_replicas
    return None if begins else _end_without_progress(snapshot)


def seconds_until_stalled(snapshot: PoolSnapshot, now: datetime) -> float | None:
    """Seconds until a pool with VMs that are to be updated is Stalled if it makes no progress."""
    end = stalls_at(snapshot)
    return (end - now).total_seconds() if end is not None and now < end and count_outdated(snapshot, now) else None


def _starts(snapshot: PoolSnapshot) -> bool:
    """Whether VMs became unavailable just now: the pool was complete before, or its obstacle is gone."""
    before = snapshot.pool.status
    unhindered = not (snapshot.pool.spec.paused or snapshot.failure)
    return not before.unavailable_replicas or (_was_hindered(before) and unhindered)


def _reason(status: PoolStatus) -> str:
    return next((each.reason for each in status.conditions if each.type == "Progressing"), "")


def _was_hindered(status: PoolStatus) -> bool:
    """Whether the pool was paused, or the API server refused another action than an update."""
    found = (c for c in status.conditions if c.type == "Progressing" and c.status == "False")
    return any(c.reason not in OWN_REASONS for c in found)


def _updates_proactively(snapshot: PoolSnapshot) -> bool:
    return isinstance(snapshot.pool.spec.update_strategy.chosen, UpdateProactive)
