"""Formats and parses times of the Kubernetes API: RFC 3339 in UTC, with whole seconds or with microseconds."""

from datetime import UTC, datetime


def format_time(moment: datetime) -> str:
    """The text of a `metav1.Time`: 2026-01-31T12:00:00Z. Fractions of a second are dropped."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(moment: datetime) -> str:
    """The text of a `metav1.MicroTime`, which Leases and Events have: 2026-01-31T12:00:00.000000Z."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> datetime:
    """Parses either form to an aware datetime. Raises ValueError for any other text, such as a time without zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment


def known_time(text: str) -> datetime | None:
    """The time in an annotation that users may change. None for any other text, and for a year with which a deadline
    cannot be computed."""
    try:
        found = parse_time(text)
    except ValueError:
        return None
    return found if 1970 <= found.year < 9000 else None
