from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from poolhouse.runtime.backoff import Backoff
from poolhouse.runtime.controller import Controller, RetryWithBackoff
from poolhouse.runtime.errors import Conflict, NotServed, Throttled, Unreachable

Reconcile = Callable[[str], Awaitable[float | None]]


@asynccontextmanager
async def running(reconcile: Reconcile, **options: Any) -> AsyncIterator[Controller[str]]:
    controller = Controller("test", reconcile, **{"backoff": Backoff(1, 60, spread=0)} | options)
    task = asyncio.create_task(controller.run())
    try:
        yield controller
        assert not task.done(), "run() does not return"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def times(log: list[float]) -> list[float]:
    return [round(time - log[0], 1) for time in log]


async def test_workers_share_keys_and_a_key_has_one_worker() -> None:
    now: set[str] = set()
    most = 0

    async def reconcile(key: str) -> None:
        nonlocal most
        assert key not in now
        now.add(key)
        most = max(most, len(now))
        await asyncio.sleep(1)
        now.remove(key)

    async with running(reconcile, workers=3) as controller:
        for _ in range(20):
            for key in "abcde":
                controller.enqueue(key)
            await asyncio.sleep(0.3)
    assert most == 3


async def test_without_a_number_of_workers_no_key_waits_for_another() -> None:
    now: set[str] = set()
    end = asyncio.Event()

    async def reconcile(key: str) -> None:
        assert key not in now
        now.add(key)
        await end.wait()

    async with running(reconcile, workers=None, deadline_seconds=None) as controller:
        for key in "abcdefgh" * 2:
            controller.enqueue(key)
        for _ in range(20):
            await asyncio.sleep(0)
        assert now == set("abcdefgh")
    assert sorted([await controller.queue.get() for _ in range(8)]) == list("abcdefgh"), "a later run goes on with them"


async def test_a_key_that_always_returns_at_once_does_not_block_the_event_loop() -> None:
    looks = 0

    async def reconcile(key: str) -> float | None:
        nonlocal looks
        looks += 1
        return 0.0 if looks < 1000 else None

    async with running(reconcile) as controller:
        controller.enqueue("a")
        for _ in range(10):
            await asyncio.sleep(0)
        assert 0 < looks < 1000, "other tasks run in between"


async def test_a_reconcile_chooses_when_its_key_returns() -> None:
    log: list[float] = []

    async def reconcile(key: str) -> float | None:
        log.append(asyncio.get_running_loop().time())
        return 30 if len(log) < 3 else None

    async with running(reconcile) as controller:
        controller.enqueue("a")
        await asyncio.sleep(1000)
    assert times(log) == [0, 30, 60]


@pytest.mark.parametrize("error", [RuntimeError("bug"), Conflict("changed"), Unreachable("gone"), TimeoutError()])
async def test_failures_are_retried_with_growing_pauses_until_a_success(error: Exception) -> None:
    log: list[float] = []

    async def reconcile(key: str) -> None:
        log.append(asyncio.get_running_loop().time())
        if len(log) not in (4, 6):
            raise error

    async with running(reconcile) as controller:
        controller.enqueue("a")
        await asyncio.sleep(50)
        controller.enqueue("a")
        await asyncio.sleep(50)
    assert times(log) == [0, 1, 3, 7, 50, 51]


@pytest.mark.parametrize("reported", [False, True])
@pytest.mark.parametrize("error", [Unreachable("away"), NotServed("no VMs")])
async def test_errors_of_the_server_have_a_short_maximum_pause(error: Exception, reported: bool) -> None:
    log: list[float] = []

    async def reconcile(key: str) -> None:
        log.append(asyncio.get_running_loop().time())
        if reported:
            raise RetryWithBackoff("it is in the status") from error
        raise error

    async with running(reconcile) as controller:
        controller.enqueue("a")
        await asyncio.sleep(3600)
    pauses = [later - sooner for sooner, later in pairwise(log)]
    assert pauses[:6] == pytest.approx([1, 2, 4, 8, 15, 15], abs=0.001)
    assert max(pauses) == pytest.approx(15, abs=0.001)


async def test_retry_after_is_respected() -> None:
    log: list[float] = []

    async def reconcile(key: str) -> None:
        log.append(asyncio.get_running_loop().time())
        if len(log) == 1:
            raise Throttled("later", retry_after_seconds=25)

    async with running(reconcile) as controller:
        controller.enqueue("a")
        await asyncio.sleep(100)
    assert times(log) == [0, 25]


async def test_a_failing_key_does_not_starve_the_others() -> None:
    done: list[str] = []
    tries = 0

    async def reconcile(key: str) -> None:
        nonlocal tries
        if key == "bad":
            tries += 1
            raise RuntimeError
        done.append(key)

    async with running(reconcile, workers=1) as controller:
        controller.enqueue("bad")
        for number in range(100):
            controller.enqueue("bad")
            controller.enqueue(f"good{number}")
            await asyncio.sleep(1)
    assert len(done) == 100


async def test_a_hanging_reconcile_is_cancelled_and_retried() -> None:
    log: list[float] = []

    async def reconcile(key: str) -> None:
        log.append(asyncio.get_running_loop().time())
        if len(log) == 1:
            await asyncio.Event().wait()

    async with running(reconcile, deadline_seconds=60) as controller:
        controller.enqueue("a")
        await asyncio.sleep(100)
    assert times(log) == [0, 61]


async def test_a_reconcile_without_a_deadline_is_not_cancelled() -> None:
    done: list[str] = []

    async def reconcile(key: str) -> None:
        await asyncio.sleep(30 * 24 * 3600)
        done.append(key)

    async with running(reconcile, deadline_seconds=None) as controller:
        controller.enqueue("a")
        await asyncio.sleep(31 * 24 * 3600)
    assert done == ["a"]


async def test_after_a_cancellation_every_reconcile_has_ended() -> None:
    ended: list[str] = []

    async def reconcile(key: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            ended.append(key)

    async with running(reconcile) as controller:
        for key in "abc":
            controller.enqueue(key)
        await asyncio.sleep(1)
    assert sorted(ended) == ["a", "b", "c"]


async def test_the_next_run_reconciles_the_keys_of_a_cancelled_run() -> None:
    begun: list[str] = []

    async def reconcile(key: str) -> None:
        begun.append(key)
        await asyncio.sleep(1 if len(begun) == 1 else 0)

    controller = Controller("test", reconcile, workers=1)
    for key in "ab":
        controller.enqueue(key)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(controller.run(), 0.5)
    assert begun == ["a"]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(controller.run(), 0.5)
    assert sorted(begun[1:]) == ["a", "b"]
