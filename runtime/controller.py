"""Workers that bring what is nearer to what is wanted, one key at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from runtime.backoff import Backoff
from runtime.errors import ApiError, Conflict, Throttled, Unavailable, Unreachable
from runtime.metrics import Metrics
from runtime.workqueue import RETRY, WorkQueue

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

DEADLINE_SECONDS = 300.0
AWAY_SECONDS = 15.0


class RetryWithBackoff(Exception):
    """Not all could be done; why is told elsewhere (a condition, an event). It is tried again after a pause."""


class Controller(Generic[K]):
    """Calls `reconcile(key)` for keys that were enqueued. It is told who, never what happened, and returns when it
    wants to come back for that key (seconds, or None). If it raises, it comes back after a pause that grows. Without a
    deadline a reconcile may take any time; each of its calls then has one of its own."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[float | None]],
        *,
        workers: int = 4,
        deadline_seconds: float | None = DEADLINE_SECONDS,
        backoff: Backoff = RETRY,
        metrics: Metrics | None = None,
    ) -> None:
        metrics = metrics or Metrics()
        self.name = name
        self.queue: WorkQueue[K] = WorkQueue(name, backoff=backoff, metrics=metrics)
        self._reconcile = reconcile
        self._workers = workers
        self._deadline_seconds = deadline_seconds
        self._took = metrics.work_seconds.labels(name)
        self._errors = metrics.work_errors

    def enqueue(self, key: K, after_seconds: float = 0.0) -> None:
        self.queue.add_after(key, after_seconds)

    async def run(self) -> None:
        """Works for ever. When it is cancelled, every reconcile is cancelled and has ended before this returns."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(), name=f"{self.name}-{number}")

    async def _work(self) -> None:
        while True:
            await self.turn()

    async def turn(self) -> None:
        """Works on the next key."""
        key = await self.queue.get()
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self._deadline_seconds):
                again = await self._reconcile(key)
        except Exception as error:
            self._failed(key, error)
        else:
            self.queue.forget(key)
            if again is not None:
                self.queue.add_after(key, again)
        finally:
            self._took.observe(time.perf_counter() - began)
            self.queue.done(key)
        # A key that always comes back at once would never let anybody else run: all of this may pass without a wait.
        await asyncio.sleep(0)

    def _failed(self, key: K, error: Exception) -> None:
        self._errors.labels(self.name, type(error).__name__).inc()
        at_least = error.retry_after_seconds if isinstance(error, ApiError) else None
        # The server's trouble is not the key's: when it is over, nobody should wait for the end of a long pause.
        at_most = AWAY_SECONDS if isinstance(error, Unreachable | Unavailable | Throttled) else float("inf")
        pause = self.queue.retry(key, at_least_seconds=at_least or 0.0, at_most_seconds=at_most)
        where = f"{self.name} {key}"
        match error:
            case Conflict():
                # Somebody wrote first. That is what resourceVersions are for, not news.
                log.debug("%s: %s; again in %.1f s", where, error, pause)
            case Throttled() | RetryWithBackoff():
                log.info("%s: %s; again in %.1f s", where, error, pause)
            case ApiError() | TimeoutError():
                log.warning("%s: %s; again in %.1f s", where, str(error) or "took too long", pause)
            case _:
                log.error("%s: failed; again in %.1f s", where, pause, exc_info=error)
