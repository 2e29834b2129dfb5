"""A circuit breaker: a service that is ill is asked now and then, instead of costing every caller its deadline.

A value, not a thing with a clock: each event gives the next breaker. Closed, every call may go. After a few failures in
a row it opens: no call goes until a pause is over. Then one call goes as a probe, and the others wait for its news.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

CircuitState = Literal["closed", "open", "probing"]


@dataclass(frozen=True)
class CircuitBreaker:
    failures_to_open: int = 5
    """in a row; one slow answer is no illness"""
    first_pause_seconds: float = 0.5
    """short, because a service that restarts is back in about that time"""
    longest_pause_seconds: float = 10.0
    probe_seconds: float = 3.0
    """after which a probe whose news never came is given up, and another may go"""

    failures: int = 0
    openings: int = 0
    """in a row; each doubles the pause"""
    again_at: float | None = None
    """None while closed, else when the next probe may go"""
    probing: bool = False

    @property
    def state(self) -> CircuitState:
        if self.again_at is None:
            return "closed"
        return "probing" if self.probing else "open"

    def wait_seconds(self, now: float) -> float:
        """How long until a call may go; 0 when one may go now."""
        return 0.0 if self.again_at is None else max(0.0, self.again_at - now)

    def asked(self, now: float) -> tuple[CircuitBreaker, bool]:
        """Whether a call may go now, and the breaker after that was decided."""
        if self.again_at is None:
            return self, True
        if self.wait_seconds(now):
            return self, False
        return replace(self, probing=True, again_at=now + self.probe_seconds), True

    def succeeded(self) -> CircuitBreaker:
        """Any answer at all closes it, a late one too."""
        return (
            self
            if not self.failures and self.again_at is None
            else replace(self, failures=0, openings=0, again_at=None, probing=False)
        )

    def failed(self, now: float) -> CircuitBreaker:
        # Calls that were under way when it opened fail after that, hundreds at once. They are no further news.
        if self.again_at is not None and not self.probing:
            return self
        failures = self.failures + 1
        if not self.probing and failures < self.failures_to_open:
            return replace(self, failures=failures)
        pause = min(self.longest_pause_seconds, self.first_pause_seconds * 2**self.openings)
        # Growth ends well before the exponent is worth a thought.
        openings = min(self.openings + 1, 32)
        return replace(self, failures=failures, openings=openings, again_at=now + pause, probing=False)
