"""Cron schedules with a time zone, for fields such as `schedules`."""

from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_ANY_TIME = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class CronSchedule:
    """A valid cron expression and the IANA time zone in which its fields count.

    A time that the change to summer time skips is due right after the change. A time that occurs twice is due once,
    unless the expression repeats within each hour."""

    cron: str
    time_zone: str = "UTC"

    def next_after(self, moment: datetime) -> datetime | None:
        """The first due time after the moment, in UTC. None if there is none within 50 years."""
        return self._first(moment, reverse=False)

    def last_before(self, moment: datetime) -> datetime | None:
        """The last due time before the moment, in UTC. None if there is none within 50 years."""
        return self._first(moment, reverse=True)

    def _first(self, moment: datetime, *, reverse: bool) -> datetime | None:
        # CronSim counts by the clock on the wall. In the hour that occurs twice it would find times of the first one
        # again when it goes forwards, and miss them when it goes backwards.
        local = moment.astimezone(ZoneInfo(self.time_zone))
        repeated = moment - local.replace(fold=0).astimezone(UTC)
        begin = (moment + repeated).astimezone(local.tzinfo) if reverse else local
        due = (each.astimezone(UTC) for each in CronSim(self.cron, begin, reverse))
        return next((each for each in due if (each < moment if reverse else each > moment)), None)


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
