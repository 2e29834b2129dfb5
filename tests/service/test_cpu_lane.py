"""Costly requests compute in a thread, in turns, and with a budget."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack, suppress

import pytest

from service.cpu_lane import BudgetSpent, CpuLane, LaneFull, compute, is_costly


def lane(budget_seconds: float = 60, max_per_tenant: int = 10) -> CpuLane:
    return CpuLane(budget_seconds=budget_seconds, max_per_tenant=max_per_tenant)


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
        waiting = asyncio.create_task(compute(released.wait, 60))
        await asyncio.sleep(0.01)
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
    shared, order, first = lane(), [], threading.Event()
    with shared.enter("busy", 1):
        blocking = asyncio.create_task(compute(first.wait, 60))
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(computed(shared, name, order)) for name in ("a", "a", "a", "b", "b")]
    await asyncio.sleep(0)
    first.set()
    await asyncio.gather(blocking, *waiting)
    assert "".join(order) == "ababa"


async def test_a_tenant_may_have_some_computations_waiting() -> None:
    shared, order, first = lane(max_per_tenant=2), list[str](), threading.Event()
    with shared.enter("a", 1):
        blocking = asyncio.create_task(compute(first.wait, 60))
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(computed(shared, "a", order)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(LaneFull):
        await waiting[2]
    other = asyncio.create_task(computed(shared, "b", order))
    first.set()
    await asyncio.gather(blocking, other, *waiting[:2])
    assert sorted(order) == ["a", "a", "b"]


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


@pytest.mark.parametrize("steps", range(4))
async def test_a_cancelled_request_frees_the_lane(steps: int) -> None:
    """The request is cancelled while it waits, when its turn comes, and while it computes."""
    shared, order, first = lane(), list[str](), threading.Event()
    with ExitStack() as stack:
        stack.callback(first.set)
        with shared.enter("a", 1):
            blocking = asyncio.create_task(compute(first.wait, 60))
        await asyncio.sleep(0)
        cancelled = asyncio.create_task(computed(shared, "b", order))
        await asyncio.sleep(0)
    if steps:
        await blocking
    for _ in range(steps):
        await asyncio.sleep(0)
    cancelled.cancel()
    with suppress(asyncio.CancelledError):
        await cancelled
    await blocking
    async with asyncio.timeout(60):
        await computed(shared, "c", order)
    assert order[-1] == "c"
    assert len(shared) == 0
