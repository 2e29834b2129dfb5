"""Whether a pool makes progress, and whether it has exceeded spec.progressDeadlineSeconds."""

from __future__ import annotations

from datetime import datetime, timedelta

from apimachinery.timestamps import parse_time
from controllers.pool.reasons import PoolReason
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.conditions import join_names
from kinds.pool import PoolStatus
from kinds.pool_strategies import UpdateProactive

OWN_REASONS = (PoolReason.PROGRESS_DEADLINE_EXCEEDED, PoolReason.FAILED_UPDATE, PoolReason.FAILED_RESTART)
"""Reasons of Progressing=False that end with the deadline: a pool that has exceeded it does not update VMs, so its
updates are not refused either."""


def count_outdated(snapshot: PoolSnapshot) -> int:
    """VMs that the pool has yet to update or restart."""
    if not _updates_proactively(snapshot):
        return 0
    return sum(snapshot.outdated(vm) or snapshot.needs_restart(vm) for vm in snapshot.active)


def is_progressing(snapshot: PoolSnapshot) -> bool:
    """VMs are missing, outdated or not available."""
    return bool(snapshot.missing or count_outdated(snapshot) or not all(vm.available for vm in snapshot.active))


def last_progress(snapshot: PoolSnapshot, fresh: PoolStatus, now: str) -> str | None:
    """The time of the last progress: a new spec, or more VMs that exist, are updated or are available.

    For a pool that was complete, it is the time at which a VM first became unavailable."""
    before = snapshot.pool.status
    goal = (fresh.update_revision, fresh.observed_generation)
    progressed = (
        before.last_progress_time is None
        or goal != (before.update_revision, before.observed_generation)
        or fresh.replicas > before.replicas
        or fresh.updated_replicas > before.updated_replicas
        or fresh.available_replicas > before.available_replicas
        or (fresh.unavailable_replicas > 0 and _starts(snapshot))
    )
    return now if progressed else before.last_progress_time


def deadline(snapshot: PoolSnapshot) -> datetime | None:
    status = snapshot.pool.status
    known = status.update_revision == snapshot.revision.name and status.observed_generation == snapshot.pool.generation
    if snapshot.pool.spec.paused or not known or status.last_progress_time is None or _starts(snapshot):
        return None
    seconds = timedelta(seconds=snapshot.pool.spec.progress_deadline_seconds)
    return parse_time(status.last_progress_time) + seconds


def deadline_exceeded(snapshot: PoolSnapshot, now: datetime) -> str:
    """Why no more VMs are updated or restarted, or ""."""
    end = deadline(snapshot)
    down = [vm for vm in snapshot.active if vm.should_run and not vm.available]
    # An outdated VM may become available with the new template.
    failing = [vm for vm in down if not (_updates_proactively(snapshot) and snapshot.outdated(vm))]
    if end is None or now < end or not (failing or snapshot.missing):
        return ""
    names = join_names(f"{vm.name} ({vm.printable_status or 'no status'})" for vm in failing)
    what = f"not available: {names}" if failing else f"{snapshot.missing} VMs are missing"
    return f"no progress for {snapshot.pool.spec.progress_deadline_seconds} s; {what}"


def seconds_until_deadline(snapshot: PoolSnapshot, now: datetime) -> float | None:
    end = deadline(snapshot)
    if end is None or now >= end or not is_progressing(snapshot):
        return None
    return (end - now).total_seconds()


def _starts(snapshot: PoolSnapshot) -> bool:
    """VMs that are unavailable now have just become so: the pool was complete before, or its obstacle is gone."""
    before = snapshot.pool.status
    unhindered = not (snapshot.pool.spec.paused or snapshot.failure)
    return not before.unavailable_replicas or (_was_hindered(before) and unhindered)


def _was_hindered(status: PoolStatus) -> bool:
    """The pool was paused, or the API server refused more than an update."""
    found = (c for c in status.conditions if c.type == "Progressing" and c.status == "False")
    return any(c.reason not in OWN_REASONS for c in found)


def _updates_proactively(snapshot: PoolSnapshot) -> bool:
    return isinstance(snapshot.pool.spec.update_strategy.chosen, UpdateProactive)
