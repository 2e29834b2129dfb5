"""How fast a pool may be filled: a bucket of tokens, and patience after failures. Values, not things with a clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from kinds.warmpool import Refill, WarmPoolStatus
from runtime.backoff import Backoff

MAX_MESSAGE = 1000


@dataclass(frozen=True)
class TokenBucket:
    """Creations that are allowed now. It holds what a second gives, at least one."""

    tokens: float
    at: float

    @classmethod
    def full(cls, rate: float, now: float) -> TokenBucket:
        return cls(max(1.0, rate), now)

    def filled(self, rate: float, now: float) -> TokenBucket:
        grown = self.tokens + rate * max(0.0, now - self.at)
        return TokenBucket(min(max(1.0, rate), grown), now)

    def spent(self, tokens: int) -> TokenBucket:
        return replace(self, tokens=max(0.0, self.tokens - tokens))


@dataclass(frozen=True)
class FailureBackoff:
    """Failures in a row to get a machine, and when the next try is due."""

    consecutive: int = 0
    reason: str = ""
    message: str = ""
    retry_at: str = ""

    @classmethod
    def read(cls, status: WarmPoolStatus) -> FailureBackoff:
        """As it was said before a restart."""
        said = status.failures
        if said is None:
            return cls()
        return cls(said.consecutive, said.last_reason, said.last_message, said.next_retry_at or "")

    def failed(self, reason: str, message: str, now: datetime, refill: Refill, identity: str) -> FailureBackoff:
        count = self.consecutive + 1
        said = message[:MAX_MESSAGE]
        return FailureBackoff(count, reason, said, _text(now + _pause(count, refill, identity)))

    def probed(self, now: datetime, refill: Refill, identity: str) -> FailureBackoff:
        """One more was tried while all others wait."""
        return replace(self, retry_at=_text(now + _pause(max(1, self.consecutive), refill, identity)))

    def due(self, now: datetime) -> bool:
        return not self.retry_at or now >= datetime.fromisoformat(self.retry_at)

    def seconds_until_due(self, now: datetime) -> float | None:
        return None if self.due(now) else (datetime.fromisoformat(self.retry_at) - now).total_seconds()


NO_FAILURES = FailureBackoff()


def _pause(count: int, refill: Refill, identity: str) -> timedelta:
    backoff = Backoff(base_seconds=refill.backoff_seconds, cap_seconds=refill.max_backoff_seconds)
    return timedelta(seconds=backoff.delay(count, identity))


def _text(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
