"""A cable between a client and the API server that can be cut in the two ways cables are cut."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

import yaml


class Cable:
    def __init__(self, url: str) -> None:
        at = urlsplit(url)
        self._target = at.hostname or "", at.port or 443
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()

    def hold(self) -> None:
        """Nothing arrives any more, and nobody is told."""
        self._flowing.clear()

    def kubeconfig(self, original: Path, to: Path) -> Path:
        """The same credentials through this cable."""
        document = yaml.safe_load(original.read_text())
        for cluster in document["clusters"]:
            cluster["cluster"]["server"] = f"https://127.0.0.1:{self.port}"
        to.write_text(yaml.safe_dump(document))
        return to

    async def __aenter__(self) -> Cable:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._connect(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._carry(reader, far_writer))
                    group.create_task(self._carry(far_reader, writer))
            finally:
                far_writer.close()
                writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while raw := await reader.read(65536):
                await self._flowing.wait()
                writer.write(raw)
                await writer.drain()
            writer.write_eof() if writer.can_write_eof() else writer.close()
