"""Keeps a few worker processes, gives each a request at a time, and replaces those that are late, dead, old or large.

libvirt may hang for ever in a probe of an emulator, crash, or leak. All of that must cost one answer: a request waits
no longer than its deadline, whatever its worker does, and the next one finds another worker.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from defaulter import frames
from defaulter.frames import HEADER, MOST_BYTES
from defaulter.roots import Roots, environment

log = logging.getLogger(__name__)

Answer = tuple[int, bytes]


class Busy(Exception):
    """More requests wait than can be answered in time."""


class Lost(Exception):
    """This request has no answer; the next one may."""


@dataclass(frozen=True)
class Limits:
    workers: int = 2
    deadline_seconds: float = 2.0
    """from a request's arrival to its answer, waiting for a worker included"""
    waiting: int = 512
    start_seconds: float = 60.0
    """a first probe of QEMU takes seconds, and many start at once on a busy machine"""
    answers: int = 5000
    """after which a worker is replaced"""
    resident_bytes: int = 256 * 1024**2
    restart_seconds: tuple[float, float] = (0.1, 10.0)
    """the pause before a worker that does not come up is tried again, and its bound"""


@dataclass
class Job:
    tag: int
    body: bytes
    until: float
    done: asyncio.Future[Answer]
    tries: int = 0


@dataclass
class Counts:
    """What the service says about its workers."""

    restarts: dict[str, int] = field(default_factory=dict)
    ready: int = 0

    def restart(self, reason: str) -> None:
        self.restarts[reason] = self.restarts.get(reason, 0) + 1


class Workers:
    """`run()` keeps them until it is cancelled; `ask()` ends in an answer, `Busy` or `Lost` within the deadline."""

    def __init__(self, limits: Limits, roots: Roots, arguments: Mapping[str, Any], environment: dict[str, str]) -> None:
        self.limits = limits
        self.counts = Counts()
        self._roots = roots
        self._arguments = arguments
        self._environment = environment
        self._jobs: asyncio.Queue[Job] = asyncio.Queue(limits.waiting)

    def waiting(self) -> int:
        return self._jobs.qsize()

    async def ask(self, tag: int, body: bytes = b"") -> Answer:
        loop = asyncio.get_running_loop()
        job = Job(tag, body, loop.time() + self.limits.deadline_seconds, loop.create_future())
        try:
            self._jobs.put_nowait(job)
        except asyncio.QueueFull:
            raise Busy from None
        try:
            async with asyncio.timeout_at(job.until):
                return await job.done
        except TimeoutError:
            raise Lost(f"libvirt gave no answer within {self.limits.deadline_seconds:g} s") from None
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
            reason = await self._life(slot, first)
            self.counts.restart(reason)
            log.log(logging.INFO if reason == "old" else logging.WARNING, "worker %d is replaced: %s", slot, reason)
            pause = min(pause * 2, longest) if reason == "did not start" else shortest
            if reason == "did not start":
                first.set()
                await asyncio.sleep(pause)

    async def _life(self, slot: int, first: asyncio.Event) -> str:
        """One worker from its start to its end, and why it ended."""
        root = await asyncio.to_thread(self._roots.make, slot)
        worker = Worker(await self._spawn(root))
        try:
            try:
                async with asyncio.timeout(self.limits.start_seconds):
                    await worker.tell(frames.SETTINGS, self._settings(root))
                    status, _ = await worker.ask(frames.PROBE, b"")
            except (TimeoutError, OSError, EOFError):
                return "did not start"
            if status != 200:
                return "did not start"
            if not first.is_set():
                self._roots.learn(slot)
                first.set()
            self.counts.ready += 1
            try:
                return await self._work(worker, slot)
            finally:
                self.counts.ready -= 1
        finally:
            await worker.kill()
            self._roots.end_strays(slot)

    async def _work(self, worker: Worker, slot: int) -> str:
        ended = asyncio.create_task(worker.ended())
        try:
            # Workers that started together do not all grow old together.
            for count in range(self.limits.answers * (4 + slot % 4) // 4):
                job = await self._next(ended)
                if job is None:
                    return "died"
                reason = await self._give(worker, job)
                if reason is not None:
                    return reason
                if count % 64 == 0 and worker.resident_bytes() > self.limits.resident_bytes:
                    return "large"
            return "old"
        finally:
            ended.cancel()

    async def _next(self, ended: asyncio.Task[None]) -> Job | None:
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
            if not taken.result().done.done():
                return taken.result()

    async def _give(self, worker: Worker, job: Job) -> str | None:
        """Gives a request to a worker; a reason to replace the worker, or None."""
        try:
            async with asyncio.timeout_at(job.until):
                answer = await worker.ask(job.tag, job.body)
        except TimeoutError:
            return "late"
        except (OSError, EOFError):
            self._return(job)
            return "died"
        if not job.done.done():
            job.done.set_result(answer)
        return None

    def _return(self, job: Job) -> None:
        """A worker that died may not have begun with this request: another gets it, once."""
        job.tries += 1
        if job.done.done():
            return
        if job.tries < 2 and not self._jobs.full():
            self._jobs.put_nowait(job)
        else:
            job.done.set_exception(Lost("the worker that had this request ended"))

    def _settings(self, root: Path) -> bytes:
        return json.dumps({**self._arguments, "root": str(root), "parent": os.getpid()}).encode()

    async def _spawn(self, root: Path) -> Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "defaulter.worker"),
            stdin=PIPE,
            stdout=PIPE,
            env={**self._environment, **environment(root)},
            start_new_session=True,
        )


class Worker:
    """A worker process as its parent sees it."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def tell(self, tag: int, body: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(frames.pack(tag, body))
        await self._process.stdin.drain()

    async def ask(self, tag: int, body: bytes) -> Answer:
        await self.tell(tag, body)
        assert self._process.stdout is not None
        status, length = HEADER.unpack(await self._process.stdout.readexactly(HEADER.size))
        if length > MOST_BYTES:
            raise EOFError
        return status, await self._process.stdout.readexactly(length)

    async def ended(self) -> None:
        await self._process.wait()

    def resident_bytes(self) -> int:
        with suppress(OSError, ValueError, IndexError):
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE")
        return 0

    async def kill(self) -> None:
        """Ends it and what it started in its session, stopped or hung as it may be."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
