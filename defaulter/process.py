"""A worker process as its parent sees it: started, asked, ended."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from defaulter import frames
from defaulter.frames import HEADER, MOST_BYTES
from defaulter.root_directories import environment

Answer = tuple[int, bytes]


class Worker:
    def __init__(self, process: Process) -> None:
        self._process = process

    async def tell(self, tag: int, body: bytes) -> None:
        """Raises `OSError` when it has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(frames.pack(tag, body))
            await self._process.stdin.drain()
        except RuntimeError as error:  # uvloop's word for a pipe that is closed
            raise BrokenPipeError(str(error)) from error

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


Start = Callable[[Path, dict[str, str]], Awaitable[Worker]]
"""a worker that lives below a directory, with what it inherits of the environment; raises OSError"""


async def started(root: Path, inherited: dict[str, str]) -> Worker:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "defaulter.worker"),
        stdin=PIPE,
        stdout=PIPE,
        env={**inherited, **environment(root)},
        start_new_session=True,
    )
    return Worker(process)
