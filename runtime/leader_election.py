"""One at a time: a Lease of coordination.k8s.io, held while work is done.

Two clocks never have to agree. A candidate waits for `duration_seconds` *of its own clock* after it saw the lease
change. The holder counts `renew_deadline_seconds` from the moment *before* it sent its last successful renewal. No
candidate can have seen that renewal any earlier, so when the holder cancels its work there are still `duration_seconds
- renew_deadline_seconds` in which nobody else can hold the lease, and the work has that long to end. Whatever the API
server does (refuse, reset, hang) only delays a renewal; the holder's clock runs all the same.

What it can't see is a process that stands still as a whole (SIGSTOP, a suspended laptop). Against that a write needs
its own guard: a resourceVersion or a UID.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

from runtime.api import Api
from runtime.backoff import Backoff, hash_fraction
from runtime.errors import ApiError, Conflict, NotFound
from runtime.resource import Resource

log = logging.getLogger(__name__)

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")


class LeaseLost(Exception):
    """The lease could not be renewed in time, or is another's. The work was cancelled and has ended."""


def _die() -> NoReturn:
    logging.shutdown()
    os._exit(1)


@dataclass(frozen=True)
class ObservedLease:
    """A lease as it was when it last changed, and when that was by our clock."""

    version: str
    holder: str
    duration_seconds: float
    at: float

    def free(self, now: float) -> bool:
        return not self.holder or now >= self.at + self.duration_seconds


class LeaderElector:
    """`identity` must be no other living process's. One that comes back with the same identity after a crash has the
    lease at once; with a new one it waits until the old one's time is over."""

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
        last_resort: Callable[[], object] = _die,
    ) -> None:
        """`last_resort` is called when cancelled work has not ended and the lease is about to be free for others. It
        ends the process: work that can't be stopped would be done twice, and that is worse than not being done."""
        if not retry_seconds < renew_deadline_seconds < duration_seconds:
            raise ValueError("a lease needs retry_seconds < renew_deadline_seconds < duration_seconds")
        self._api = api.urgent  # not in a queue behind a thousand creates
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._duration_seconds = duration_seconds
        self._renew_deadline_seconds = renew_deadline_seconds
        self._retry_seconds = retry_seconds
        # An attempt that hangs leaves time for another: it may be its connection that is dead, not the server.
        self._attempt_seconds = renew_deadline_seconds / 3
        self._last_resort = last_resort
        self._document: dict[str, Any] = {}
        self._seen: ObservedLease | None = None
        self._renewed_at = 0.0
        self._leading = api.metrics.leading.labels(name)

    @property
    def holder(self) -> str:
        """Who held it when it was last looked at."""
        return self._seen.holder if self._seen else ""

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Waits until the lease is ours, works while it is, and gives it back.

        Returns when the work returns; raises what it raises, and LeaseLost when the lease was lost. In every case the
        work has ended by then, and it was cancelled before another could hold the lease. Beginning again is the
        caller's choice.
        """
        await self._acquire()

        async def body() -> None:
            await work()

        working = asyncio.create_task(body(), name=f"lease-{self._name}-work")
        keeping = asyncio.create_task(self._keep(), name=f"lease-{self._name}")
        self._leading.set(1)
        try:
            await asyncio.wait({working, keeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # The one place where work ends: it is done, the lease is lost, or we are cancelled.
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
            raise LeaseLost(f"lease {self._name}: lost; it was last seen held by {self.holder!r}") from reason
        await working

    async def _until_ended(self, working: asyncio.Task[None], keeping: asyncio.Task[None]) -> None:
        """Work that takes time to end keeps the lease meanwhile, as long as it can be kept."""
        loop = asyncio.get_running_loop()
        spare = (self._duration_seconds - self._renew_deadline_seconds) / 5
        while not working.done():
            left = None
            if keeping.done():
                left = self._renewed_at + self._duration_seconds - spare - loop.time()
                if left <= 0:
                    log.critical("lease %s: lost, and the work does not end", self._name)
                    self._last_resort()
                    return
            await asyncio.wait(
                {working} if keeping.done() else {working, keeping},
                timeout=left,
                return_when=asyncio.FIRST_COMPLETED,
            )

    # Acquiring

    async def _acquire(self) -> None:
        pauses = Backoff(self._retry_seconds, max(self._retry_seconds, 15.0))
        failures = 0
        while True:
            try:
                async with asyncio.timeout(self._attempt_seconds):
                    if await self._take():
                        log.info("lease %s: held by us, %s", self._name, self._identity)
                        return
                failures = 0
            except Conflict:
                failures = 0  # another candidate was faster
            except (ApiError, TimeoutError) as error:
                failures += 1
                log.warning("lease %s: cannot be had: %s", self._name, str(error) or "no answer in time")
            await asyncio.sleep(max(self._pause(), pauses.delay(failures, self._identity)))

    async def _take(self) -> bool:
        """One attempt; whether it is ours now."""
        loop = asyncio.get_running_loop()
        try:
            document = await self._api.get(LEASES, self._namespace, self._name)
        except NotFound:
            began = loop.time()
            fresh = {"metadata": {"namespace": self._namespace, "name": self._name}, "spec": {}}
            self._ours(await self._api.create(LEASES, self._record(fresh)), began)
            return True
        seen = self._look(document)
        if seen.holder != self._identity and not seen.free(loop.time()):
            return False
        began = loop.time()
        self._ours(await self._api.replace(LEASES, self._record(document)), began)
        return True

    def _look(self, document: dict[str, Any]) -> ObservedLease:
        version, spec = document["metadata"]["resourceVersion"], document.get("spec") or {}
        if self._seen is None or self._seen.version != version:
            holder, seconds = spec.get("holderIdentity") or "", float(spec.get("leaseDurationSeconds") or 0)
            self._seen = ObservedLease(version, holder, seconds, asyncio.get_running_loop().time())
        return self._seen

    # Keeping

    async def _keep(self) -> None:
        """Renews for as long as it can be done in time; returns when the lease is not surely ours any more."""
        try:
            async with asyncio.timeout_at(self._renewed_at + self._renew_deadline_seconds) as deadline:
                while True:
                    await asyncio.sleep(self._pause())
                    try:
                        async with asyncio.timeout(self._attempt_seconds):
                            ours = await self._renew()
                    except (ApiError, TimeoutError) as error:
                        log.warning("lease %s: not renewed: %s", self._name, str(error) or "no answer in time")
                        continue
                    if not ours:
                        log.error("lease %s: taken from us by %r", self._name, self.holder)
                        return
                    deadline.reschedule(self._renewed_at + self._renew_deadline_seconds)
        except TimeoutError:
            log.error("lease %s: not renewed for %.0f s", self._name, self._renew_deadline_seconds)

    async def _renew(self) -> bool:
        """One attempt; False when the lease is another's, or was deleted and may be any moment."""
        try:
            return await self._write(self._record(self._document))
        except NotFound:
            return False
        except Conflict:
            # Perhaps our own: an earlier renewal whose answer never came.
            self._document = await self._api.get(LEASES, self._namespace, self._name)
            if self._look(self._document).holder != self._identity:
                return False
            return await self._write(self._record(self._document))

    async def _write(self, document: dict[str, Any]) -> bool:
        began = asyncio.get_running_loop().time()
        self._ours(await self._api.replace(LEASES, document), began)
        return True

    async def _release(self) -> None:
        """Makes it free now rather than when its time is over. Not to be called before the work has ended."""
        try:
            async with asyncio.timeout(self._attempt_seconds):
                self._document = await self._api.get(LEASES, self._namespace, self._name)
                if self._look(self._document).holder == self._identity:
                    spec = self._document["spec"] | {"holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._api.replace(LEASES, self._document | {"spec": spec})
                    log.info("lease %s: given back", self._name)
        except (ApiError, TimeoutError) as error:
            log.warning("lease %s: not given back, it will run out: %s", self._name, str(error) or "no answer in time")

    def _ours(self, document: dict[str, Any], began: float) -> None:
        self._document = document
        self._renewed_at = began
        self._look(document)

    def _record(self, document: dict[str, Any]) -> dict[str, Any]:
        """The lease with us as its holder. Its times are for people: nobody compares them with a clock."""
        spec = dict(document.get("spec") or {})
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
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
