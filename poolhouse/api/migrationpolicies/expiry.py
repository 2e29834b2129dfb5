"""The end of a policy: from `spec.expiresAt` on it matches no VMI."""

from datetime import datetime
from typing import Any

from poolhouse.api.apimachinery.timestamps import known_time
from poolhouse.api.apimachinery.unstructured import typed


def expires_at(policy: Any) -> datetime | None:
    """None for a policy that does not expire, and for a time that is not valid."""
    return known_time(typed(str, policy, "spec", "expiresAt") or "")


def is_expired(policy: Any, now: datetime) -> bool:
    return is_over(expires_at(policy), now)


def is_over(end: datetime | None, now: datetime) -> bool:
    """`end` is the time of `expires_at`."""
    return end is not None and end <= now
