"""Enqueues all claims that wait for VMs of a pool, after a change of the pool that concerns its whole queue."""

from collections.abc import Callable, Iterable

from controllers.claim.wait_queue import WaitQueue
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.no_metrics import NO_METRICS
from poolhouse.runtime.resource import Key

CLAIMS_AT_ONCE = 20
PAUSE_SECONDS = 0.1
"""A few claims at a time, because a queue may have thousands, and their walk would delay all other work."""


class QueueChecks:
    """A queue is checked from its first claim to its last. A change meanwhile has it checked once more afterwards, so
    that a pool that changes again and again still has its last claim checked."""

    def __init__(self, queue: Callable[[str], WaitQueue], enqueue: Callable[[Iterable[str]], None]) -> None:
        """`queue` returns the queue of a pool, by UID. `enqueue` gets the UIDs of claims."""
        self._queue, self._enqueue = queue, enqueue
        self._changed: set[Key] = set()
        self._left: dict[Key, list[str]] = {}
        """UIDs of the claims that are left to check, the next one last, by pool"""
        self._controller: Controller[Key] = Controller("claim-queue", self.reconcile, workers=1, metrics=NO_METRICS)

    def add(self, namespace: str, pool_uid: str) -> None:
        self._changed.add((namespace, pool_uid))
        self._controller.enqueue((namespace, pool_uid))

    async def run(self) -> None:
        await self._controller.run()

    async def reconcile(self, key: Key) -> float | None:
        left = self._left.pop(key, [])
        if not left and key in self._changed:
            self._changed.remove(key)
            queue = self._queue(key[1])
            left = queue.first(len(queue))[::-1]
        self._enqueue([left.pop() for _ in range(min(CLAIMS_AT_ONCE, len(left)))])
        if left:
            self._left[key] = left
        return PAUSE_SECONDS if left or key in self._changed else None
