"""A queue that shares workers between tenants, so that no tenant's requests delay those of another for long.

A tenant is a namespace, or the address of a caller that names none. Workers are processes or threads. Three rules keep
the others safe from a busy tenant:

- The next request is one of the tenant whose requests have used the workers least. A tenant that returns after a pause
  gets no credit for the pause.
- Costly requests never use all workers at once. A small request therefore waits for small ones only.
- A tenant may have only a part of the requests that wait.

The caller estimates the cost of a request from its body, before the body is parsed. Costs are counted when a request
leaves the queue, so that requests that are dropped are free. The order depends on the requests alone, on no clock.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Head:
    """The first waiting request of a tenant that a worker may take."""

    tenant: str
    used: int
    """cost of the tenant's requests so far"""
    number: int
    """number of the request, in the order of arrival"""


def next_tenant(heads: Iterable[Head]) -> Head | None:
    """The head to handle next: that of the tenant that has used least, and the oldest of those that have used the same.
    None if nothing waits."""
    return min(heads, key=lambda head: (head.used, head.number), default=None)


@dataclass
class _Entry(Generic[T]):
    number: int
    cost: int
    item: T


@dataclass
class _Tenant(Generic[T]):
    """The waiting requests of a tenant, and the cost of those that have left the queue."""

    used: int
    small: deque[_Entry[T]] = field(default_factory=deque)
    costly: deque[_Entry[T]] = field(default_factory=deque)

    def __len__(self) -> int:
        return len(self.small) + len(self.costly)


class TenantQueueFull(Exception):
    """Too many requests of the tenant wait. Requests of other tenants can wait."""


class FairQueue(Generic[T]):
    def __init__(self, *, max_per_tenant: int, costly: int) -> None:
        """A request whose cost is greater than `costly` is costly."""
        self._max_per_tenant, self._costly = max_per_tenant, costly
        self._waiting: dict[str, _Tenant[T]] = {}
        self._used: dict[str, int] = {}
        """usage of the tenants that have no waiting request; empty while no request waits"""
        self._last = 0
        """usage of the tenant that was served last; a tenant that returns starts from this value"""
        self._numbers = count()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def push(self, item: T, tenant: str, cost: int) -> None:
        """Adds a request. Raises `TenantQueueFull`."""
        queue = self._waiting.get(tenant)
        if queue is None:
            queue = _Tenant(max(self._last, self._used.pop(tenant, 0)))
        if len(queue) >= self._max_per_tenant:
            raise TenantQueueFull
        self._waiting[tenant] = queue
        (queue.costly if cost > self._costly else queue.small).append(_Entry(next(self._numbers), cost, item))

    def pop(
        self, *, costly: bool = True, small: bool = True, wanted: Callable[[T], bool] = lambda item: True
    ) -> T | None:
        """The next request; None if none may be handled now. Requests that are not `wanted` any more are
        dropped. `costly` and `small` say which requests may be handled."""
        while (head := next_tenant(self._heads(costly, small))) is not None:
            queue = self._waiting[head.tenant]
            is_small = bool(queue.small) and queue.small[0].number == head.number
            entry = (queue.small if is_small else queue.costly).popleft()
            found = wanted(entry.item)
            if found:
                self._last = head.used
                queue.used += entry.cost
            self._end_wait(head.tenant, queue)
            if found:
                return entry.item
        return None

    def _heads(self, costly: bool, small: bool) -> Iterator[Head]:
        for name, queue in self._waiting.items():
            allowed = (queue.small if small else (), queue.costly if costly else ())
            firsts = [each[0].number for each in allowed if each]
            if firsts:
                yield Head(name, queue.used, min(firsts))

    def _end_wait(self, tenant: str, queue: _Tenant[T]) -> None:
        if queue:
            return
        del self._waiting[tenant]
        self._used[tenant] = queue.used
        if not self._waiting:
            self._used.clear()
