"""How often one caller may ask."""

from __future__ import annotations

from webhook.rate_limit import RateLimiter


def test_a_burst_then_a_steady_rate() -> None:
    callers = RateLimiter(per_second=2, burst=3)
    assert [callers.wait_seconds("a", 0.0) for _ in range(4)] == [0, 0, 0, 0.5]
    assert callers.wait_seconds("a", 0.5) == 0
    assert callers.wait_seconds("a", 0.5) == 0.5


def test_callers_do_not_pay_for_each_other() -> None:
    callers = RateLimiter(per_second=1, burst=1)
    assert callers.wait_seconds("a", 0.0) == 0
    assert callers.wait_seconds("b", 0.0) == 0


def test_a_long_rest_gives_no_more_than_one_burst() -> None:
    callers = RateLimiter(per_second=1, burst=2)
    assert [callers.wait_seconds("a", 1e9) for _ in range(3)] == [0, 0, 1]


def test_no_more_callers_are_remembered_than_fit() -> None:
    callers = RateLimiter(per_second=1, burst=1, remembered=2)
    for caller in "abc":
        callers.wait_seconds(caller, 0.0)
    assert callers.wait_seconds("a", 0.0) == 0
    assert callers.wait_seconds("c", 0.0) == 1
