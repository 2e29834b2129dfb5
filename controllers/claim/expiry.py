"""The time at which a claim expires.

The pool's limits apply when a VM is bound, and the status records the result. Later only the claim can change its time,
and a lower limit of the pool does not shorten it. Without its pool, whose limit is not known any more, a claim can only
shorten its time.
"""

from datetime import UTC, datetime, timedelta

from controllers.claim.snapshot import ClaimSnapshot, time_or_min

WARNING_FRACTION = 0.1
"""A claim is Expiring when this fraction of its time is left."""

NEVER = datetime.max.replace(tzinfo=UTC)


def expiry_at_binding(s: ClaimSnapshot, bound_at: datetime) -> datetime | None:
    """The expiry of a claim that is bound now. None for a claim that never expires."""
    return _or_none(min(_requested(s, bound_at), _limit(s, bound_at)))


def expires_at(s: ClaimSnapshot) -> datetime | None:
    """The recorded expiry, or a new expiry after a change of `ttlSeconds`. A new generation shows this change, because
    no other spec field of a bound claim can change."""
    status = s.claim.status
    if not status.bound_at:
        return None
    recorded = time_or_min(status.expires_at) if status.expires_at else NEVER
    if status.observed_generation == s.claim.generation:
        return _or_none(recorded)
    bound_at = time_or_min(status.bound_at)
    limit = max(_limit(s, bound_at), recorded) if s.pool is not None else recorded
    return _or_none(min(_requested(s, bound_at), limit))


def warns_at(s: ClaimSnapshot) -> datetime | None:
    end = expires_at(s)
    return end - (end - time_or_min(s.claim.status.bound_at)) * WARNING_FRACTION if end is not None else None


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
