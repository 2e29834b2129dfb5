"""The circuit breaker after each event."""

from __future__ import annotations

import pytest

from poolhouse.runtime.circuit_breaker import CircuitBreaker

NEW = CircuitBreaker(failures_to_open=3, first_pause_seconds=1, longest_pause_seconds=4, probe_seconds=2)


def failed(times: int, now: float = 0.0) -> CircuitBreaker:
    breaker = NEW
    for _ in range(times):
        breaker = breaker.failed(now)
    return breaker


def test_single_failures_do_not_open_the_breaker() -> None:
    assert failed(2).allow(0) == (failed(2), True)
    assert failed(2).succeeded().failed(0).failed(0).state == "closed"


def test_failures_in_a_row_open_the_breaker() -> None:
    assert failed(3).state == "open"
    assert failed(3).allow(0.9) == (failed(3), False)
    assert [failed(3).wait_seconds(now) for now in (0.25, 1.0, 7.0)] == [0.75, 0, 0]


def test_after_the_pause_one_probe_is_allowed() -> None:
    probing, may = failed(3).allow(1.0)
    assert (probing.state, may) == ("probing", True)
    assert probing.allow(1.5) == (probing, False)


def test_a_success_closes_the_breaker() -> None:
    probing, _ = failed(3).allow(1.0)
    assert probing.succeeded() == NEW


def test_failed_probes_double_the_pause_up_to_a_maximum() -> None:
    breaker, now, pauses = failed(3), 1.0, []
    for _ in range(4):
        breaker, may = breaker.allow(now)
        assert may
        breaker = breaker.failed(now)
        assert breaker.next_probe_at is not None
        pauses.append(breaker.next_probe_at - now)
        now = breaker.next_probe_at
    assert pauses == [2, 4, 4, 4]


def test_failures_of_calls_in_progress_do_not_count() -> None:
    breaker = failed(3)
    assert failed(300) == breaker


def test_a_probe_without_a_result_is_replaced() -> None:
    probing, _ = failed(3).allow(1.0)
    again, may = probing.allow(3.0)
    assert (again.state, may) == ("probing", True)


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_success_resets_the_failures(failures: int) -> None:
    assert failed(failures).succeeded() == NEW
