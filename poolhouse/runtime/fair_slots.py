"""A limit on what runs at once, whose slots are shared fairly between keys such as namespaces.

A semaphore gives its slots in the order of arrival, so a caller who asks often lets all others wait. Here a free slot
goes to the waiting key that holds the fewest slots, and among these to the one whose turn is the longest ago. A key
never holds more than its cap, even if slots are free: calls that take long would otherwise hold all slots when another
key asks for the first time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from poolhouse.service.held_counter import HeldCounter

K = TypeVar("K", bound=Hashable)


@dataclass
class Slot(Generic[K]):
    """The slot of one caller."""

    _slots: FairSlots[K]
    _key: K
    _held: bool = False

    @asynccontextmanager
    async def given_back(self) -> AsyncIterator[None]:
        """Lets others have the slot meanwhile, and then waits for one. After an exception it has none."""
        self.release()
        yield
        await self.acquire()

    async def acquire(self) -> None:
        await self._slots._acquire(self._key)
        self._held = True

    def release(self) -> None:
        if self._held:
            self._held = False
            self._slots._release(self._key)


class FairSlots(Generic[K]):
    """Belongs to one event loop. It starts no task and has no clock: a deadline that should include the time of waiting
    is set around `slot`, and another one inside."""

    def __init__(self, total: int, *, per_key: int) -> None:
        if not 1 <= per_key <= total:
            raise ValueError(f"per_key: Invalid value: {per_key}: must be from 1 to the total of {total}")
        self._total, self._per_key = total, per_key
        self._held = HeldCounter[K]()
        self._waiting: dict[K, deque[asyncio.Future[None]]] = {}
        """callers without a slot, in the order of their keys' turns"""

    @asynccontextmanager
    async def slot(self, key: K) -> AsyncIterator[Slot[K]]:
        """Holds a slot of the key, for which it may wait."""
        slot = Slot(self, key)
        await slot.acquire()
        try:
            yield slot
        finally:
            slot.release()

    def held(self, key: K) -> int:
        return self._held[key]

    def waiting(self, key: K) -> int:
        return len(self._waiting.get(key, ()))

    async def _acquire(self, key: K) -> None:
        # `_release` gives a slot to whoever waits and may have it, so this caller takes a free slot from nobody.
        if self._held.total() < self._total and self._held[key] < self._per_key:
            self._held[key] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._stop_waiting(key, turn)
            else:  # the slot was given in the same turn of the event loop
                self._release(key)
            raise

    def _release(self, key: K) -> None:
        self._held.release(key)
        while self._held.total() < self._total and (found := self._next()) is not None:
            turns = self._waiting[found]
            turn = turns.popleft()
            given = not turn.done()  # otherwise its caller was cancelled just now
            if given or not turns:
                del self._waiting[found]
            if given and turns:
                self._waiting[found] = turns  # behind all others
            if given:
                self._held[found] += 1
                turn.set_result(None)

    def _next(self) -> K | None:
        allowed = (key for key in self._waiting if self._held[key] < self._per_key)
        return min(allowed, key=lambda key: self._held[key], default=None)

    def _stop_waiting(self, key: K, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(key)
        if turns is not None and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[key]
