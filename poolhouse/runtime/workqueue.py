"""The queue of keys to reconcile, like client-go's rate limiting work queue, with turns for tenants.

client-go's queue is first in, first out: whoever changes a thousand objects lets everybody else wait. Here, the next
key is one of the tenant with the fewest keys in work, and among these of the one whose turn is the longest ago. A
tenant is the namespace of a key; keys that are no pair share one tenant.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import Counter, deque
from collections.abc import Hashable
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from poolhouse.runtime.backoff import Backoff
from poolhouse.runtime.no_metrics import NO_METRICS

if TYPE_CHECKING:
    from poolhouse.runtime.metrics import Metrics

K = TypeVar("K", bound=Hashable)

RETRY = Backoff(base_seconds=0.1, cap_seconds=120)


def tenant_of(key: Hashable) -> str:
    match key:
        case (str(namespace), _):
            return namespace
        case _:
            return ""


class ReadyKeys(Generic[K]):
    """The keys that wait for a worker. The time that `put` and `pick` take does not grow with the number of keys or
    tenants."""

    def __init__(self, max_per_tenant: int | None) -> None:
        """`max_per_tenant` limits the keys of one tenant in work; None is no limit."""
        self._max = max_per_tenant
        self._size = 0
        self._keys: dict[str, deque[K]] = {}
        self._in_work: Counter[str] = Counter()
        self._turns: dict[int, dict[str, None]] = {}
        """by number of keys in work, the tenants that may have another one, in the order of their turns"""

    def __len__(self) -> int:
        return self._size

    def count(self, tenant: str) -> int:
        return len(self._keys.get(tenant, ()))

    def put(self, key: K) -> None:
        self._size += 1
        tenant = tenant_of(key)
        if tenant in self._keys:
            self._keys[tenant].append(key)
        else:
            self._keys[tenant] = deque([key])
            self._line_up(tenant)

    def pick(self) -> K | None:
        """Takes the next key into work. None if no tenant with a key may have another one in work."""
        if not self._turns:
            return None
        count = min(self._turns)
        tenant = next(iter(self._turns[count]))
        self._leave(count, tenant)
        self._size -= 1
        key = self._keys[tenant].popleft()
        self._in_work[tenant] += 1
        if self._keys[tenant]:
            self._line_up(tenant)
        else:
            del self._keys[tenant]
        return key

    def done(self, key: K) -> None:
        """Ends the work on a key that `pick` has returned."""
        tenant = tenant_of(key)
        count = self._in_work[tenant]
        self._leave(count, tenant)
        self._in_work[tenant] -= 1
        if count == 1:
            del self._in_work[tenant]
        if tenant in self._keys:
            self._line_up(tenant)

    def _line_up(self, tenant: str) -> None:
        count = self._in_work.get(tenant, 0)
        if self._max is None or count < self._max:
            self._turns.setdefault(count, {})[tenant] = None

    def _leave(self, count: int, tenant: str) -> None:
        turns = self._turns.get(count, {})
        turns.pop(tenant, None)
        if not turns:
            self._turns.pop(count, None)


class WorkQueue(Generic[K]):
    """Gives a key to one worker at a time. A key that is added while a worker has it is reconciled once more, so that a
    thousand events of a pool cost two reconciles. The queue belongs to one event loop and starts no task."""

    def __init__(
        self,
        name: str = "",
        *,
        backoff: Backoff = RETRY,
        max_per_tenant: int | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        metrics = metrics or NO_METRICS
        self._backoff = backoff
        self._ready: ReadyKeys[K] = ReadyKeys(max_per_tenant)
        self._waiting: deque[asyncio.Future[K]] = deque()  # workers without a key
        self._added_at: dict[K, float] = {}  # includes keys that were added while in work
        self._in_work: set[K] = set()
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()
        self._failures: dict[K, int] = {}
        self._timer: asyncio.Handle | None = None  # timer for the earliest time in the heap
        self._timer_due = float("inf")  # uvloop does not tell the time of a timer that has expired
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
        key = self._ready.pick() if not self._waiting else None
        if key is None:
            key = await self._next()
        self._in_work.add(key)
        self._waited.observe(asyncio.get_running_loop().time() - self._added_at.pop(key))
        self._depth.set(len(self))
        return key

    def done(self, key: K) -> None:
        self._in_work.discard(key)
        self._ready.done(key)
        if key in self._added_at:
            self._make_ready(key)
        else:
            self._hand_out()

    def __len__(self) -> int:
        """The number of keys that are ready."""
        return len(self._ready)

    def _make_ready(self, key: K) -> None:
        self._ready.put(key)
        self._hand_out()
        self._depth.set(len(self))

    async def _next(self) -> K:
        waiting: asyncio.Future[K] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.cancelled():
                with suppress(ValueError):  # it was taken out already
                    self._waiting.remove(waiting)
            else:  # it got a key in the same turn of the event loop
                key = waiting.result()
                self._ready.done(key)
                self._make_ready(key)
            raise

    def _hand_out(self) -> None:
        """Gives ready keys to the workers that wait."""
        while self._waiting:
            if self._waiting[0].done():  # cancelled just now
                self._waiting.popleft()
                continue
            key = self._ready.pick()
            if key is None:
                return
            self._waiting.popleft().set_result(key)

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
