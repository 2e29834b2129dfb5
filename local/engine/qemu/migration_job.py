"""A guest that is being moved, live: seen through to its end, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

ABORTS = 15
PAUSE_SECONDS = 1.0
"""between two tries of what QEMU refuses"""


class MigrationTimeout(Exception):
    """A migration was given up when its time was over; `progress` is what libvirt said of it then."""

    def __init__(self, progress: Mapping[str, int]) -> None:
        self.progress = progress


class MigrationJob(Protocol):
    """The node that the guest leaves. None of these raises: what could not be done is tried again."""

    async def switch(self) -> bool:
        """Have the guest run on its target from now on, and its memory follow it. Whether that is so."""

    async def abort(self) -> None: ...

    async def progress(self) -> Mapping[str, int]:
        """Empty where nothing is known of it."""


async def await_migration(
    move: asyncio.Task[None],
    source: MigrationJob,
    seconds: float | None,
    switched: Callable[[], Awaitable[None]] | None,
    pause_seconds: float = PAUSE_SECONDS,
) -> None:
    """Returns when the guest has moved, and raises when it has not, by then being where it was: TooSlow when its time
    was over, or what `move` raises. With `switched` it goes on by post-copy at that time instead, and that is called.
    Cancelled, it gives up; a guest that has moved for all that has moved."""
    try:
        await _conduct(move, source, seconds, switched, pause_seconds)
    except BaseException:
        # Whatever it was that ended this: nothing goes on behind its back.
        if await _gave_up(move, source, pause_seconds):
            raise


async def _conduct(
    move: asyncio.Task[None],
    source: MigrationJob,
    seconds: float | None,
    switched: Callable[[], Awaitable[None]] | None,
    pause_seconds: float,
) -> None:
    done, _ = await asyncio.wait({move}, timeout=seconds)
    if not done and switched is not None:
        if await _switched(move, source, pause_seconds):
            await switched()
    elif not done:
        progress = await source.progress()
        if await _gave_up(move, source, pause_seconds):
            raise MigrationTimeout(progress)
    await asyncio.shield(move)


async def _switched(move: asyncio.Task[None], source: MigrationJob, pause_seconds: float) -> bool:
    """Not if it came to its end first."""
    while not move.done():
        # More than once: before its first byte and after its last one QEMU refuses.
        if await source.switch():
            return True
        await asyncio.wait({move}, timeout=pause_seconds)
    return False


async def _gave_up(move: asyncio.Task[None], source: MigrationJob, pause_seconds: float) -> bool:
    """Whether it has come to its end by that, for it may also have moved."""
    for _ in range(ABORTS):
        if move.done():
            break
        # More than once, for the same reason.
        await source.abort()
        await asyncio.wait({move}, timeout=pause_seconds)
    # What cannot be aborted any more is on its way to its target.
    await asyncio.wait({move})
    return move.exception() is not None
