"""How long a claim may keep its machine.

What the pool says counts when the machine is bound, and is written down then: from there on the machine is no longer
the pool's, and its time is the claimant's to change. A pool whose limits are lowered takes nothing back.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from controllers.claim.snapshot import ClaimSnapshot, moment

WARNED = 0.1
"""People are told when this part of the time is left."""

NEVER = datetime.max.replace(tzinfo=UTC)


def granted(s: ClaimSnapshot, bound_at: datetime) -> datetime | None:
    """The end of what is bound at this moment; None for never."""
    return _none(min(_wished(s, bound_at), _limit(s, bound_at)))


def expires_at(s: ClaimSnapshot) -> datetime | None:
    """As it was granted, or as the spec says since, if that was changed: it is told by its generation, as nothing else
    of it can be changed while there is a machine to keep. The pool's limit holds for what is longer than before, and a
    pool that is gone has none."""
    said = s.claim.status
    if not said.bound_at:
        return None
    known, bound_at = moment(said.expires_at) if said.expires_at else NEVER, moment(said.bound_at)
    if said.observed_generation == s.claim.generation:
        return _none(known)
    return _none(min(_wished(s, bound_at), max(_limit(s, bound_at), known)))


def warn_at(s: ClaimSnapshot) -> datetime | None:
    end = expires_at(s)
    return end - (end - moment(s.claim.status.bound_at)) * WARNED if end is not None else None


def next_moment(s: ClaimSnapshot, now: datetime) -> float | None:
    """Seconds until time alone changes something."""
    ahead = [(each - now).total_seconds() for each in (warn_at(s), expires_at(s)) if each is not None and each > now]
    return min(ahead, default=None)


def _wished(s: ClaimSnapshot, bound_at: datetime) -> datetime:
    own = s.claim.spec.ttl_seconds
    if own is None and s.pool is not None:
        own = s.pool.spec.claim_policy.default_ttl_seconds
    return _after(bound_at, own)


def _limit(s: ClaimSnapshot, bound_at: datetime) -> datetime:
    return _after(bound_at, s.pool.spec.claim_policy.max_ttl_seconds if s.pool is not None else None)


def _after(begin: datetime, seconds: int | None) -> datetime:
    return begin + timedelta(seconds=seconds) if seconds is not None else NEVER


def _none(end: datetime) -> datetime | None:
    return end if end != NEVER else None
