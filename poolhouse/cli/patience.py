"""Reads of commands that follow changes for long, such as `overview --watch`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api

T = TypeVar("T")

PATIENCE_SECONDS = 60.0
RETRY_SECONDS = 1.0


async def until_answered(api: Api, read: Callable[[], Awaitable[T]], pause_seconds: float = RETRY_SECONDS) -> T:
    """Repeats the read while the API server does not answer, because users follow changes when a cluster is in trouble.
    Raises the API server's last error after a minute, and any other error at once."""
    from poolhouse.runtime.errors import Throttled, Unavailable, Unreachable

    deadline = api.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return await read()
        except (Throttled, Unavailable, Unreachable):
            if api.monotonic() >= deadline:
                raise
        await asyncio.sleep(pause_seconds)
