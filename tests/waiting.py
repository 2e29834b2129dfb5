"""Waits for conditions, with a long timeout for busy machines; the error shows the last value."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 180.0
AGAIN_SECONDS = 0.1


async def until(question: Callable[[], Any], expected: Any, seconds: float = PATIENCE_SECONDS) -> None:
    """Calls `question`, which may be async, until it returns the expected value."""
    answer = None
    try:
        async with asyncio.timeout(seconds):
            while (answer := await answered(question)) != expected:  # noqa: ASYNC110
                await asyncio.sleep(AGAIN_SECONDS)
    except TimeoutError:
        raise AssertionError(f"expected {expected!r}, after {seconds:g} s it is {answer!r}") from None


async def eventually(holds: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
    """Calls `holds`, which may be async, until it returns a true value; returns that value."""
    answer = None
    try:
        async with asyncio.timeout(seconds):
            while not (answer := await answered(holds)):  # noqa: ASYNC110
                await asyncio.sleep(AGAIN_SECONDS)
    except TimeoutError:
        raise AssertionError(f"{_named(holds)}: not so within {seconds:g} s, but {answer!r}") from None
    return answer


def wait_until(holds: Callable[[], Any], seconds: float = PATIENCE_SECONDS, again: float = AGAIN_SECONDS) -> Any:
    """`eventually` for tests without an event loop. `again` is the pause before the next call."""
    deadline = time.monotonic() + seconds
    while not (answer := holds()):
        assert time.monotonic() < deadline, f"{_named(holds)}: not so within {seconds:g} s, but {answer!r}"
        time.sleep(again)
    return answer


async def answered(question: Callable[[], Any]) -> Any:
    answer = question()
    return await answer if inspect.isawaitable(answer) else answer


def _named(holds: Callable[..., Any]) -> str:
    """The function's name and location."""
    code = getattr(holds, "__code__", None)
    name: str = getattr(holds, "__name__", repr(holds))
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name
