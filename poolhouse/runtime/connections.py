"""Sends writes over connections that stay open: HTTP/1.1 without what a request to an API server does not need.

aiohttp takes ten times the processor time for a small write, and a claim is three of them. It is still used for what is
long or rare: lists, watches, websockets, and all requests through a proxy.
"""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast
from urllib.parse import SplitResult, urlsplit

from multidict import CIMultiDict

KEEP_ALIVE_SECONDS = 60.0
"""Less than the 90 s after which an API server closes an idle connection: a write on a closed one has no answer."""
MAX_HEAD_BYTES = 64 * 1024
END = b"\r\n\r\n"

Header = tuple[str, str]


class NoAnswer(ConnectionError):
    """A connection that gave no complete answer."""


class UntrustedServer(NoAnswer):
    """The server has no certificate of the configured authority."""


@dataclass
class Answer:
    status: int
    headers: CIMultiDict[str]
    keeps_open: bool
    """whether another request may follow on the connection"""
    body: bytes = b""


class Connection(asyncio.Protocol):
    """One connection, with one request at a time."""

    idle_since = 0.0

    def __init__(self) -> None:
        self._received = bytearray()
        self._head: Answer | None = None
        self._waiting: asyncio.Future[Answer] | None = None

    async def exchange(self, request: bytes) -> Answer:
        """Sends a request. Without a complete answer, the connection is closed."""
        if self.closing:
            raise NoAnswer("the connection was closed before the request")
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            answer = await self._waiting
        except BaseException:
            self.close()
            raise
        if not answer.keeps_open:
            self.close()
        return answer

    def close(self) -> None:
        self._transport.abort()

    @property
    def closing(self) -> bool:
        return self._transport.is_closing()

    # The methods of a protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._waiting is None or self._waiting.done():  # an answer to no request
            self.close()
            return
        self._received += data
        self._read(ended=False)

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._read(ended=True)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(NoAnswer(str(error or "the connection was closed before the answer")))

    def _read(self, *, ended: bool) -> None:
        assert self._waiting is not None
        try:
            if self._head is None:
                self._head = take_head(self._received)
            if self._head is None or not take_body(self._received, self._head, ended=ended):
                return
        except ValueError as error:
            self._waiting.set_exception(NoAnswer(f"an invalid answer: {error}"))
        else:
            self._waiting.set_result(self._head)
            self._head = None


def take_head(received: bytearray) -> Answer | None:
    """Takes the head of an answer out of what was received; None before its end. Raises ValueError."""
    while True:
        end = received.find(END)
        if received[:7] != b"HTTP/1."[: len(received)] or (len(received) if end < 0 else end) > MAX_HEAD_BYTES:
            raise ValueError(f"no head of HTTP/1: {bytes(received[:100])!r}")
        if end < 0:
            return None
        first, *lines = received[:end].decode("latin-1").split("\r\n")
        del received[: end + len(END)]
        status = int(first[9:12])
        if status >= 200:  # otherwise the head of the answer follows
            pairs = (line.partition(":") for line in lines)
            headers = CIMultiDict((name, value.strip()) for name, _, value in pairs)
            closes = first.startswith("HTTP/1.0") or headers.get("Connection", "").lower() == "close"
            return Answer(status, headers, keeps_open=not closes)


def take_body(received: bytearray, answer: Answer, *, ended: bool) -> bool:
    """Takes the body of the answer out of what was received. False before its end. Raises ValueError."""
    headers = answer.headers
    if answer.status in (204, 304):
        length = 0
    elif headers.get("Transfer-Encoding", "").lower() == "chunked":
        # A body may end like this before its last chunk.
        body = _chunks(received) if received.endswith(END) else None
        if body is None:
            return False
        received.clear()
        answer.body = body
        return True
    elif "Content-Length" in headers:
        length = int(headers["Content-Length"])
    else:
        answer.keeps_open = False
        if not ended:
            return False
        length = len(received)
    if len(received) < length:
        return False
    answer.body = bytes(received[:length])
    answer.keeps_open = answer.keeps_open and len(received) == length
    received.clear()
    return True


def _chunks(received: bytearray) -> bytes | None:
    chunks: list[bytes] = []
    at = 0
    while (end := received.find(b"\r\n", at)) >= 0:
        size = int(received[at:end].partition(b";")[0], 16)
        if size < 0:
            raise ValueError(f"a chunk of {size} bytes")
        if not size:
            return b"".join(chunks)
        at = end + 2 + size + 2
        if at > len(received):
            return None
        chunks.append(bytes(received[end + 2 : at - 2]))
    return None


class Connections:
    """The open connections of a process that have no request."""

    def __init__(self, user_agent: str) -> None:
        self._headers: Sequence[Header] = (("User-Agent", user_agent), ("Accept", "application/json, */*"))
        self._idle: dict[tuple[str, ssl.SSLContext, str | None], list[Connection]] = {}
        """by server, TLS context and name in the certificate, the longest idle first"""

    async def send(
        self,
        method: str,
        server: str,
        target: str,
        *,
        tls: ssl.SSLContext,
        server_name: str | None,
        headers: Sequence[Header],
        body: bytes,
    ) -> Answer:
        """Sends a request once. `server` is a URL, which may have a path, and `tls` is only for https. Raises OSError
        without an answer; the server may have executed the request."""
        key = server, tls, server_name
        url = urlsplit(server)
        length = ("Content-Length", str(len(body)))
        head = head_of(method, url.path + target, (("Host", url.netloc), *self._headers, *headers, length))
        connection = self._take(key) or await _connect(url, tls, server_name)
        answer = await connection.exchange(head + body)
        if not connection.closing:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.setdefault(key, []).append(connection)
        return answer

    def close(self) -> None:
        for idle in self._idle.values():
            for each in idle:
                each.close()
        self._idle.clear()

    def _take(self, key: tuple[str, ssl.SSLContext, str | None]) -> Connection | None:
        """The connection that was used last: the others become too old, so that a burst leaves no connections."""
        idle, now = self._idle.get(key, []), asyncio.get_running_loop().time()
        while idle and now - idle[0].idle_since > KEEP_ALIVE_SECONDS:
            idle.pop(0).close()
        while idle:
            if not (found := idle.pop()).closing:
                return found
        # Other servers and TLS contexts are those of earlier credentials.
        for each in [each for each, others in self._idle.items() if not others]:
            del self._idle[each]
        return None


def head_of(method: str, target: str, headers: Sequence[Header]) -> bytes:
    """Raises ValueError for a value that would end its line."""
    lines = f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)
    head = "\r\n".join(lines)
    if not head.count("\r") == head.count("\n") == len(lines) - 1 or "\0" in head:
        raise ValueError(f"{method} {target}: a header has a line break")
    return head.encode() + END


async def _connect(url: SplitResult, tls: ssl.SSLContext, server_name: str | None) -> Connection:
    host = url.hostname or ""
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        _, connection = await asyncio.get_running_loop().create_connection(
            Connection,
            host,
            port,
            ssl=tls if url.scheme == "https" else None,
            server_hostname=(server_name or host) if url.scheme == "https" else None,
        )
    except ssl.CertificateError as error:
        raise UntrustedServer(f"cannot connect to {host}:{port}: {cause(error)}") from error
    except OSError as error:
        raise NoAnswer(f"cannot connect to {host}:{port}: {cause(error)}") from error
    return connection


def cause(error: Exception) -> str:
    """A readable cause. aiohttp's messages are readable for DNS and TLS errors, but not for refused connections."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno in errno.errorcode:
        return os.strerror(error.errno or 0)
    return getattr(error, "strerror", None) or str(error)
