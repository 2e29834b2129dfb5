from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Generator
from random import Random
from typing import Any

import pytest
import uvloop
from prometheus_client import CollectorRegistry

from poolhouse.runtime.backoff import Backoff
from poolhouse.runtime.metrics import Metrics
from poolhouse.runtime.workqueue import ReadyKeys, WorkQueue
from tests.waiting import PATIENCE_SECONDS


async def ready(queue: WorkQueue[str]) -> str | None:
    """The next key, if one is ready."""
    try:
        async with asyncio.timeout(0.001):
            return await queue.get()
    except TimeoutError:
        return None


async def test_keys_keep_their_order_and_come_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in "abab":
        queue.add(key)
    assert [await ready(queue), await ready(queue), await ready(queue)] == ["a", "b", None]


async def test_a_key_that_is_added_while_it_is_reconciled_is_queued_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    assert await ready(queue) == "a"
    for _ in range(1000):
        queue.add("a")
    assert await ready(queue) is None
    queue.done("a")
    assert await ready(queue) == "a"
    queue.done("a")
    assert await ready(queue) is None


async def test_the_earliest_of_several_times_counts() -> None:
    queue: WorkQueue[str] = WorkQueue()
    loop = asyncio.get_running_loop()
    began = loop.time()
    queue.add_after("a", 30)
    queue.add_after("b", 20)
    queue.add_after("a", 10)
    queue.add_after("a", 40)
    assert [await queue.get(), round(loop.time() - began)] == ["a", 10]
    queue.done("a")
    assert [await queue.get(), round(loop.time() - began)] == ["b", 20]
    queue.done("b")
    await asyncio.sleep(100)
    assert await ready(queue) is None, "the times that were not the earliest are gone"


async def test_an_earlier_time_wakes_a_waiting_worker() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("late", 1000)
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(1)
    queue.add_after("soon", 5)
    await asyncio.sleep(6)
    assert await waiting == "soon"


async def test_a_time_that_comes_during_work_counts_after_it() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    await queue.get()
    queue.add_after("a", 1)
    await asyncio.sleep(5)
    assert await ready(queue) is None
    queue.done("a")
    assert await ready(queue) == "a"


async def test_pauses_grow_until_the_key_is_forgotten() -> None:
    queue: WorkQueue[str] = WorkQueue(backoff=Backoff(1, 60, spread=0))
    assert [queue.add_rate_limited("a") for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert queue.add_rate_limited("b") == 1
    queue.forget("a")
    assert queue.add_rate_limited("a") == 1
    assert queue.add_rate_limited("a", at_least_seconds=90) == 90


async def test_each_waiting_worker_gets_a_key() -> None:
    queue: WorkQueue[str] = WorkQueue()
    workers = [asyncio.create_task(queue.get()) for _ in range(5)]
    await asyncio.sleep(1)
    for key in "abcde":
        queue.add(key)
    assert sorted(await asyncio.gather(*workers)) == list("abcde")


async def test_a_key_wakes_one_worker_and_a_later_time_wakes_none() -> None:
    queue: WorkQueue[str] = WorkQueue()
    workers = [Steps(queue.get()) for _ in range(32)]
    tasks = [asyncio.create_task(each.run()) for each in workers]
    await asyncio.sleep(1)
    before = sum(each.count for each in workers)
    queue.add_after("a", 5)
    queue.add_after("b", 4)
    await asyncio.sleep(1)
    assert sum(each.count for each in workers) == before
    queue.add("c")
    await asyncio.sleep(1)
    assert [sum(each.count for each in workers) - before, sum(task.done() for task in tasks)] == [1, 1]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Steps:
    """Counts the wake-ups of a coroutine."""

    def __init__(self, coroutine: Coroutine[Any, Any, str]) -> None:
        self._coroutine = coroutine
        self.count = 0

    def __await__(self) -> Generator[Any, Any, str]:
        waited = self._coroutine.__await__()
        try:
            until = next(waited)
            while True:
                yield until
                self.count += 1
                until = waited.send(None)
        except StopIteration as done:
            return str(done.value)
        finally:
            waited.close()

    async def run(self) -> str:
        return await self


async def test_a_cancelled_worker_loses_no_key() -> None:
    queue: WorkQueue[str] = WorkQueue()
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(1)
    queue.add("a")
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled()
    assert await ready(queue) == "a"


async def test_metrics_of_depth_and_waiting_time() -> None:
    registry = CollectorRegistry()
    queue: WorkQueue[str] = WorkQueue("pools", metrics=Metrics(registry))
    queue.add("a")
    queue.add("b")
    labels = {"name": "pools"}
    assert registry.get_sample_value("kubevirt_poolhouse_workqueue_depth", labels) == 2
    await asyncio.sleep(3)
    await queue.get()
    assert registry.get_sample_value("kubevirt_poolhouse_workqueue_depth", labels) == 1
    waited = registry.get_sample_value("kubevirt_poolhouse_workqueue_wait_duration_seconds_sum", labels)
    assert waited == pytest.approx(3)


def test_uvloop_adds_keys_whose_time_is_over() -> None:
    """The services run on uvloop, whose timers differ from asyncio's."""

    async def keys() -> set[int]:
        queue: WorkQueue[int] = WorkQueue()
        for key in range(100):
            queue.add_after(key, 1e-9 * (1 + key))
        return {await queue.get() for _ in range(100)}

    assert uvloop.run(asyncio.wait_for(keys(), PATIENCE_SECONDS)) == set(range(100))


Keys = list[tuple[str, str]]


def of(namespace: str, count: int) -> Keys:
    return [(namespace, str(number)) for number in range(count)]


@pytest.mark.parametrize(
    ("added", "done", "expected"),
    [
        pytest.param([*of("a", 3), *of("b", 1)], 0, "ab a", id="the tenant with the fewest keys in work is next"),
        pytest.param([*of("a", 4), *of("b", 2), *of("c", 1)], 0, "abcab", id="in turns"),
        pytest.param(of("a", 9), 0, "aa", id="a tenant has no more than its share"),
        pytest.param([*of("a", 9), *of("b", 9)], 0, "abab", id="the other tenants have their share"),
        pytest.param(of("a", 9), 1, "aaa", id="a key that is done makes room"),
        pytest.param([*of("a", 9), *of("b", 2)], 2, "ababa", id="for the one with fewer keys in work"),
    ],
)
def test_turns_of_tenants(added: Keys, done: int, expected: str) -> None:
    ready: ReadyKeys[tuple[str, str]] = ReadyKeys(2)
    for key in added:
        ready.put(key)
    picked = Keys()
    while (key := ready.pick()) is not None:
        picked.append(key)
    for number in range(done):
        ready.done(picked[number])
        while (key := ready.pick()) is not None:
            picked.append(key)
    assert "".join(namespace for namespace, _ in picked) == expected.replace(" ", "")
    assert len(ready) == len(added) - len(picked)


def test_random_orders_lose_no_key_and_keep_the_shares() -> None:
    random = Random(7)
    for _ in range(200):
        ready, waiting, working, done = ReadyKeys[tuple[str, str]](3), 0, Keys(), 0
        for number in range(random.randrange(1, 60)):
            match random.randrange(3):
                case 0:
                    ready.put((random.choice("abc"), str(number)))
                    waiting += 1
                case 1 if (key := ready.pick()) is not None:
                    working.append(key)
                case 2 if working:
                    ready.done(working.pop(random.randrange(len(working))))
                    done += 1
            assert len(ready) == waiting - len(working) - done
            assert all(count <= 3 for count in Counter(namespace for namespace, _ in working).values())
        while working or len(ready):
            while (key := ready.pick()) is not None:
                working.append(key)
            ready.done(working.pop())
            done += 1
        assert done == waiting


async def test_a_worker_that_is_cancelled_loses_no_key() -> None:
    queue: WorkQueue[str] = WorkQueue()
    early, late = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")  # given to the first one, which does not run before it is cancelled
    early.cancel()
    assert await late == "a"
    queue.add("a")
    queue.done("a")
    assert await ready(queue) == "a"


async def test_a_waiting_worker_gets_a_key_when_another_of_its_tenant_is_done() -> None:
    queue: WorkQueue[tuple[str, str]] = WorkQueue(max_per_tenant=1)
    queue.add(("a", "1"))
    queue.add(("a", "2"))
    first, waiting = await queue.get(), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.done(first)
    assert await waiting == ("a", "2")
