"""The queue of keys to reconcile, like client-go's rate limiting work queue."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

from poolhouse.runtime.backoff import Backoff
from poolhouse.runtime.no_metrics import NO_METRICS

if TYPE_CHECKING:
    from poolhouse.runtime.metrics import Metrics

K = TypeVar("K", bound=Hashable)

RETRY = Backoff(base_seconds=0.1, cap_seconds=120)


class WorkQueue(Generic[K]):
    """Gives a key to one worker at a time. A key that is added while a worker has it is reconciled once more, so that a
    thousand events of a pool cost two reconciles. The queue belongs to one event loop and starts no task."""

    def __init__(self, name: str = "", *, backoff: Backoff = RETRY, metrics: Metrics | None = None) -> None:
        metrics = metrics or NO_METRICS
        self._backoff = backoff
        self._ready: asyncio.Queue[K] = asyncio.Queue()
        self._added_at: dict[K, float] = {}  # includes keys that were added while in work
        self._in_work: set[K] = set()
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()
        self._failures: dict[K, int] = {}
        self._timer: asyncio.Handle | None = None  # timer for the earliest time in the heap
        self._timer_due = float("inf")  # an expired handle of uvloop does not have its time
        self._depth = metrics.queue_depth.labels(name)
        self._adds = metrics.queue_adds.labels(name)
        self._retries = metrics.queue_retries.labels(name)
        self._waited = metrics.queue_seconds.labels(name)

    def add(self, key: K) -> None:
        if key in self._added_at:
            return
        self._added_at[key] = asyncio.get_running_loop().time()
        self._adds.inc()
        if key not in self._in_work:
            self._make_ready(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Adds the key after `seconds`, or at the earliest of several times. A reconcile that runs too early must call
        it again."""
        if seconds <= 0:
            self.add(key)
            return
        due = asyncio.get_running_loop().time() + seconds
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            heapq.heappush(self._heap, (due, next(self._order), key))
            if due < self._timer_due:
                self._set_timer()

    def add_rate_limited(
        self, key: K, *, at_least_seconds: float = 0.0, at_most_seconds: float = float("inf")
    ) -> float:
        """Adds the key after a pause that grows with each call until `forget`; returns the pause."""
        self._failures[key] = self._failures.get(key, 0) + 1
        pause = self._backoff.delay(self._failures[key], repr(key))
        pause = max(at_least_seconds, min(pause, at_most_seconds))
        self._retries.inc()
        self.add_after(key, pause)
        return pause

    def forget(self, key: K) -> None:
        """Resets the pause of `add_rate_limited`."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """Waits for the next key. No other worker gets the key before `done`."""
        key = await self._ready.get()
        self._in_work.add(key)
        self._waited.observe(asyncio.get_running_loop().time() - self._added_at.pop(key))
        self._depth.set(len(self))
        return key

    def done(self, key: K) -> None:
        self._in_work.discard(key)
        if key in self._added_at:
            self._make_ready(key)

    def __len__(self) -> int:
        """The number of keys that are ready."""
        return self._ready.qsize()

    def _make_ready(self, key: K) -> None:
        self._ready.put_nowait(key)
        self._depth.set(len(self))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_due = None, float("inf")
        if self._heap:
            self._timer_due = self._heap[0][0]
            self._timer = asyncio.get_running_loop().call_at(self._timer_due, self._add_due)

    def _add_due(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:  # an earlier time may have replaced this one
                del self._due[key]
                self.add(key)
        self._set_timer()
