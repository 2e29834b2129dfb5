"""How often one caller may ask."""

from __future__ import annotations

from webhook.rate_limit import RateLimiter


def test_a_burst_then_a_steady_rate() -> None:
    callers = RateLimiter(per_second=2, burst=3)
    assert [callers.wait_seconds("a", 0.0) for _ in range(4)] == [0, 0, 0, 0.5]
    assert callers.wait_seconds("a", 0.5) == 0
    assert callers.wait_seconds("a", 0.5) == 0.5


def test_each_caller_has_its_own_bucket() -> None:
    callers = RateLimiter(per_second=1, burst=1)
    assert callers.wait_seconds("a", 0.0) == 0
    assert callers.wait_seconds("b", 0.0) == 0


def test_a_bucket_holds_at_most_one_burst() -> None:
    callers = RateLimiter(per_second=1, burst=2)
    assert [callers.wait_seconds("a", 1e9) for _ in range(3)] == [0, 0, 1]


def test_the_number_of_remembered_callers_is_bounded() -> None:
    callers = RateLimiter(per_second=1, burst=1, remembered=2)
    for caller in "abc":
        callers.wait_seconds(caller, 0.0)
    assert callers.wait_seconds("a", 0.0) == 0
    assert callers.wait_seconds("c", 0.0) == 1
