"""A circuit breaker stops calls to a failing service, so that callers do not wait for each deadline.

A breaker is immutable: each method returns the next breaker. A closed breaker allows every call. Several failures in a
row open it: it allows no call during a pause. Then it allows one call, the probe, whose result closes or opens it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

CircuitState = Literal["closed", "open", "probing"]


@dataclass(frozen=True)
class CircuitBreaker:
    failures_to_open: int = 5
    first_pause_seconds: float = 0.5
    """A service that restarts is back after about this time."""
    longest_pause_seconds: float = 10.0
    probe_seconds: float = 3.0
    """After this time without a result of the probe, another probe is allowed."""

    failures: int = 0
    openings: int = 0
    """number of openings in a row; each doubles the pause"""
    next_probe_at: float | None = None
    """time at which the next probe is allowed; None while the breaker is closed"""
    probing: bool = False

    @property
    def state(self) -> CircuitState:
        if self.next_probe_at is None:
            return "closed"
        return "probing" if self.probing else "open"

    def wait_seconds(self, now: float) -> float:
        """The time until a call is allowed."""
        return 0.0 if self.next_probe_at is None else max(0.0, self.next_probe_at - now)

    def allow(self, now: float) -> tuple[CircuitBreaker, bool]:
        """The next breaker, and whether a call may be made now."""
        if self.next_probe_at is None:
            return self, True
        if self.wait_seconds(now):
            return self, False
        return replace(self, probing=True, next_probe_at=now + self.probe_seconds), True

    def succeeded(self) -> CircuitBreaker:
        """The closed breaker. Any response closes it, even a late response."""
        if self.next_probe_at is None and not self.failures:
            return self
        return replace(self, failures=0, openings=0, next_probe_at=None, probing=False)

    def failed(self, now: float) -> CircuitBreaker:
        # Failures of calls that were in progress when the breaker opened do not count.
        if self.next_probe_at is not None and not self.probing:
            return self
        failures = self.failures + 1
        if not self.probing and failures < self.failures_to_open:
            return replace(self, failures=failures)
        pause = min(self.longest_pause_seconds, self.first_pause_seconds * 2**self.openings)
        openings = min(self.openings + 1, 32)  # limits 2 ** openings to the range of a float
        return replace(self, failures=failures, openings=openings, next_probe_at=now + pause, probing=False)
