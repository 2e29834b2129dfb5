from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse.runtime.backoff import Backoff, hash_fraction

WAIT = Backoff(base_seconds=0.5, cap_seconds=30)


@given(failures=st.integers(min_value=-1, max_value=10**9), identity=st.text())
def test_a_pause_is_bounded_and_depends_on_the_identity(failures: int, identity: str) -> None:
    pause = WAIT.delay(failures, identity)
    assert pause == WAIT.delay(failures, identity)
    assert 0.375 <= pause <= 30 if failures > 0 else pause == 0


def test_without_jitter_a_pause_doubles_up_to_the_cap() -> None:
    plain = Backoff(1, 10, spread=0)
    assert [plain.delay(failures) for failures in range(7)] == [0, 1, 2, 4, 8, 10, 10]


def test_replicas_that_fail_together_return_apart() -> None:
    pauses = {round(WAIT.delay(10, f"replica-{number}"), 1) for number in range(100)}
    assert len(pauses) > 40
    assert max(pauses) - min(pauses) > 6


@pytest.mark.parametrize("identity", ["", "a", "a" * 10_000, "\U0001f600"])
def test_a_hash_fraction_is_between_0_and_1(identity: str) -> None:
    assert 0 <= hash_fraction(identity) < 1
