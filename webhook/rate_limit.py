"""Limits how often a caller may send requests, with a token bucket for each caller."""


class RateLimiter:
    """Each caller may send `burst` requests at once and `per_second` on average."""

    def __init__(self, *, per_second: float, burst: int, remembered: int = 10_000) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._remembered = remembered
        # The remaining tokens of each caller and the time of their count, oldest first.
        self._buckets: dict[str, tuple[float, float]] = {}

    def wait_seconds(self, caller: str, now: float) -> float:
        """Counts a request if the caller may send it now, and returns 0. Otherwise returns the seconds to wait."""
        tokens, since = self._buckets.pop(caller, (self._burst, now))
        tokens = min(self._burst, tokens + (now - since) * self._per_second)
        allowed = tokens >= 1
        self._buckets[caller] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > self._remembered:
            # Removes the oldest bucket, which is nearly full: a caller without a bucket has all tokens.
            del self._buckets[next(iter(self._buckets))]
        return 0.0 if allowed else (1 - tokens) / self._per_second
