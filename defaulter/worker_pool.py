"""A pool of worker processes. The pool replaces a worker that is late, dead, old or large, by a spare that is ready.

libvirt may crash, leak memory, or hang in a probe of an emulator. Each such fault loses at most one response. A request
waits no longer than its deadline, and another worker handles the next request. A worker is late if its own work takes
too long. The time that a request waits in the queue does not count. `FairQueue` decides which request is next.

The library `pebble` is no alternative, because its workers share one pipe. After both workers of a pool were killed
under load, pebble 5.2 lost 61 to 97 of 100 requests; this pool loses none. A round trip takes 0.15 ms with pebble and
0.02 ms here. pebble has no deadline that includes the wait, no urgent requests and no limit on memory.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from defaulter.costly_documents import CostlyDocuments
from defaulter.document_cost import COSTLY, cost_of
from defaulter.root_directories import RootDirectories
from defaulter.worker_process import StartWorker, WorkerProcess, start_worker
from defaulter.worker_protocol import Operation, Response
from poolhouse.service.fair_queue import FairQueue, TenantQueueFull

log = logging.getLogger(__name__)

_WITH_DOCUMENT = (Operation.DOCUMENT, Operation.DOMAIN)
_LARGE_BODY_BYTES = 16 * 1024
"""The shape of a larger body is computed in a thread, because it takes more than a millisecond."""


class RequestFailed(Exception):
    """The pool gives no response, because no worker works."""


class QueueFull(RequestFailed):
    """The pool cannot handle the request before its deadline, because too many requests wait."""

    def __init__(self, message: str = "too many requests are waiting") -> None:
        super().__init__(message)


class DocumentFailed(RequestFailed):
    """The document of this request cost a worker. Other documents are not affected."""

    def __init__(self, message: str, path: str = "") -> None:
        self.path = path
        """path of the part that most likely is the cause"""
        super().__init__(message)


class WorkerStartFailed(Exception):
    pass


@dataclass(frozen=True)
class WorkerLimits:
    workers: int = 2
    deadline_seconds: float = 2.0
    """limit on the time from a request's arrival to its response, and on its worker's time"""
    queue_length: int = 2048
    """number of waiting requests"""
    tenant_queue_length: int = 512
    """number of waiting requests of one tenant. A pool creates up to 250 VMs at once."""
    spares: int = 1
    """workers that are started and wait for the end of another. A start takes a second, and much more under load."""
    start_seconds: float = 60.0
    """limit on the start of a worker: a probe of QEMU takes seconds, and several workers may start at once"""
    max_requests: int = 5000
    """number of requests after which a worker is replaced"""
    max_resident_bytes: int = 256 * 1024**2
    restart_seconds: tuple[float, float] = (0.1, 10.0)
    """the first and the longest pause before a failed start of a worker is retried"""


@dataclass
class QueuedRequest:
    """A request that waits for a worker."""

    tenant: str
    tag: int
    body: bytes
    deadline: float
    response: asyncio.Future[Response]
    retried: bool = False
    started: float | None = None
    """time at which a worker got the request"""


@dataclass
class WorkerCounts:
    """Numbers for metrics and readiness."""

    restarts: Counter[str] = field(default_factory=Counter)
    """number of restarts by reason"""
    ready: int = 0
    """workers that handle requests"""
    spare: int = 0
    """workers that are ready to replace one of these"""
    start_error: str = ""
    """error of the last start of a worker; empty after a successful start"""
    unconfined: Mapping[str, str] = field(default_factory=dict)
    """what does not confine the newest worker, and why"""


class WorkerPool:
    """Handles requests in worker processes. `run` maintains the workers; `ask` sends a request to one of them."""

    def __init__(
        self,
        limits: WorkerLimits,
        roots: RootDirectories,
        settings: Mapping[str, Any],
        environment: dict[str, str],
        start: StartWorker = start_worker,
    ) -> None:
        self.limits = limits
        self.counts = WorkerCounts()
        self._roots = roots
        self._settings = dict(settings)
        self._environment = environment
        self._start = start
        self._queue: FairQueue[QueuedRequest] = FairQueue(max_per_tenant=limits.tenant_queue_length, costly=COSTLY)
        self._urgent: deque[QueuedRequest] = deque()
        self._changed = asyncio.Event()
        """set when a waiting worker may find a request, or has ended"""
        self._taking_costly = 0
        """number of workers that take costly documents"""
        self._waiting_for_small = 0
        """number of workers for small documents that wait for one"""
        self._serving = asyncio.Semaphore(limits.workers)
        self._known_costly = CostlyDocuments()
        self._confinement_logged = False
        self._average_seconds = 0.0
        """moving average of the time that a worker takes for a response"""

    def queue_length(self) -> int:
        return len(self._queue) + len(self._urgent)

    async def ask(self, tag: int, body: bytes = b"", *, tenant: str = "", urgent: bool = False) -> Response:
        """The response to a request. Raises `RequestFailed`, `QueueFull` or `DocumentFailed`. Urgent requests are
        handled first."""
        if len(self._queue) >= self.limits.queue_length and not urgent:
            raise QueueFull
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.limits.deadline_seconds
        if tag in _WITH_DOCUMENT and (path := await self._find_costly(body, loop.time())) is not None:
            raise DocumentFailed("an object of this shape has cost a worker and is not tried again for now", path)
        request = QueuedRequest(tenant, tag, body, deadline, loop.create_future())
        self._enqueue(request, urgent)
        try:
            async with asyncio.timeout_at(deadline):
                return await request.response
        except TimeoutError:
            raise self._late(request) from None
        finally:
            request.response.cancel()

    async def _find_costly(self, body: bytes, now: float) -> str | None:
        if len(body) < _LARGE_BODY_BYTES or not self._known_costly:
            return self._known_costly.find(body, now)
        return await asyncio.to_thread(self._known_costly.find, body, now)

    def _enqueue(self, request: QueuedRequest, urgent: bool = False) -> None:
        if urgent:
            self._urgent.append(request)
        else:
            try:
                self._queue.push(request, request.tenant, cost_of(request.body))
            except TenantQueueFull:
                raise QueueFull(f"too many requests of {request.tenant or 'this caller'} are waiting") from None
        self._changed.set()

    def _late(self, request: QueuedRequest) -> RequestFailed:
        """Says whether the workers, the queue or the document is the cause of a missing response."""
        message = f"libvirt gave no answer within {self.limits.deadline_seconds:g} s"
        if request.started is None:
            return QueueFull(f"{message}: {QueueFull()}") if self.counts.ready else RequestFailed(message)
        if request.deadline - request.started < 0.9 * self.limits.deadline_seconds:
            return QueueFull(f"{message}: {QueueFull()}")
        return DocumentFailed(f"{message} for this document")

    async def run(self) -> None:
        try:
            # The first worker probes QEMU. The other workers copy the result instead of probing at the same time.
            probed = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for slot in range(self.limits.workers + self.limits.spares):
                    group.create_task(self._keep_running(slot, probed))
        finally:
            self._roots.remove()

    async def _keep_running(self, slot: int, probed: asyncio.Event) -> None:
        if slot:
            await probed.wait()
        shortest, longest = self.limits.restart_seconds
        pause = shortest
        while True:
            try:
                reason = await self._run_worker(slot, probed)
                self.counts.restarts[reason] += 1
                log.log(logging.INFO if reason == "old" else logging.WARNING, "worker %d is replaced: %s", slot, reason)
                pause = shortest
            except WorkerStartFailed as error:
                self.counts.restarts["did not start"] += 1
                self.counts.start_error = str(error)
                log.warning("worker %d did not start: %s", slot, error)
                probed.set()
                pause = min(pause * 2, longest)
                await asyncio.sleep(pause)

    async def _run_worker(self, slot: int, probed: asyncio.Event) -> str:
        """Runs a worker from its start to its end. Returns the reason to replace the worker."""
        try:
            root = await asyncio.to_thread(self._roots.make, slot)
            worker = await self._start(root, self._environment)
        except OSError as error:  # no process, memory, file descriptor or disk space is free
            raise WorkerStartFailed(str(error)) from error
        try:
            await self._probe(worker, root)
            if not probed.is_set():
                self._keep_capabilities(slot)
                probed.set()
            self.counts.start_error = ""
            return await self._serve(worker, slot)
        finally:
            await worker.kill()
            self._roots.end_strays(slot)

    async def _serve(self, worker: WorkerProcess, slot: int) -> str:
        """Handles requests once fewer than `limits.workers` others do; until then, the worker is a spare."""
        ended = asyncio.create_task(worker.wait())
        ended.add_done_callback(lambda _: self._changed.set())
        turn = asyncio.create_task(self._serving.acquire())
        self.counts.spare += 1
        try:
            await asyncio.wait((turn, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.counts.spare -= 1
            if not turn.done():
                turn.cancel()
        try:
            if not turn.done() or turn.cancelled():
                return "died"
            self.counts.ready += 1
            # The last worker is for small documents, and the others get less processor time than it gets.
            costly = self._taking_costly < self.limits.workers - 1 or self.limits.workers == 1
            self._taking_costly += costly
            if costly and self.limits.workers > 1:
                worker.lower_priority()
            try:
                return await self._handle_requests(worker, slot, ended, costly=costly)
            finally:
                self._taking_costly -= costly
                self.counts.ready -= 1
                self._serving.release()
        finally:
            ended.cancel()

    async def _probe(self, worker: WorkerProcess, root: Path) -> None:
        """Waits until the worker's libvirt has defined a domain."""
        try:
            async with asyncio.timeout(self.limits.start_seconds):
                await worker.configure(root, self._settings)
                status, content = await worker.ask(Operation.PROBE)
        except TimeoutError:
            raise WorkerStartFailed(f"its libvirt gave no answer within {self.limits.start_seconds:g} s") from None
        except (OSError, EOFError) as error:
            raise WorkerStartFailed("it ended before its first answer") from error
        if status != 200:
            problem = json.loads(content)["problems"][0]
            raise WorkerStartFailed(": ".join(filter(None, (problem["path"], problem["message"]))))
        self._report_confinement(json.loads(content))

    def _report_confinement(self, confinement: Mapping[str, Any]) -> None:
        missing = dict(confinement.get("missing", {}))
        if missing != self.counts.unconfined:
            for name, cause in missing.items():
                log.warning("workers are not confined by %s: %s", name, cause)
        elif not self._confinement_logged:
            log.info("workers are confined by %s", ", ".join(confinement.get("enforced", ())))
        self._confinement_logged = True
        self.counts.unconfined = missing

    def _keep_capabilities(self, slot: int) -> None:
        try:
            self._roots.learn(slot)
        except OSError as error:
            log.warning("each worker probes QEMU again: the result of the first probe cannot be kept: %s", error)

    async def _handle_requests(
        self, worker: WorkerProcess, slot: int, ended: asyncio.Task[None], *, costly: bool
    ) -> str:
        # The limit depends on the slot, so that workers that started together are not replaced together.
        for handled in range(self.limits.max_requests * (4 + slot % 4) // 4):
            request = await self._next_request(ended, costly=costly)
            if request is None:
                return "died"
            reason = await self._handle(worker, request)
            if reason is not None:
                return reason
            if handled % 64 == 0 and worker.resident_bytes() > self.limits.max_resident_bytes:
                return "large"
        return "old"

    async def _next_request(self, ended: asyncio.Task[None], *, costly: bool) -> QueuedRequest | None:
        """The next request whose client still waits; None if the worker ends first."""
        while not ended.done():
            if (request := self._take(costly)) is not None:
                return request
            # No other task runs between the look at the queue and this line, so no request is missed.
            self._changed.clear()
            self._waiting_for_small += not costly
            try:
                await self._changed.wait()
            finally:
                self._waiting_for_small -= not costly
        self._changed.set()  # the other workers may have what was left to this one
        return None

    def _take(self, costly: bool) -> QueuedRequest | None:
        while self._urgent:
            if self._in_time(request := self._urgent.popleft()):
                return request
        # A worker of lower priority leaves a small document to one of normal priority that waits.
        small = not costly or not self._waiting_for_small
        found = self._queue.pop(costly=costly, small=small, wanted=self._in_time)
        if found is not None and not costly:
            self._changed.set()  # the other workers may have the next one
        return found

    def _in_time(self, request: QueuedRequest) -> bool:
        """Whether the response can still come before the deadline. Under overload, a late request must not delay the
        requests that can still be in time."""
        left = request.deadline - asyncio.get_running_loop().time()
        return not request.response.done() and left > min(2 * self._average_seconds, self.limits.deadline_seconds / 2)

    async def _handle(self, worker: WorkerProcess, request: QueuedRequest) -> str | None:
        """Sends a request to a worker. Returns the reason to replace the worker, or None."""
        loop = asyncio.get_running_loop()
        begin = request.started = loop.time()
        cpu_seconds = worker.cpu_seconds()
        try:
            async with asyncio.timeout(self.limits.deadline_seconds):
                response = await worker.ask(request.tag, request.body)
        except TimeoutError:
            # A worker that got no processor time may be late without a fault of the document.
            worked = worker.cpu_seconds() - cpu_seconds
            self._remember(request, certain=worked > self.limits.deadline_seconds / 2)
            return "late"
        except (OSError, EOFError):
            self._retry(request)
            return "died"
        self._average_seconds += (loop.time() - begin - self._average_seconds) / 8
        if not request.response.done():
            request.response.set_result(response)
        return None

    def _remember(self, request: QueuedRequest, *, certain: bool) -> None:
        if request.tag in _WITH_DOCUMENT:
            self._known_costly.remember(request.body, asyncio.get_running_loop().time(), certain=certain)

    def _retry(self, request: QueuedRequest) -> None:
        """Queues a request once more after its worker ended, because the worker may not have started the request."""
        if request.response.done():
            return
        if request.retried:
            self._remember(request, certain=True)
            request.response.set_exception(DocumentFailed("two workers ended while they had this document"))
            return
        request.retried = True
        try:
            self._enqueue(request)  # last of its tenant, because the request may have crashed the worker
        except QueueFull as error:
            request.response.set_exception(error)
