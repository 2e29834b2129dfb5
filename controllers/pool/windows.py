"""Maintenance windows: when the pool may stop available VMs that its template or their age has made outdated.

A window opens at the due times of its cron schedule in its time zone, and closes after its duration. The duration is
elapsed time, so a window that contains a change to summer time is as long as any other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from controllers.pool.snapshot import PoolSnapshot, once
from poolhouse.api.apimachinery.cron import CronSchedule, is_valid
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.kinds.pool_lifecycle import MaintenanceWindow


@dataclass(frozen=True)
class Windows:
    """The maintenance windows at one time. A pool without windows is always open."""

    open: bool = True
    changes_at: datetime | None = None
    """When the open windows close, or the next one opens. None if nothing changes."""

    @property
    def refusal(self) -> str:
        """Why no available VM may be stopped now, or ""."""
        if self.open:
            return ""
        if self.changes_at is None:
            return "no maintenance window opens"
        return f"the next maintenance window opens at {format_time(self.changes_at)}"


@once
def windows(snapshot: PoolSnapshot, now: datetime) -> Windows:
    found = snapshot.pool.spec.maintenance_windows
    if not found:
        return Windows()
    # A schedule that admission has missed opens no window.
    valid = [each for each in found if is_valid(each.schedule, each.time_zone)]
    ends = [end for each in valid if (end := _end_of_last(each, now)) is not None and now < end]
    if ends:
        return Windows(True, max(ends))
    schedules = (CronSchedule(each.schedule, each.time_zone) for each in valid)
    begins = [begin for each in schedules if (begin := each.next_after(now)) is not None]
    return Windows(False, min(begins, default=None))


def refusal_of_updates(snapshot: PoolSnapshot, now: datetime) -> str:
    """Why updates may stop no available VM now, or "". A rollback does not wait, because it ends what has failed."""
    return "" if snapshot.aborted else windows(snapshot, now).refusal


def seconds_until_window_if(
    wants: Callable[[PoolSnapshot, datetime], object],
) -> Callable[[PoolSnapshot, datetime], float | None]:
    """When a rule that `wants` to stop VMs is asked again: the seconds until a window opens or closes. None without
    windows, or if the rule wants nothing."""

    def seconds(snapshot: PoolSnapshot, now: datetime) -> float | None:
        changes_at = windows(snapshot, now).changes_at
        return (changes_at - now).total_seconds() if changes_at is not None and wants(snapshot, now) else None

    return seconds


def _end_of_last(window: MaintenanceWindow, now: datetime) -> datetime | None:
    second = now.replace(microsecond=0) + timedelta(seconds=1)
    begin = CronSchedule(window.schedule, window.time_zone).last_before(second)
    return begin + timedelta(seconds=window.duration_seconds) if begin is not None else None
