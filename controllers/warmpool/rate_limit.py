"""Limits the creation of VMs: a token bucket, and a backoff after failures. Callers pass the time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from poolhouse.api.apimachinery.timestamps import format_time, parse_time
from poolhouse.api.kinds.warmpool import Refill, WarmPoolStatus
from poolhouse.runtime.backoff import Backoff

MAX_MESSAGE = 1000


@dataclass(frozen=True)
class TokenBucket:
    """A creation of a VM takes one token. The bucket holds the tokens of one second, at least one."""

    tokens: float
    at: float

    @classmethod
    def full(cls, rate: float, now: float) -> TokenBucket:
        return cls(max(1.0, rate), now)

    def refill(self, rate: float, now: float) -> TokenBucket:
        return TokenBucket(min(max(1.0, rate), self.tokens + rate * max(0.0, now - self.at)), now)

    def take(self, tokens: int) -> TokenBucket:
        return replace(self, tokens=max(0.0, self.tokens - tokens))


@dataclass(frozen=True)
class FailureBackoff:
    """The number of consecutive failures to get a VM, and the time of the next attempt."""

    consecutive: int = 0
    reason: str = ""
    message: str = ""
    retry_at: str = ""

    @classmethod
    def from_status(cls, status: WarmPoolStatus) -> FailureBackoff:
        """Restores the backoff from the status after a restart."""
        failures = status.failures
        if failures is None:
            return cls()
        retry_at = failures.next_retry_at or ""
        return cls(failures.consecutive, failures.last_reason, failures.last_message, retry_at)

    def failed(self, reason: str, message: str, now: datetime, refill: Refill, identity: str) -> FailureBackoff:
        count = self.consecutive + 1
        return FailureBackoff(count, reason, message[:MAX_MESSAGE], _retry_at(now, count, refill, identity))

    def tested(self, now: datetime, refill: Refill, identity: str) -> FailureBackoff:
        """Delays the next attempt after the creation of a test VM."""
        return replace(self, retry_at=_retry_at(now, max(1, self.consecutive), refill, identity))

    def due(self, now: datetime, refill: Refill) -> bool:
        return self.seconds_until_due(now, refill) is None

    def seconds_until_due(self, now: datetime, refill: Refill) -> float | None:
        """None if the next attempt is due. A wait that is longer than any pause is due too: the clock was set back."""
        left = (parse_time(self.retry_at) - now).total_seconds() if self.retry_at else 0.0
        return left if 0 < left <= refill.max_backoff_seconds else None


NO_FAILURES = FailureBackoff()


def _retry_at(now: datetime, count: int, refill: Refill, identity: str) -> str:
    backoff = Backoff(base_seconds=refill.backoff_seconds, cap_seconds=refill.max_backoff_seconds)
    return format_time(now + timedelta(seconds=backoff.delay(count, identity)))
