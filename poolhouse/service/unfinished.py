"""Says which cancelled tasks have not ended, and at which line each of them waits."""

import asyncio
from asyncio import taskgroups
from collections.abc import Iterable
from pathlib import PurePath
from types import FrameType
from typing import Any

SHOWN = 5
SUSPENDED = (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await"))
"""attributes of coroutines and generators: their own frame, and what they wait for"""


def describe_unfinished(tasks: Iterable[asyncio.Task[Any]]) -> str:
    """Names the cancelled tasks among these that have not ended, each with the line at which it waits. A task that only
    waits for the tasks of its TaskGroup is left out."""
    cancelled = {task.get_name(): _frames(task) for task in tasks if task.cancelling() and not task.done()}
    found = sorted(
        f"{name} ({_line(frames)})"
        for name, frames in cancelled.items()
        if not frames or frames[-1].f_code.co_filename != taskgroups.__file__
    )
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more


def _frames(task: asyncio.Task[Any]) -> list[FrameType]:
    """The frames of a suspended task, the innermost last. `Task.get_stack` has only the outermost."""
    frames = []
    inner: Any = task.get_coro()
    while inner is not None:
        frame, awaited = next((names for names in SUSPENDED if hasattr(inner, names[0])), ("", ""))
        if (found := getattr(inner, frame, None)) is not None:
            frames.append(found)
        inner = getattr(inner, awaited, None)
    return frames


def _line(frames: list[FrameType]) -> str:
    """The innermost line outside of asyncio, such as `planner.py:136 in run`."""
    library = PurePath(asyncio.__file__).parent
    for frame in reversed(frames):
        path = PurePath(frame.f_code.co_filename)
        if path.parent != library:
            return f"{path.name}:{frame.f_lineno} in {frame.f_code.co_name}"
    return "has not begun"
