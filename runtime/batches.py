"""Many writes, of which the first show whether the others make sense."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


async def slow_start(
    calls: Sequence[Callable[[], Awaitable[T]]], *, first: int = 1, most: int = 250
) -> list[T | Exception]:
    """Makes the calls in batches that double in size (1, 2, 4, ... `most`); a batch with a failure is the last.

    Returns what came of those made, in their order: the list is shorter than `calls` by those that were not made. A
    full quota or a template that is refused so costs one refused request and not a thousand, every time it's tried.
    """
    results: list[T | Exception] = []
    size = max(1, min(first, most))
    while len(results) < len(calls):
        batch = calls[len(results) : len(results) + size]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_outcome(call)) for call in batch]
        outcomes = [task.result() for task in tasks]
        results += outcomes
        if any(isinstance(outcome, Exception) for outcome in outcomes):
            break
        size = min(size * 2, most)
    return results


async def _outcome(call: Callable[[], Awaitable[T]]) -> T | Exception:
    try:
        return await call()
    except Exception as error:
        return error
