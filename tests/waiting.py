"""Waits for conditions, with a long timeout for busy machines; the error shows the last value.

Most questions are requests to an API server, so the pauses between them grow with what a test waits for: a tenth of the
time that has passed.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any

PATIENCE_SECONDS = 180.0
LEAST_PAUSE_SECONDS = 0.1
MOST_PAUSE_SECONDS = 0.5


def pauses() -> Iterator[float]:
    """Seconds to wait before each next question."""
    waited = 0.0
    while True:
        pause = min(max(LEAST_PAUSE_SECONDS, waited / 10), MOST_PAUSE_SECONDS)
        waited += pause
        yield pause


async def until(question: Callable[[], Any], expected: Any, seconds: float = PATIENCE_SECONDS) -> None:
    """Calls `question`, which may be async, until it returns the expected value."""
    answer, again = None, pauses()
    try:
        async with asyncio.timeout(seconds):
            while (answer := await answered(question)) != expected:  # noqa: ASYNC110
                await asyncio.sleep(next(again))
    except TimeoutError:
        raise AssertionError(f"expected {expected!r}, after {seconds:g} s it is {answer!r}") from None


async def eventually(holds: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
    """Calls `holds`, which may be async, until it returns a true value; returns that value."""
    answer, again = None, pauses()
    try:
        async with asyncio.timeout(seconds):
            while not (answer := await answered(holds)):  # noqa: ASYNC110
                await asyncio.sleep(next(again))
    except TimeoutError:
        raise AssertionError(f"{_named(holds)}: not so within {seconds:g} s, but {answer!r}") from None
    return answer


def wait_until(holds: Callable[[], Any], seconds: float = PATIENCE_SECONDS, least_pause: float = 0.0) -> Any:
    """`eventually` for tests without an event loop, with longer pauses for questions that take more."""
    deadline, again = time.monotonic() + seconds, pauses()
    while not (answer := holds()):
        assert time.monotonic() < deadline, f"{_named(holds)}: not so within {seconds:g} s, but {answer!r}"
        time.sleep(max(next(again), least_pause))
    return answer


async def answered(question: Callable[[], Any]) -> Any:
    answer = question()
    return await answer if inspect.isawaitable(answer) else answer


def _named(holds: Callable[..., Any]) -> str:
    """The function's name and location."""
    code = getattr(holds, "__code__", None)
    name: str = getattr(holds, "__name__", repr(holds))
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name
