"""How tests wait until a controller has nothing left to write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.cluster.pooling import PATIENCE_SECONDS
from tests.waiting import answered


async def rests(written: Callable[[], Any], quiet_seconds: float) -> None:
    """Waits until what was written has stayed the same for so long. What others have left in the cluster may have to be
    cleared away before; who writes again and again at rest never gets there."""
    now = asyncio.get_running_loop().time
    end, since, before = now() + PATIENCE_SECONDS, now(), await answered(written)
    while now() - since < quiet_seconds:
        await asyncio.sleep(0.1)
        if (after := await answered(written)) != before:
            assert now() < end, f"it writes at rest: {before}, and {PATIENCE_SECONDS:g} s after the first look {after}"
            since, before = now(), after
