"""Counts what callers, tenants or namespaces hold at the moment."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

K = TypeVar("K")


class HeldCounter(Counter[K]):
    """How much each key holds. A key that holds nothing takes no memory, because clients choose most keys."""

    def release(self, key: K, amount: int = 1) -> None:
        self[key] -= amount
        if not self[key]:
            del self[key]

    @contextmanager
    def one_more(self, key: K) -> Iterator[None]:
        """Counts one for the key meanwhile. The caller compares the count with its limit before."""
        self[key] += 1
        try:
            yield
        finally:
            self.release(key)
