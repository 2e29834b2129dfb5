"""Starts worker processes, sends requests to them, and kills them."""

import asyncio
import json
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from defaulter.errors import LibvirtUnavailable
from defaulter.root_directories import RootDirectories, environment
from defaulter.worker_protocol import HEADER, MAX_MESSAGE_BYTES, Operation, Response, pack

_PROCESS_CLOCK = 2
"""makes the number of a clock from the complement of a process id, like clock_getcpuclockid(3) on Linux"""
LOW_PRIORITY = 5
"""nice value: a process that competes with others of normal priority gets a third of the time of one of them"""


class WorkerProcess:
    def __init__(self, process: Process) -> None:
        self._process = process

    async def configure(self, root: Path, settings: dict[str, Any]) -> None:
        """Sends the settings that a worker waits for. Raises OSError if the worker has ended."""
        body = json.dumps({**settings, "root": str(root), "parent": os.getpid()}).encode()
        await self._send(Operation.SETTINGS, body)

    async def ask(self, tag: int, body: bytes = b"") -> Response:
        """The worker's response. Raises OSError or EOFError if the worker has ended."""
        await self._send(tag, body)
        assert self._process.stdout is not None
        status, length = HEADER.unpack(await self._process.stdout.readexactly(HEADER.size))
        if length > MAX_MESSAGE_BYTES:
            raise EOFError
        return status, await self._process.stdout.readexactly(length)

    async def _send(self, tag: int, body: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(pack(tag, body))
            await self._process.stdin.drain()
        except RuntimeError as error:  # uvloop's error for a closed pipe
            raise BrokenPipeError(str(error)) from error

    async def wait(self) -> None:
        await self._process.wait()

    def lower_priority(self) -> None:
        """Lets other processes of this machine or container go first. It cannot be undone without privileges."""
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self._process.pid, LOW_PRIORITY)

    def resident_bytes(self) -> int:
        with suppress(OSError, ValueError, IndexError):
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE")
        return 0

    def cpu_seconds(self) -> float:
        """The processor time that the worker has used; 0 if it has ended."""
        with suppress(OSError):
            return time.clock_gettime(~self._process.pid << 3 | _PROCESS_CLOCK)
        return 0.0

    @property
    def pid(self) -> int:
        return self._process.pid

    async def kill(self) -> None:
        """Kills the processes of the worker's session, even if the worker is stopped or hangs."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()  # else Python warns if the event loop ends before the pipe


StartWorker = Callable[[Path, dict[str, str]], Awaitable[WorkerProcess]]
"""type of a function that starts a worker with a root directory and environment variables, or raises OSError"""


async def start_worker(root: Path, inherited: dict[str, str], *, stderr: int | None = None) -> WorkerProcess:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "defaulter.worker"),
        stdin=PIPE,
        stdout=PIPE,
        stderr=stderr,
        env={**inherited, **environment(root)},
        start_new_session=True,
    )
    return WorkerProcess(process)


class SingleWorker:
    """One worker without a service, for a command: `with SingleWorker(...) as worker: worker.ask(Request.PROBE)`."""

    def __init__(
        self, overrides: Mapping[str, Any], seed: str, user: tuple[int | None, int | None], warm: Path | None
    ) -> None:
        self._roots = RootDirectories(None, *user, warm=warm)
        self.root = self._roots.make(0)
        self._settings = {"uid": user[0], "gid": user[1], "seed": seed, "overrides": {**overrides}}
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        run = self._runner.run
        self._worker = run(start_worker(self.root, dict(os.environ), stderr=asyncio.subprocess.DEVNULL))
        try:
            with suppress(OSError):
                run(self._worker.configure(self.root, self._settings))
            self.ask(Operation.PROBE, seconds=60)
        except BaseException:
            self.close()
            raise
        with suppress(OSError):
            self._roots.learn(0)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._worker.pid

    def close(self) -> None:
        self._runner.run(self._worker.kill())
        self._runner.close()
        self._roots.end_strays(0)
        self._roots.remove()

    def ask(self, tag: int, body: bytes = b"", seconds: float = 10) -> Response:
        """The worker's response. Raises `LibvirtUnavailable` if libvirt is late or not installed."""
        try:
            return self._runner.run(asyncio.wait_for(self._worker.ask(tag, body), seconds))
        except TimeoutError:
            raise LibvirtUnavailable("libvirt does not answer") from None
        except (OSError, EOFError):
            raise LibvirtUnavailable("libvirt cannot be started here") from None
