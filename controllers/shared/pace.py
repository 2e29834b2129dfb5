"""The share of the event loop that messages of guests may use, by namespace.

A guest may send as much as it can, and the event loop serves all tenants. So a namespace reads one message at a time,
and pauses for each by its number and size.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from poolhouse.runtime.fair_slots import FairSlots

NAMESPACES_AT_ONCE = 2


@dataclass
class Pace:
    message_seconds: float
    """the shortest pause"""
    bytes_per_second: float
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _slots: FairSlots[str] = field(default_factory=lambda: FairSlots(NAMESPACES_AT_ONCE, per_key=1))

    async def wait(self, namespace: str, size: int) -> None:
        """Waits for the turn of the namespace, and then as long as a message of this size takes its place."""
        async with self._slots.slot(namespace):
            await self.sleep(max(self.message_seconds, size / self.bytes_per_second))
