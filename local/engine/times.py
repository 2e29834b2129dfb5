"""Times as Kubernetes writes them: UTC, whole seconds."""

from __future__ import annotations

from datetime import UTC, datetime


def format_time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_time(text: str | None) -> datetime | None:
    """None for nothing, and for what is no time."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None
    except ValueError:
        return None


def seconds_until(moment: datetime, now: datetime) -> float:
    return max(0.0, (moment - now).total_seconds())
