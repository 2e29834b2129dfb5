"""Acts that read an object and write it with its resourceVersion."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

CONFLICTS = 5
CONFLICT_SECONDS = 0.2


def again_if_changed(act: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Runs the act again if the object has changed since the act has read it: the controllers and KubeVirt write the
    status of pools and VMs several times a second while VMs start or are updated."""

    @wraps(act)
    async def repeated(*args: P.args, **kwargs: P.kwargs) -> T:
        from poolhouse.runtime.errors import Conflict

        for _ in range(CONFLICTS):
            with suppress(Conflict):
                return await act(*args, **kwargs)
            await asyncio.sleep(CONFLICT_SECONDS)
        return await act(*args, **kwargs)

    return repeated
