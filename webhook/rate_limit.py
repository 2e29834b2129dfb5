"""How often one caller may ask: a bucket of tokens each, and a bounded number of callers remembered."""

from __future__ import annotations


class RateLimiter:
    """Each caller may ask `burst` times at once and `per_second` times a second in the long run."""

    def __init__(self, *, per_second: float, burst: int, remembered: int = 10_000) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._remembered = remembered
        # (tokens, when that was true), those that asked longest ago first.
        self._buckets: dict[str, tuple[float, float]] = {}

    def wait_seconds(self, caller: str, now: float) -> float:
        """0 when the caller may ask now, which is then counted; else how long until it may."""
        tokens, since = self._buckets.pop(caller, (self._burst, now))
        tokens = min(self._burst, tokens + (now - since) * self._per_second)
        allowed = tokens >= 1
        self._buckets[caller] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > self._remembered:
            # Forgotten, it has a full bucket again: it is the one that asked longest ago, which is nearly full anyway.
            del self._buckets[next(iter(self._buckets))]
        return 0.0 if allowed else (1 - tokens) / self._per_second
