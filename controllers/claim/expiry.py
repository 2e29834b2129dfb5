"""When a claim expires.

The pool's limits apply when a VM is bound, and the status records the result. From then on the VM is no longer the
pool's and only the claim can change its time: lowering the pool's limits takes no time away.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from controllers.claim.snapshot import ClaimSnapshot, time_or_min

WARNING_FRACTION = 0.1
"""A claim is Expiring when this part of its time is left."""

NEVER = datetime.max.replace(tzinfo=UTC)


def expiry_at_binding(s: ClaimSnapshot, bound_at: datetime) -> datetime | None:
    """None for a claim that never expires."""
    return _or_none(min(_requested(s, bound_at), _limit(s, bound_at)))


def expires_at(s: ClaimSnapshot) -> datetime | None:
    """As the status records it, unless `ttlSeconds` has changed since. A new generation shows that, because nothing
    else in the spec of a bound claim can change. More time than before is subject to the limit of the pool, if it still
    exists."""
    status = s.claim.status
    if not status.bound_at:
        return None
    recorded = time_or_min(status.expires_at) if status.expires_at else NEVER
    if status.observed_generation == s.claim.generation:
        return _or_none(recorded)
    bound_at = time_or_min(status.bound_at)
    return _or_none(min(_requested(s, bound_at), max(_limit(s, bound_at), recorded)))


def warns_at(s: ClaimSnapshot) -> datetime | None:
    end = expires_at(s)
    return end - (end - time_or_min(s.claim.status.bound_at)) * WARNING_FRACTION if end is not None else None


def seconds_until_change(s: ClaimSnapshot, now: datetime) -> float | None:
    """Until the claim is Expiring or expires."""
    ahead = [(each - now).total_seconds() for each in (warns_at(s), expires_at(s)) if each is not None and each > now]
    return min(ahead, default=None)


def _requested(s: ClaimSnapshot, bound_at: datetime) -> datetime:
    seconds = s.claim.spec.ttl_seconds
    if seconds is None and s.pool is not None:
        seconds = s.pool.spec.claim_policy.default_ttl_seconds
    return _after(bound_at, seconds)


def _limit(s: ClaimSnapshot, bound_at: datetime) -> datetime:
    return _after(bound_at, s.pool.spec.claim_policy.max_ttl_seconds if s.pool is not None else None)


def _after(begin: datetime, seconds: int | None) -> datetime:
    return begin + timedelta(seconds=seconds) if seconds is not None else NEVER


def _or_none(end: datetime) -> datetime | None:
    return end if end != NEVER else None
