"""Runs workers that reconcile one key at a time, like controller-runtime's `Controller`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

from poolhouse.runtime.backoff import Backoff
from poolhouse.runtime.errors import ApiError, Conflict, NotServed, Throttled, Unavailable, Unreachable, WebhookFailed
from poolhouse.runtime.no_metrics import NO_METRICS
from poolhouse.runtime.workqueue import RETRY, WorkQueue

if TYPE_CHECKING:
    from poolhouse.runtime.metrics import Metrics

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

DEADLINE_SECONDS = 300.0
BUSY_TENANTS = 3
"""This number of namespaces can have all their workers busy before another one waits."""
SERVER_RETRY_SECONDS = 15.0


class RetryWithBackoff(Exception):
    """Raised by a reconcile that could not finish its work and has reported the reason in a condition or event. Its
    cause, if it has one, decides how long the pauses become."""


class Controller(Generic[K]):
    """Calls `reconcile(key)` for queued keys. `reconcile` returns the seconds until its next call, or None.

    At most `workers` keys of one namespace are reconciled at the same time, see `WorkQueue`. After an exception the
    controller retries the key with exponential backoff. Without a deadline a reconcile may take any time, although each
    of its API calls has a deadline. Without a number of workers each key has its own at once, for a reconcile that
    limits itself, for example by `FairSlots`.
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[float | None]],
        *,
        workers: int | None = 4,
        deadline_seconds: float | None = DEADLINE_SECONDS,
        backoff: Backoff = RETRY,
        metrics: Metrics | None = None,
    ) -> None:
        metrics = metrics or NO_METRICS
        self.name = name
        self.queue: WorkQueue[K] = WorkQueue(name, backoff=backoff, max_per_tenant=workers, metrics=metrics)
        self._reconcile, self._deadline_seconds = reconcile, deadline_seconds
        self._workers = None if workers is None else workers * BUSY_TENANTS
        self._duration = metrics.work_seconds.labels(name)
        self._errors = metrics.work_errors

    def enqueue(self, key: K, after_seconds: float = 0.0) -> None:
        self.queue.add_after(key, after_seconds)

    async def run(self) -> None:
        """Runs the workers until it is cancelled. Then it cancels every reconcile and waits until they have ended.

        The next call of `run` starts with the keys of the cancelled reconciles."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers or 0):
                group.create_task(self._work(), name=f"{self.name}-{number}")
            while self._workers is None:
                key = await self.queue.get()
                group.create_task(self._process(key), name=f"{self.name}-{key}")

    async def _work(self) -> None:
        while True:
            await self.process_next()

    async def process_next(self) -> None:
        await self._process(await self.queue.get())

    async def _process(self, key: K) -> None:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self._deadline_seconds):
                requeue_after = await self._reconcile(key)
        except asyncio.CancelledError:
            # The queue outlives the workers: after a lost lease, the next `run` must finish what this one began.
            self.queue.add(key)
            raise
        except Exception as error:
            self._retry(key, error)
        else:
            self.queue.forget(key)
            if requeue_after is not None:
                self.queue.add_after(key, requeue_after)
        finally:
            self._duration.observe(time.perf_counter() - began)
            self.queue.done(key)
        # A key that is always ready again, with a reconcile that never waits, would block the event loop.
        await asyncio.sleep(0)

    def _retry(self, key: K, error: Exception) -> None:
        self._errors.labels(self.name, type(error).__name__).inc()
        at_least = error.retry_after_seconds if isinstance(error, ApiError) else None
        cause = error.__cause__ if isinstance(error, RetryWithBackoff) else error
        # A short limit on the pause, so that keys are retried soon after the API server is available again, or has the
        # kind again.
        outage = isinstance(cause, Unreachable | Unavailable | WebhookFailed | Throttled | NotServed)
        at_most = SERVER_RETRY_SECONDS if outage else float("inf")
        pause = self.queue.add_rate_limited(key, at_least_seconds=at_least or 0.0, at_most_seconds=at_most)
        match error:
            case Conflict():  # another writer has changed the object: no error to log
                level = logging.DEBUG
            case Throttled() | RetryWithBackoff():
                level = logging.INFO
            case ApiError() | TimeoutError():
                level = logging.WARNING
            case _:
                log.error("%s %s: reconcile failed; retry in %.1f s", self.name, key, pause, exc_info=error)
                return
        log.log(level, "%s %s: %s; retry in %.1f s", self.name, key, str(error) or "deadline exceeded", pause)
