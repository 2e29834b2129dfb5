"""Calls in threads: what ends them, and that cheap calls do not wait for expensive ones."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

import pytest

from controllers.shared.planner import Planner, PlanTooExpensive, _Call, _interrupt, _Interrupted

EXPENSIVE, CHEAP, OTHER = ("pool", ("a", "web")), ("pool", ("a", "db")), ("pool", ("b", "web"))


@pytest.fixture
def planner() -> Planner:
    return Planner([0.02, 0.2])


def endless() -> NoReturn:
    while True:
        pass


def handles_exceptions() -> NoReturn:
    while True:
        try:
            endless()
        except Exception:
            continue


def loses_the_first_interrupt() -> NoReturn:
    try:
        endless()
    except BaseException:
        endless()


def thread() -> str:
    return threading.current_thread().name.rpartition("_")[0]


def fails() -> NoReturn:
    raise ValueError("wrong")


@pytest.mark.parametrize("function", [endless, handles_exceptions, loses_the_first_interrupt])
async def test_a_call_ends_when_its_budget_is_used(planner: Planner, function: Callable[[], NoReturn]) -> None:
    with pytest.raises(PlanTooExpensive, match=r"needs more than 0\.2 s of processor time"):
        await planner.run(EXPENSIVE, function)
    assert await planner.run(OTHER, sum, [1, 2]) == 3, "the threads go on"


async def test_an_interrupt_that_ends_the_thread_loses_no_call(planner: Planner) -> None:
    """It is raised in the code of the executor, when the thread looks for its next call."""
    _interrupt(await planner.run(CHEAP, threading.get_ident))
    assert await planner.run(OTHER, sum, [1, 2]) == 3


async def test_a_call_can_be_cancelled_whose_thread_has_ended(planner: Planner) -> None:
    planner = Planner([60])
    _interrupt(await planner.run(CHEAP, threading.get_ident))
    call = asyncio.create_task(planner.run(OTHER, sum, [1, 2]))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await planner.run(OTHER, sum, [1, 2]) == 3


async def test_an_expensive_object_begins_in_a_later_thread_until_it_is_cheap_again(planner: Planner) -> None:
    assert await planner.run(EXPENSIVE, thread) == "plans-0.02"
    with pytest.raises(PlanTooExpensive):
        await planner.run(EXPENSIVE, endless)
    assert planner.seconds(EXPENSIVE) >= 0.02
    assert await planner.run(OTHER, thread) == "plans-0.02"
    assert await planner.run(EXPENSIVE, thread) == "plans-0.2"
    assert await planner.run(EXPENSIVE, thread) == "plans-0.02", "the last call was cheap"


async def test_a_call_that_does_not_fit_into_a_thread_is_made_again_in_the_next() -> None:
    planner, made = Planner([0.01, 0.1, 60]), list[str]()

    def expensive_at_first() -> int:
        made.append(thread())
        return 7 if len(made) > 2 else endless()

    assert await planner.run(EXPENSIVE, expensive_at_first) == 7
    assert made == ["plans-0.01", "plans-0.1", "plans-60"]


async def test_cheap_calls_do_not_wait_for_expensive_ones() -> None:
    planner = Planner([0.02, 60])
    expensive = [asyncio.create_task(planner.run(("pool", ("a", f"web-{n}")), endless)) for n in range(3)]
    for number in range(200):
        assert await planner.run(OTHER, abs, -number) == number
    assert not any(each.done() for each in expensive)
    for each in expensive:
        each.cancel()
    await asyncio.gather(*expensive, return_exceptions=True)


async def test_a_cancelled_call_ends(planner: Planner) -> None:
    """Otherwise a process that has lost its Lease could not plan again for a while."""
    planner = Planner([60])
    call = asyncio.create_task(planner.run(EXPENSIVE, endless))
    await asyncio.sleep(0)  # the thread has the call
    call.cancel()
    assert await planner.run(CHEAP, thread) == "plans-60"
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_call_that_is_cancelled_before_its_thread_begins_is_not_made() -> None:
    """Nothing would end it, because its event loop may be closed."""
    call = _Call(endless)
    call.interrupt()
    with pytest.raises(_Interrupted):
        call()


async def test_the_interpreter_is_as_fast_as_before_when_calls_have_ended(planner: Planner) -> None:
    """CPython 3.11 looks for interrupts for ever after one that was taken back. A traced function then never ends."""
    await planner.run(CHEAP, thread)
    with pytest.raises(PlanTooExpensive):
        await planner.run(EXPENSIVE, loses_the_first_interrupt)
    lines = list[int]()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        frame.f_trace_opcodes = True
        lines.append(frame.f_lineno)
        assert len(lines) < 10_000, "the traced function does not go on"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        sum(number for number in range(100))
    finally:
        sys.settrace(before)
    assert lines


async def test_namespaces_have_their_turns_in_order(planner: Planner) -> None:
    order = list[str]()
    names = ["a"] * 5 + ["b"]
    await asyncio.gather(*(planner.run(("pool", (name, str(n))), order.append, name) for n, name in enumerate(names)))
    assert order.index("b") <= 2, order


async def test_errors_are_passed_on(planner: Planner) -> None:
    with pytest.raises(ValueError, match="wrong"):
        await planner.run(CHEAP, fails)


async def test_an_object_that_is_gone_is_forgotten(planner: Planner) -> None:
    await planner.run(CHEAP, thread)
    planner.forget(CHEAP)
    assert planner.seconds(CHEAP) == 0
