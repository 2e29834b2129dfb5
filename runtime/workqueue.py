"""Keys that wait to be worked on."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Hashable
from typing import Generic, TypeVar

from runtime.backoff import Backoff
from runtime.metrics import Metrics

K = TypeVar("K", bound=Hashable)

RETRY = Backoff(base_seconds=0.1, cap_seconds=120)


class WorkQueue(Generic[K]):
    """A key is worked on by one worker at a time; however often it is added meanwhile, it is worked on once more after.

    That makes it safe to add on every event: a thousand events of one pool cost two reconciles. However many wait in
    `get`, a key wakes one of them. It belongs to the event loop it is used in and starts no task.
    """

    def __init__(self, name: str = "", *, backoff: Backoff = RETRY, metrics: Metrics | None = None) -> None:
        metrics = metrics or Metrics()
        self._name = name
        self._backoff = backoff
        self._ready: asyncio.Queue[K] = asyncio.Queue()
        self._since: dict[K, float] = {}  # added and not yet begun, and since when; in work too, if added during it
        self._working: set[K] = set()
        self._later: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()
        self._failures: dict[K, int] = {}
        self._timer: asyncio.Handle | None = None  # of the earliest time in the heap
        self._timer_due = float("inf")  # kept here: of a time that is over, uvloop gives a handle that knows none
        self._depth = metrics.queue_depth.labels(name)
        self._adds = metrics.queue_adds.labels(name)
        self._retries = metrics.queue_retries.labels(name)
        self._waited = metrics.queue_seconds.labels(name)

    def add(self, key: K) -> None:
        if key in self._since:
            return
        self._since[key] = asyncio.get_running_loop().time()
        self._adds.inc()
        if key not in self._working:
            self._make_ready(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Adds it then. Of several times the earliest holds: a reconcile that comes early says again when it wants to
        come back, one that comes late is late."""
        if seconds <= 0:
            self.add(key)
            return
        due = asyncio.get_running_loop().time() + seconds
        if due < self._later.get(key, float("inf")):
            self._later[key] = due
            heapq.heappush(self._heap, (due, next(self._order), key))
            if due < self._timer_due:
                self._set_timer()

    def retry(self, key: K, *, at_least_seconds: float = 0.0, at_most_seconds: float = float("inf")) -> float:
        """Adds it after a pause that grows with each call until `forget`; returns the pause."""
        self._failures[key] = self._failures.get(key, 0) + 1
        pause = self._backoff.delay(self._failures[key], repr(key))
        pause = max(at_least_seconds, min(pause, at_most_seconds))
        self._retries.inc()
        self.add_after(key, pause)
        return pause

    def forget(self, key: K) -> None:
        """Its failures are over."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """The next key; it is the caller's until `done`."""
        return self._begin(await self._ready.get(), asyncio.get_running_loop().time())

    def done(self, key: K) -> None:
        self._working.discard(key)
        if key in self._since:
            self._make_ready(key)

    def __len__(self) -> int:
        """Keys that could be begun now."""
        return self._ready.qsize()

    def _make_ready(self, key: K) -> None:
        self._ready.put_nowait(key)
        self._depth.set(len(self))

    def _begin(self, key: K, now: float) -> K:
        self._working.add(key)
        self._waited.observe(now - self._since.pop(key))
        self._depth.set(len(self))
        return key

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_due = None, float("inf")
        if self._heap:
            self._timer_due = self._heap[0][0]
            self._timer = asyncio.get_running_loop().call_at(self._timer_due, self._add_due)

    def _add_due(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._heap:
            due, _, key = self._heap[0]
            if self._later.get(key) != due:  # an earlier time took its place
                heapq.heappop(self._heap)
            elif due <= now:
                heapq.heappop(self._heap)
                del self._later[key]
                self.add(key)
            else:
                break
        self._set_timer()
