"""Limits how often a caller may send requests, with a token bucket for each caller."""


class RateLimiter:
    """Each caller may send `burst` requests at once and `per_second` on average."""

    def __init__(self, *, per_second: float, burst: int, remembered: int = 10_000) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._remembered = remembered
        # By caller: the tokens left, and when they were counted. Callers with the oldest requests come first.
        self._buckets: dict[str, tuple[float, float]] = {}

    def wait_seconds(self, caller: str, now: float) -> float:
        """0 if the caller may send a request now, which is then counted; else the time until it may."""
        tokens, since = self._buckets.pop(caller, (self._burst, now))
        tokens = min(self._burst, tokens + (now - since) * self._per_second)
        allowed = tokens >= 1
        self._buckets[caller] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > self._remembered:
            # Dropping a bucket fills it. The oldest one is nearly full anyway.
            del self._buckets[next(iter(self._buckets))]
        return 0.0 if allowed else (1 - tokens) / self._per_second
