from __future__ import annotations

from itertools import accumulate, islice

import pytest

from tests.waiting import pauses


@pytest.mark.parametrize(("seconds", "questions"), [(1, 10), (5, 26), (30, 76), (180, 376)])
def test_a_wait_asks_less_often_the_longer_it_takes(seconds: float, questions: int) -> None:
    times = accumulate(islice(pauses(), 1000))
    assert sum(each < seconds + 0.01 for each in times) == questions
