"""Elects a leader with a Lease of coordination.k8s.io.

The clocks of the processes need not agree. A candidate waits `duration_seconds` *of its own clock* after a change of
the lease. The leader counts `renew_deadline_seconds` from *before* its last successful renewal, which no candidate
can have seen earlier. When the leader cancels its work, `duration_seconds - renew_deadline_seconds` remain to end the
work before a candidate can take the lease. A failed request only delays a renewal.

A process that is suspended (SIGSTOP, a suspended laptop) does not notice that its lease has expired. Each write
therefore needs a precondition: a resourceVersion or a UID.
"""

import asyncio
import logging
import math
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NoReturn

from poolhouse.api.apimachinery.timestamps import format_micro_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.backoff import Backoff, hash_fraction
from poolhouse.runtime.errors import ApiError, Conflict, NotFound
from poolhouse.runtime.resource import LEASES, Resource
from poolhouse.service.unfinished import describe_unfinished

log = logging.getLogger(__name__)

LATE_GRACE_SECONDS = 2.0
"""Time for cancelled work to end if the leader notices only after the lease has expired, because its process was
suspended or had no processor."""
LATE_TURNS = 100
"""Turns of the event loop that cancelled work has at least. A process without a processor can need seconds for one, and
a cancellation passes one TaskGroup in each."""


class LeaseLost(Exception):
    """The lease was not renewed in time, or another process holds it. The work was cancelled and has ended."""


def _exit() -> NoReturn:
    logging.shutdown()
    os._exit(1)


@dataclass(frozen=True)
class ObservedLease:
    """A lease at its last change, and when this process saw the change."""

    version: str
    holder: str
    duration_seconds: float
    seen_at: float

    def is_free(self, now: float) -> bool:
        return not self.holder or now >= self.seen_at + self.duration_seconds


class LeaderElector:
    """Acquires, renews and releases a lease. `identity` must be unique among running processes. A process that restarts
    with the same identity gets the lease at once; with a new identity it waits until the lease expires."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        identity: str,
        duration_seconds: float = 15,
        renew_deadline_seconds: float = 10,
        retry_seconds: float = 2,
        *,
        exit_process: Callable[[], object] = _exit,
    ) -> None:
        """`exit_process` ends this process. It is called if the cancelled work has not ended when the lease is about to
        expire, because the next leader then starts the same work."""
        if not retry_seconds < renew_deadline_seconds < duration_seconds:
            raise ValueError("must be: retry_seconds < renew_deadline_seconds < duration_seconds")
        self._api = api.urgent  # a renewal must not wait for other calls
        self._namespace, self._name, self._identity = namespace, name, identity
        self._duration_seconds, self._retry_seconds = duration_seconds, retry_seconds
        self._renew_deadline_seconds = renew_deadline_seconds
        # Three attempts fit into the deadline, because a request may hang on a dead connection.
        self._attempt_seconds = renew_deadline_seconds / 3
        self._exit_process = exit_process
        self._document: Json = {}
        self._seen: ObservedLease | None = None
        self._renewed_at = 0.0
        self._leading = api.metrics.leading.labels(name)

    @property
    def holder(self) -> str:
        """The identity in the lease when it was last read."""
        return self._seen.holder if self._seen else ""

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Waits until this process leads, runs the work, and releases the lease.

        Returns when the work returns and raises what it raises, or LeaseLost. In every case the work has ended: it was
        cancelled before another process could get the lease. The caller decides whether to call `run` again.
        """
        await self._acquire()

        async def body() -> None:
            await work()

        working = asyncio.create_task(body(), name=f"lease-{self._name}-work")
        keeping = asyncio.create_task(self._keep_renewing(), name=f"lease-{self._name}")
        self._leading.set(1)
        try:
            await asyncio.wait({working, keeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # The work is done, the lease is lost, or this call was cancelled.
            working.cancel()
            await self._until_ended(working, keeping)
            self._leading.set(0)
            lost = keeping.done()
            keeping.cancel()
            await asyncio.wait({keeping})
            if not lost:
                await self._release()
        if lost:
            reason = None if keeping.cancelled() else keeping.exception()
            raise LeaseLost(f"lease {self._name}: lost; the last known holder is {self.holder!r}") from reason
        await working

    async def _until_ended(self, working: asyncio.Task[None], keeping: asyncio.Task[None]) -> None:
        """Waits until the cancelled work has ended, and renews the lease meanwhile if possible."""
        loop = asyncio.get_running_loop()
        spare = (self._duration_seconds - self._renew_deadline_seconds) / 5
        late, turns = loop.time() + LATE_GRACE_SECONDS, 0
        while not working.done():
            left = None
            if keeping.done():
                left = max(self._renewed_at + self._duration_seconds - spare, late) - loop.time()
                if left <= 0 and turns < LATE_TURNS:
                    turns += 1
                    await asyncio.sleep(0)
                    continue
                if left <= 0:
                    log.critical(
                        "lease %s: lost, but these cancelled tasks do not end: %s: the process exits",
                        self._name,
                        describe_unfinished(asyncio.all_tasks()),
                    )
                    self._exit_process()
                    return
            await asyncio.wait(
                {working} if keeping.done() else {working, keeping}, timeout=left, return_when=asyncio.FIRST_COMPLETED
            )

    async def _acquire(self) -> None:
        pauses = Backoff(self._retry_seconds, self._renew_deadline_seconds)
        failures = 0
        while True:
            try:
                async with asyncio.timeout(self._attempt_seconds):
                    if await self._try_acquire():
                        log.info("lease %s: acquired by %s", self._name, self._identity)
                        return
                failures = 0
            except Conflict:
                failures = 0  # another candidate has written the lease first
            except (ApiError, TimeoutError) as error:
                failures += 1
                log.warning("lease %s: not acquired: %s", self._name, str(error) or "no answer before the deadline")
            await asyncio.sleep(max(self._pause(), pauses.delay(failures, self._identity)))

    async def _try_acquire(self) -> bool:
        """Returns whether this process holds the lease now."""
        try:
            document = await self._api.get(LEASES, self._namespace, self._name)
        except NotFound:
            await self._write(self._api.create, {"metadata": {"namespace": self._namespace, "name": self._name}})
            return True
        seen = self._observe(document)
        if seen.holder != self._identity and not seen.is_free(asyncio.get_running_loop().time()):
            return False
        await self._write(self._api.replace, document)
        return True

    def _observe(self, document: Json) -> ObservedLease:
        version, spec = document["metadata"]["resourceVersion"], document.get("spec") or {}
        if self._seen is None or self._seen.version != version:
            holder, seconds = spec.get("holderIdentity") or "", float(spec.get("leaseDurationSeconds") or 0)
            self._seen = ObservedLease(version, holder, seconds, asyncio.get_running_loop().time())
        return self._seen

    async def _keep_renewing(self) -> None:
        """Renews the lease; returns when another process may hold it."""
        try:
            async with asyncio.timeout_at(self._renewed_at + self._renew_deadline_seconds) as deadline:
                while True:
                    await asyncio.sleep(self._pause())
                    try:
                        async with asyncio.timeout(self._attempt_seconds):
                            renewed = await self._renew()
                    except (ApiError, TimeoutError) as error:
                        log.warning(
                            "lease %s: not renewed: %s", self._name, str(error) or "no answer before the deadline"
                        )
                        continue
                    if not renewed:
                        log.error("lease %s: lost to %r", self._name, self.holder)
                        return
                    deadline.reschedule(self._renewed_at + self._renew_deadline_seconds)
        except TimeoutError:
            log.error("lease %s: not renewed for %.0f s", self._name, self._renew_deadline_seconds)

    async def _renew(self) -> bool:
        """False when another process holds the lease, or may hold it because the lease was deleted."""
        try:
            await self._write(self._api.replace, self._document)
        except NotFound:
            return False
        except Conflict:
            # An earlier renewal may have succeeded although its response was lost.
            self._document = await self._api.get(LEASES, self._namespace, self._name)
            if self._observe(self._document).holder != self._identity:
                return False
            await self._write(self._api.replace, self._document)
        return True

    async def _write(self, call: Callable[[Resource, Json], Awaitable[Json]], document: Json) -> None:
        """Makes this process the holder by creating or replacing the lease."""
        began = asyncio.get_running_loop().time()
        self._document = await call(LEASES, self._record(document))
        self._renewed_at = began
        self._observe(self._document)

    async def _release(self) -> None:
        """Releases the lease, so that a candidate can take it at once. Call it only after the work has ended."""
        try:
            async with asyncio.timeout(self._attempt_seconds):
                self._document = await self._api.get(LEASES, self._namespace, self._name)
                if self._observe(self._document).holder == self._identity:
                    spec = self._document["spec"] | {"holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._api.replace(LEASES, self._document | {"spec": spec})
                    log.info("lease %s: released", self._name)
        except (ApiError, TimeoutError) as error:
            log.warning(
                "lease %s: not released, it expires: %s", self._name, str(error) or "no answer before the deadline"
            )

    def _record(self, document: Json) -> Json:
        """The lease with this process as its holder. Its times are for users only; no candidate compares them."""
        spec = dict(document.get("spec") or {})
        now = format_micro_time(self._api.now())
        if spec.get("holderIdentity") != self._identity:
            spec |= {"acquireTime": now, "leaseTransitions": (spec.get("leaseTransitions") or 0) + 1}
        spec |= {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": math.ceil(self._duration_seconds),
            "renewTime": now,
        }
        return document | {"spec": spec}

    def _pause(self) -> float:
        return self._retry_seconds * (0.8 + 0.2 * hash_fraction(f"{self._identity}#{self._renewed_at}"))
