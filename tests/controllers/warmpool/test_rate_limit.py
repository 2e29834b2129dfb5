"""The token bucket and the backoff after failures."""

from __future__ import annotations

import pytest

from controllers.warmpool.rate_limit import NO_FAILURES, FailureBackoff, TokenBucket
from poolhouse.api.kinds.warmpool import PoolFailures, Refill, WarmPoolStatus
from tests.controllers.warmpool.builders import NOW, ago

REFILL = Refill(backoff_seconds=10, max_backoff_seconds=60)


@pytest.mark.parametrize(
    ("tokens", "seconds", "rate", "expected"),
    [
        pytest.param(0, 0.5, 50, 25, id="refills with time"),
        pytest.param(40, 5, 50, 50, id="holds the tokens of one second"),
        pytest.param(0, 1, 0.5, 0.5, id="a low rate refills slowly"),
        pytest.param(0, 9, 0.5, 1, id="holds at least one token"),
        pytest.param(3, -100, 50, 3, id="a clock that goes back removes no token"),
    ],
)
def test_token_bucket(tokens: float, seconds: float, rate: float, expected: float) -> None:
    assert TokenBucket(tokens, 1000).refill(rate, 1000 + seconds).tokens == expected


def test_tokens_are_taken() -> None:
    assert TokenBucket.full(50, 0).take(20).tokens == 30
    assert TokenBucket.full(50, 0).take(80).tokens == 0


def test_pauses_grow_up_to_the_maximum() -> None:
    failures, pauses = NO_FAILURES, []
    for _ in range(6):
        failures = failures.failed("FailedCreate", "no", NOW, REFILL, "uid")
        pauses.append(failures.seconds_until_due(NOW, REFILL) or 0)
    assert failures.consecutive == 6
    assert all(7 <= pauses[0] <= 10 for _ in pauses)
    assert pauses[1] > pauses[0]
    assert max(pauses) <= 60


@pytest.mark.parametrize(
    ("retry_at", "seconds"),
    [
        pytest.param("", None, id="no VM was refused"),
        pytest.param(ago(-1), 1, id="a second is left"),
        pytest.param(ago(0), None, id="the pause is over"),
        pytest.param(ago(-60), 60, id="the longest pause"),
        pytest.param(ago(-61), None, id="no pause is that long: the clock was set back"),
    ],
)
def test_when_the_next_vm_may_be_created(retry_at: str, seconds: float | None) -> None:
    failed = FailureBackoff(1, "FailedCreate", "no", retry_at)
    assert failed.seconds_until_due(NOW, REFILL) == seconds
    assert failed.due(NOW, REFILL) is (seconds is None)


def test_the_backoff_is_read_from_the_status() -> None:
    said = PoolFailures(consecutive=3, last_reason="FailedCreate", last_message="no", next_retry_at=ago(-5))
    assert FailureBackoff.from_status(WarmPoolStatus(failures=said)) == FailureBackoff(3, "FailedCreate", "no", ago(-5))
    assert FailureBackoff.from_status(WarmPoolStatus()) == NO_FAILURES


def test_a_long_message_is_cut() -> None:
    assert len(NO_FAILURES.failed("x", "m" * 100_000, NOW, REFILL, "uid").message) == 1000
