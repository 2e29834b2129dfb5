"""An HTTP server with faults: a script decides every byte of its answers.

It writes HTTP without a library, which would not send half a chunk. A script is a coroutine function that gets each
request. If it does not answer, the connection closes.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from poolhouse.runtime.api import Api
from poolhouse.runtime.metrics import Metrics
from poolhouse.runtime.resource import Resource

THINGS = Resource("test.dev", "v1", "things", "Thing")


class Hangup(Exception):
    """Closes the connection after what was sent."""


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    at: float
    writer: asyncio.StreamWriter = field(repr=False)

    @property
    def watching(self) -> bool:
        return self.query.get("watch") == "true"

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    async def answer(self, code: int, body: Any = None, headers: dict[str, str] | None = None) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = {"Content-Type": "application/json", "Content-Length": str(len(raw))} | (headers or {})
        await self.raw(_head(code, head) + raw)

    async def begin(self) -> None:
        """Sends the head of a chunked answer."""
        await self.raw(_head(200, {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}))

    async def chunk(self, raw: bytes) -> None:
        await self.raw(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")

    async def event(self, kind: str, document: dict[str, Any]) -> None:
        await self.chunk(json.dumps({"type": kind, "object": document}).encode() + b"\n")

    async def end(self) -> None:
        await self.chunk(b"")

    async def raw(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()

    def reset(self) -> None:
        """Resets the connection."""
        self.writer.transport.abort()

    async def hang(self) -> None:
        await asyncio.Event().wait()


Script = Callable[[Request], Awaitable[None]]


async def silence(request: Request) -> None:
    await request.hang()


class Server:
    def __init__(self, *, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.port = port
        self.requests: list[Request] = []
        self._tls = tls
        self.script: Script = silence
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def lists(self) -> list[Request]:
        return [request for request in self.requests if request.method == "GET" and not request.watching]

    @property
    def watches(self) -> list[Request]:
        return [request for request in self.requests if request.watching]

    def most_in(self, seconds: float) -> int:
        """The largest number of requests in any interval of that length."""
        times = [request.at for request in self.requests]
        return max((sum(1 for t in times if start <= t < start + seconds) for start in times), default=0)

    async def connect(self, directory: Path, **options: Any) -> Api:
        kubeconfig = directory / "kubeconfig"
        kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [
                        {"name": "c", "cluster": {"server": self.url, "certificate-authority": "ca.crt"}},
                    ],
                    "users": [{"name": "u", "user": {"token": "ours"}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )
        given: dict[str, Any] = {"user_agent": "test", "identity": "test", "metrics": Metrics()}
        return await Api.connect(kubeconfig, **given | options)

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self.port, limit=2**24, ssl=self._tls, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stops listening and closes every connection."""
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._converse(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await _read(reader, writer)
                self.requests.append(request)
                await self.script(request)
        except (Hangup, asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    url = urlsplit(target)
    return Request(
        method, url.path, dict(parse_qsl(url.query)), headers, body, asyncio.get_running_loop().time(), writer
    )


def _head(code: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {code} Whatever", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


# Documents


def thing(name: str, version: int, **spec: Any) -> dict[str, Any]:
    metadata = {"namespace": "n", "name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "test.dev/v1", "kind": "Thing", "metadata": metadata, "spec": spec}


def things(version: int | str, *items: dict[str, Any], more: str = "") -> dict[str, Any]:
    metadata = {"resourceVersion": str(version)} | ({"continue": more} if more else {})
    return {"apiVersion": "test.dev/v1", "kind": "ThingList", "metadata": metadata, "items": list(items)}


def status(code: int, reason: str = "", message: str = "no", **details: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }


def bookmark(version: int) -> dict[str, Any]:
    return {"apiVersion": "test.dev/v1", "kind": "Thing", "metadata": {"resourceVersion": str(version)}}
