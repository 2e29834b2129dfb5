"""Costly requests compute in a thread, in turns, and with a budget."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from poolhouse.service.cpu_lane import BudgetSpent, CpuLane, LaneFull, compute, is_costly

SWITCHES = 20
"""more than any task of these tests needs to come to where it waits for the thread or for its turn"""


class SteppedThread(Executor):
    """A thread that computes when the test says so."""

    def __init__(self) -> None:
        self._submitted: deque[Callable[[], None]] = deque()

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(*arguments, **options))
                except Exception as error:
                    future.set_exception(error)

        self._submitted.append(run)
        return future

    def step(self) -> bool:
        """Computes one function; False if there is none."""
        if not self._submitted:
            return False
        self._submitted.popleft()()
        return True


async def settle() -> None:
    for _ in range(SWITCHES):
        await asyncio.sleep(0)


async def compute_all(thread: SteppedThread) -> None:
    await settle()
    while thread.step():
        await settle()


def lane(thread: Executor | None = None, budget_seconds: float = 60, max_per_tenant: int = 10) -> CpuLane:
    return CpuLane(budget_seconds=budget_seconds, max_per_tenant=max_per_tenant, thread=thread)


async def computed(lane: CpuLane, tenant: str, order: list[str], cost: int = 1) -> None:
    with lane.enter(tenant, cost):
        await compute(order.append, tenant)


async def test_a_usual_request_computes_at_once() -> None:
    assert await compute(threading.get_ident) == threading.get_ident()
    assert not is_costly()


async def test_a_costly_request_lets_the_event_loop_run() -> None:
    released = threading.Event()
    with lane().enter("a", 1):
        assert is_costly()
        waiting = asyncio.create_task(compute(released.wait))
        await settle()
        assert not waiting.done()
        released.set()
        assert await waiting
    assert not is_costly()


async def test_a_request_is_costly_for_itself_only() -> None:
    found: list[bool] = []

    async def other() -> None:
        found.append(is_costly())

    beside = asyncio.create_task(other())
    with lane().enter("a", 1):
        await beside
    assert found == [False]


async def test_tenants_take_turns() -> None:
    thread, order = SteppedThread(), list[str]()
    shared = lane(thread)
    requests = [asyncio.create_task(computed(shared, name, order)) for name in ("busy", "a", "a", "a", "b", "b")]
    await compute_all(thread)
    assert all(request.done() for request in requests)
    assert order == ["busy", "a", "b", "a", "b", "a"]


async def test_a_tenant_may_have_some_computations_waiting() -> None:
    thread, order = SteppedThread(), list[str]()
    shared = lane(thread, max_per_tenant=2)
    requests = [asyncio.create_task(computed(shared, "a", order)) for _ in range(4)]  # one computes, and two wait
    await settle()
    with pytest.raises(LaneFull):
        await requests.pop()
    requests.append(asyncio.create_task(computed(shared, "b", order)))
    await compute_all(thread)
    assert all(request.done() for request in requests)
    assert sorted(order) == ["a", "a", "a", "b"]


async def test_a_request_that_has_used_its_budget_is_given_up() -> None:
    with lane(budget_seconds=0).enter("a", 1), pytest.raises(BudgetSpent):
        await compute(sum, range(10_000))
    with lane().enter("a", 1):
        assert await compute(sum, range(10_000)) == sum(range(10_000))


async def test_an_error_of_a_computation_reaches_its_request_and_frees_the_lane() -> None:
    with lane().enter("a", 1):
        with pytest.raises(ZeroDivisionError):
            await compute(divmod, 1, 0)
        assert await compute(divmod, 3, 2) == (1, 1)


@pytest.mark.parametrize("switches", range(8))
async def test_a_cancelled_request_frees_the_lane(switches: int) -> None:
    """The request is cancelled while it waits, when its turn comes, and while it computes."""
    thread, order = SteppedThread(), list[str]()
    shared = lane(thread)
    first = asyncio.create_task(computed(shared, "a", order))
    cancelled = asyncio.create_task(computed(shared, "b", order))
    await settle()
    if switches:
        thread.step()
    for _ in range(switches):
        await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert cancelled.cancelled()
    last = asyncio.create_task(computed(shared, "c", order))
    await compute_all(thread)
    assert last.done(), "the lane is not free"
    await asyncio.gather(first, last)
    assert order[0] == "a"
    assert order[-1] == "c"
    assert len(shared) == 0
