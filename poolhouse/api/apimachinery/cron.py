"""Cron schedules with a time zone, for fields such as `schedules`."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_ANY_TIME = datetime(2024, 1, 1, tzinfo=UTC)


_MINUTE = timedelta(minutes=1)
_MAX_CHANGES = 20
"""A schedule whose times are all skipped by so many changes of the clock is never due."""


@dataclass(frozen=True)
class CronSchedule:
    """A valid cron expression and the IANA time zone in which its fields count.

    A time that the change to summer time skips is due right after the change, and a time that occurs twice is due once.
    If the field of the minute or of the hour begins with `*`, the schedule is due whenever the clock shows one of its
    times, as in Debian's cron."""

    cron: str
    time_zone: str = "UTC"

    def next_after(self, moment: datetime) -> datetime | None:
        """The first due time after the moment, in UTC. None if there is none within 50 years."""
        return self._first(moment, reverse=False)

    def last_before(self, moment: datetime) -> datetime | None:
        """The last due time before the moment, in UTC. None if there is none within 50 years."""
        return self._first(moment, reverse=True)

    def _first(self, moment: datetime, *, reverse: bool) -> datetime | None:
        minute, hour, *_ = self.cron.split()
        find = self._first_shown if "*" in (minute[0], hour[0]) else self._first_fixed
        return find(moment.astimezone(UTC), reverse=reverse)

    def _first_fixed(self, moment: datetime, *, reverse: bool) -> datetime | None:
        local = moment.astimezone(self._zone)
        begin = local.replace(tzinfo=None)
        if reverse:  # in the second of two equal hours, all times of the first are before
            begin += moment - local.replace(fold=0).astimezone(UTC)
        due = (self._first_instant(each) for each in self._clock_times(begin, reverse=reverse))
        return next((each for each in due if (each < moment if reverse else each > moment)), None)

    def _first_shown(self, moment: datetime, *, reverse: bool) -> datetime | None:
        """Counts with one offset from UTC as far as it holds, and goes on with the next one at the change."""
        offset, begin = self._offset(moment), moment
        for _ in range(_MAX_CHANGES):
            clock = next(self._clock_times((begin + offset).replace(tzinfo=None), reverse=reverse), None)
            if clock is None:
                return None
            due = clock.replace(tzinfo=UTC) - offset
            if self._offset(due) == offset:
                return due
            change = self._change(due, begin) if reverse else self._change(begin, due)
            begin = change if reverse else change - timedelta(seconds=1)
            offset = self._offset(change - _MINUTE if reverse else change)
        return None

    def _clock_times(self, begin: datetime, *, reverse: bool) -> Iterator[datetime]:
        """The due times after or before a time, as the clock shows them. CronSim must not know the zone: around
        changes it leaves out times, finds others on one way only, and may never end."""
        return CronSim(self.cron, begin, reverse)

    def _first_instant(self, clock: datetime) -> datetime:
        """When the clock first shows a time, in UTC; the change if it skips the time."""
        earlier, later = sorted(clock.replace(tzinfo=self._zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        skipped = earlier.astimezone(self._zone).replace(tzinfo=None) != clock
        return self._change(earlier, later) if skipped else earlier

    def _change(self, before: datetime, after: datetime) -> datetime:
        """The minute between two times from which the clock has the offset of the later one. A search, because
        `zoneinfo` gives the offset of a moment, and not the times at which it changes."""
        before = before.replace(second=0, microsecond=0)
        offset = self._offset(after)
        minutes = range((after - before) // _MINUTE)
        return before + _MINUTE * bisect_left(
            minutes, True, key=lambda minute: self._offset(before + _MINUTE * minute) == offset
        )

    def _offset(self, moment: datetime) -> timedelta:
        return moment.astimezone(self._zone).utcoffset() or timedelta()

    @property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(self.time_zone)


def cron_error(text: str) -> str:
    """Why the text is not a cron expression with five fields, or an empty string."""
    fields = len(text.split())
    if fields != 5:
        return f"has {fields} fields; give minute, hour, day of month, month and day of week, such as 0 8 * * 1-5"
    try:
        never = next(CronSim(text, _ANY_TIME), None) is None
    except CronSimError as error:
        return f"{text!r} is no cron expression: {error}"
    return "is never due" if never else ""


def time_zone_error(name: str) -> str:
    """Why the name is not an IANA time zone, or an empty string."""
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # the name is looked up as a file, which can be missing or a directory
        return f"{name!r} is no IANA time zone; give a name such as Europe/Berlin or UTC"
    return ""


@cache
def is_valid(schedule: str, time_zone: str) -> bool:
    """Whether admission accepts them. It may have missed an object, whose controller must not fail."""
    return not (cron_error(schedule) or time_zone_error(time_zone))
