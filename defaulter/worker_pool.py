"""Keeps a few worker processes, gives each a request at a time, and replaces those that are late, dead, old or large.

libvirt may hang for ever in a probe of an emulator, crash, or leak. All of that must cost one answer: a request waits
no longer than its deadline, whatever its worker does, and the next one finds another worker. A worker is judged by the
time that it has had itself: under a load that makes requests wait, it is the requests that are late.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from defaulter import frames
from defaulter.process import Answer, Start, Worker, started
from defaulter.root_directories import RootDirectories

log = logging.getLogger(__name__)


class QueueFull(Exception):
    """More requests wait than can be answered in time."""


class RequestFailed(Exception):
    """This request has no answer; the next one may."""


class WorkerStartFailed(Exception):
    """A worker did not come up; the sentence says why."""


@dataclass(frozen=True)
class WorkerLimits:
    workers: int = 2
    deadline_seconds: float = 2.0
    """from a request's arrival to its answer, waiting for a worker included; also the most that a worker may take"""
    waiting: int = 512
    start_seconds: float = 60.0
    """a first probe of QEMU takes seconds, and many start at once on a busy machine"""
    answers: int = 5000
    """after which a worker is replaced"""
    resident_bytes: int = 256 * 1024**2
    restart_seconds: tuple[float, float] = (0.1, 10.0)
    """the pause before a worker that does not come up is tried again, and its bound"""


@dataclass
class QueuedRequest:
    """A request that waits. Those that are urgent come first, others in their order."""

    urgent: bool
    number: int
    tag: int
    body: bytes
    until: float
    done: asyncio.Future[Answer]
    tries: int = 0

    def __lt__(self, other: QueuedRequest) -> bool:
        return (not self.urgent, self.number) < (not other.urgent, other.number)


@dataclass
class WorkerCounts:
    """What the service says about its workers."""

    restarts: dict[str, int] = field(default_factory=dict)
    ready: int = 0
    trouble: str = ""
    """why the last worker that was started did not come up; empty as soon as one did"""

    def restart(self, reason: str) -> None:
        self.restarts[reason] = self.restarts.get(reason, 0) + 1


class WorkerPool:
    """`run()` keeps them until it is cancelled; `ask()` ends in an answer, `Busy` or `Lost` within the deadline."""

    def __init__(
        self,
        limits: WorkerLimits,
        roots: RootDirectories,
        arguments: Mapping[str, Any],
        environment: dict[str, str],
        start: Start = started,
    ) -> None:
        self.limits = limits
        self.counts = WorkerCounts()
        self._roots = roots
        self._arguments = arguments
        self._environment = environment
        self._start = start
        self._jobs: asyncio.PriorityQueue[QueuedRequest] = asyncio.PriorityQueue()
        self._numbers = count()
        self._usual_seconds = 0.0
        """that an answer takes its worker, of late"""

    def waiting(self) -> int:
        return self._jobs.qsize()

    async def ask(self, tag: int, body: bytes = b"", *, urgent: bool = False) -> Answer:
        """An urgent request waits for a worker, but for no other request."""
        if self._jobs.qsize() >= self.limits.waiting and not urgent:
            raise QueueFull
        loop = asyncio.get_running_loop()
        until = loop.time() + self.limits.deadline_seconds
        job = QueuedRequest(urgent, next(self._numbers), tag, body, until, loop.create_future())
        self._jobs.put_nowait(job)
        try:
            async with asyncio.timeout_at(job.until):
                return await job.done
        except TimeoutError:
            raise RequestFailed(f"libvirt gave no answer within {self.limits.deadline_seconds:g} s") from None
        finally:
            job.done.cancel()

    async def run(self) -> None:
        try:
            # The first finds out what QEMU can do; the others copy that instead of probing all at once.
            first = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for slot in range(self.limits.workers):
                    group.create_task(self._keep(slot, first))
        finally:
            self._roots.remove()

    async def _keep(self, slot: int, first: asyncio.Event) -> None:
        if slot:
            await first.wait()
        shortest, longest = self.limits.restart_seconds
        pause = shortest
        while True:
            try:
                reason = await self._life(slot, first)
                self.counts.restart(reason)
                log.log(logging.INFO if reason == "old" else logging.WARNING, "worker %d is replaced: %s", slot, reason)
                pause = shortest
            except WorkerStartFailed as error:
                self.counts.restart("did not start")
                self.counts.trouble = str(error)
                log.warning("worker %d did not start: %s", slot, error)
                first.set()
                pause = min(pause * 2, longest)
                await asyncio.sleep(pause)

    async def _life(self, slot: int, first: asyncio.Event) -> str:
        """One worker from its start to its end, and why it ended."""
        try:
            root = await asyncio.to_thread(self._roots.make, slot)
            worker = await self._start(root, self._environment)
        except OSError as error:  # no process, memory, file or room for it, just now
            raise WorkerStartFailed(str(error)) from error
        try:
            await self._begin(worker, root)
            if not first.is_set():
                self._learn(slot)
                first.set()
            self.counts.trouble = ""
            self.counts.ready += 1
            try:
                return await self._work(worker, slot)
            finally:
                self.counts.ready -= 1
        finally:
            await worker.kill()
            self._roots.end_strays(slot)

    async def _begin(self, worker: Worker, root: Path) -> None:
        """Returns when its libvirt has defined a domain."""
        try:
            async with asyncio.timeout(self.limits.start_seconds):
                await worker.tell(frames.SETTINGS, self._settings(root))
                status, content = await worker.ask(frames.PROBE, b"")
        except TimeoutError:
            raise WorkerStartFailed(f"its libvirt gave no answer within {self.limits.start_seconds:g} s") from None
        except (OSError, EOFError) as error:
            raise WorkerStartFailed("it ended before its first answer") from error
        if status != 200:
            raise WorkerStartFailed(_sentence(content))

    def _learn(self, slot: int) -> None:
        try:
            self._roots.learn(slot)
        except OSError as error:
            log.warning("what QEMU can do is found out anew by each worker: %s", error)

    async def _work(self, worker: Worker, slot: int) -> str:
        ended = asyncio.create_task(worker.ended())
        try:
            # Workers that started together do not all grow old together.
            for answered in range(self.limits.answers * (4 + slot % 4) // 4):
                job = await self._next(ended)
                if job is None:
                    return "died"
                reason = await self._give(worker, job)
                if reason is not None:
                    return reason
                if answered % 64 == 0 and worker.resident_bytes() > self.limits.resident_bytes:
                    return "large"
            return "old"
        finally:
            ended.cancel()

    async def _next(self, ended: asyncio.Task[None]) -> QueuedRequest | None:
        """The next request that someone still waits for; None when the worker is gone before there is one."""
        while True:
            taken = asyncio.create_task(self._jobs.get())
            try:
                await asyncio.wait((taken, ended), return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not taken.done():
                    taken.cancel()
            if taken.cancelled() or not taken.done():
                return None
            if self._in_time(taken.result()):
                return taken.result()

    def _in_time(self, job: QueuedRequest) -> bool:
        """Whether somebody waits for it and still would at its end: when there are more requests than can be answered
        in time, an answer that comes too late takes the place of one that would not."""
        left = job.until - asyncio.get_running_loop().time()
        return not job.done.done() and left > min(2 * self._usual_seconds, self.limits.deadline_seconds / 2)

    async def _give(self, worker: Worker, job: QueuedRequest) -> str | None:
        """Gives a request to a worker; a reason to replace the worker, or None."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with asyncio.timeout(self.limits.deadline_seconds):
                answer = await worker.ask(job.tag, job.body)
        except TimeoutError:
            return "late"
        except (OSError, EOFError):
            self._return(job)
            return "died"
        self._usual_seconds += (loop.time() - begun - self._usual_seconds) / 8
        if not job.done.done():
            job.done.set_result(answer)
        return None

    def _return(self, job: QueuedRequest) -> None:
        """A worker that died may not have begun with this request: another gets it, once."""
        job.tries += 1
        if job.done.done():
            return
        if job.tries < 2:
            job.number = next(self._numbers)  # behind the others: the next worker may be about to die of the same
            self._jobs.put_nowait(job)
        else:
            job.done.set_exception(RequestFailed("the worker that had this request ended"))

    def _settings(self, root: Path) -> bytes:
        return json.dumps({**self._arguments, "root": str(root), "parent": os.getpid()}).encode()


def _sentence(content: bytes) -> str:
    """The first problem of an answer that is not 200."""
    problem = json.loads(content)["problems"][0]
    return f"{problem['path']}: {problem['message']}" if problem["path"] else str(problem["message"])
