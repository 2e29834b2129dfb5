from __future__ import annotations

import asyncio

import pytest

from runtime.batches import slow_start


class Calls:
    def __init__(self, count: int, failing: set[int] | None = None) -> None:
        self.batches: list[int] = []
        self.under_way = 0
        self.list = [lambda number=number: self.call(number) for number in range(count)]
        self.failing = failing or set()

    async def call(self, number: int) -> int:
        self.under_way += 1
        await asyncio.sleep(1)
        if self.under_way:
            self.batches.append(self.under_way)
            self.under_way = 0
        if number in self.failing:
            raise RuntimeError(number)
        return number


@pytest.mark.parametrize(
    ("count", "first", "most", "batches"),
    [
        (0, 1, 250, []),
        (1, 1, 250, [1]),
        (10, 1, 250, [1, 2, 4, 3]),
        (10, 1, 2, [1, 2, 2, 2, 2, 1]),
        (10, 4, 250, [4, 6]),
        (10, 9, 3, [3, 3, 3, 1]),
    ],
)
async def test_batches_double_up_to_the_most(count: int, first: int, most: int, batches: list[int]) -> None:
    calls = Calls(count)
    assert await slow_start(calls.list, first=first, most=most) == list(range(count))
    assert calls.batches == batches


async def test_the_first_failing_batch_is_the_last_and_says_what_came_of_each() -> None:
    calls = Calls(100, failing={4})
    results = await slow_start(calls.list)
    assert len(results) == 7, "1 + 2 + 4"
    assert [result for result in results if not isinstance(result, Exception)] == [0, 1, 2, 3, 5, 6]
    assert isinstance(results[4], RuntimeError)


async def test_what_is_always_refused_costs_one_call() -> None:
    assert len(await slow_start(Calls(1000, failing={0}).list)) == 1


async def test_cancelling_cancels_the_calls() -> None:
    ended = 0

    async def call() -> None:
        nonlocal ended
        try:
            await asyncio.Event().wait()
        finally:
            ended += 1

    task = asyncio.create_task(slow_start([call] * 10, first=10))
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert ended == 10
