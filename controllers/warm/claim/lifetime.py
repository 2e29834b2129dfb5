"""How long a claim may keep its machine."""

from __future__ import annotations

from datetime import datetime, timedelta

from controllers.warm.claim.state import State, moment

WARNED = 0.1
"""People are told when this part of the time is left."""


def lifetime(s: State) -> float | None:
    """Seconds from the moment that it was bound; None for ever."""
    own = s.claim.spec.ttl_seconds
    if s.pool is None:
        return float(own) if own is not None else None
    policy = s.pool.spec.claim_policy
    wish = own if own is not None else policy.default_ttl_seconds
    if policy.max_ttl_seconds is None:
        return float(wish) if wish is not None else None
    return float(min(wish, policy.max_ttl_seconds) if wish is not None else policy.max_ttl_seconds)


def expires_at(s: State) -> datetime | None:
    """From what the spec says now: it may have been extended a moment ago. A pool that is gone can't be asked for its
    limits, so what they came to is kept."""
    said = s.claim.status
    if not said.bound_at:
        return None
    if s.pool is None and said.expires_at:
        return moment(said.expires_at)
    seconds = lifetime(s)
    return moment(said.bound_at) + timedelta(seconds=seconds) if seconds is not None else None


def warn_at(s: State) -> datetime | None:
    end = expires_at(s)
    return end - (end - moment(s.claim.status.bound_at)) * WARNED if end is not None else None


def next_moment(s: State, now: datetime) -> float | None:
    """Seconds until time alone changes something."""
    ahead = [(each - now).total_seconds() for each in (warn_at(s), expires_at(s)) if each is not None and each > now]
    return min(ahead, default=None)
