"""Formats and parses times of the Kubernetes API: RFC 3339 in UTC, with whole seconds or with microseconds. Formats
time spans as kubectl does."""

from collections.abc import Iterable
from datetime import UTC, datetime

YEARS = range(1970, 9000)
"""years with which deadlines can be computed"""


def format_time(moment: datetime) -> str:
    """The text of a `metav1.Time`: 2026-01-31T12:00:00Z. Fractions of a second are dropped. The year has four digits,
    also in Go's zero time, 0001-01-01T00:00:00Z."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def format_duration(seconds: float) -> str:
    """A time span in kubectl's form: one unit, or two units if the first number is small. `0s` for a negative one."""
    whole = max(int(seconds), 0)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return f"{minutes}m{whole % 60}s" if whole % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if days < 2:
        return f"{hours}h"
    return f"{days}d"


def format_micro_time(moment: datetime) -> str:
    """The text of a `metav1.MicroTime`, which Leases and Events have: 2026-01-31T12:00:00.000000Z."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_time(text: str) -> datetime:
    """Parses either form to an aware datetime. Raises ValueError for any other text, such as a time without zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment


def known_time(text: str) -> datetime | None:
    """The time in an annotation that users may change. None for any other text, and for a year that is
    not one of `YEARS`."""
    try:
        found = parse_time(text)
    except ValueError:
        return None
    return found if found.year in YEARS else None


def seconds_until_next(times: Iterable[datetime | None], now: datetime) -> float | None:
    """Seconds until the first of the times that is after `now`. None without such a time."""
    return min(((time - now).total_seconds() for time in times if time is not None and time > now), default=None)
