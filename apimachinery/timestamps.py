"""Times of the Kubernetes API: RFC 3339 in UTC, with whole seconds or, in Leases and Events, with microseconds."""

from datetime import UTC, datetime


def format_time(moment: datetime) -> str:
    """`metav1.Time`: 2026-01-31T12:00:00Z. Fractions of a second are cut off."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(moment: datetime) -> str:
    """`metav1.MicroTime`: 2026-01-31T12:00:00.000000Z, as Leases and Events have it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> datetime:
    """Either form as an aware datetime; raises ValueError for any other text, a time without a zone included."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment
