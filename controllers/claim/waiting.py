"""Steps that report why a claim waits or has failed, and the times until it is planned again."""

from datetime import datetime, timedelta
from math import inf

from controllers.claim import application, status, steps
from controllers.claim.snapshot import ClaimSnapshot, Failure
from poolhouse.api.kinds.claim import Phase

MAX_ATTEMPTS = 2
RECHECK_SECONDS = 5.0
"""interval of reconciles while the obstacle of a claim may pass without an event"""


def pend(s: ClaimSnapshot, why: Failure, now: datetime, phase: Phase = "Pending") -> steps.Step:
    fresh = status.pending(s, why, now, phase)
    if fresh != s.claim.status:
        return steps.UpdateStatus(fresh, steps.ClaimEvent(why.reason, why.message, "Warning"))
    return steps.Requeue(min(RECHECK_SECONDS, seconds_until(s.bind_deadline, now)))


def fail(s: ClaimSnapshot, why: Failure, now: datetime) -> steps.Step:
    return steps.UpdateStatus(status.failed(s, why, now), steps.ClaimEvent(why.reason, why.message, "Warning"))


def needs_agent(s: ClaimSnapshot) -> bool:
    """Whether an agent starts the application of the claim. In a VM without an agent, cloud-init does."""
    if s.claim.spec.application is None:
        return False
    return s.has_agent if s.pool is None else application.has_agent(s.pool.template)


def seconds_since_act(moment: datetime | None, now: datetime) -> float:
    """The seconds since this process did something for the claim. Infinite for None, and for a time in the future,
    which a clock that was set back can cause: it then does it again."""
    return (now - moment).total_seconds() if moment is not None and moment <= now else inf


def seconds_until(moment: datetime, now: datetime) -> float:
    return max(0.05, (moment - now) / timedelta(seconds=1))
