"""Sends POST requests to another service of Poolhouse, over connections that stay open.

A request takes a tenth of the processor time that it takes with aiohttp, which took a sixth of that of a review
(docs/performance.md). The client knows no redirects, cookies, proxies or compressed bodies, which no service sends.
httptools parses the responses, as it parses the requests of uvicorn.
"""

import asyncio
from collections.abc import Mapping
from ssl import SSLContext
from typing import Self, cast
from urllib.parse import urlsplit

import httptools

MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_CONNECTIONS = 1024
"""More than an API server sends at once, because a request that waits here is not in the defaulter's fair queue."""
IDLE_SECONDS = 60.0
"""Shorter than the time after which the services close an idle connection."""


class NoResponse(Exception):
    """The server did not send a complete HTTP response."""


class _Closed(NoResponse):
    """The server closed the connection before the first byte of its response, for example because it was idle."""


class _Connection(asyncio.Protocol):
    """A connection with at most one request at a time."""

    def __init__(self) -> None:
        self.idle_since = 0.0
        self._response: asyncio.Future[tuple[int, bytes]] | None = None
        self._keep_alive = False

    async def post(self, request: bytes) -> tuple[int, bytes]:
        """The status and body of the response. The connection cannot be used again if this raises an error."""
        if self._transport.is_closing():
            raise _Closed("the connection was closed")
        self._response = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._received, self._body = 0, bytearray()
        self._transport.write(request)
        return await self._response

    def reusable(self) -> bool:
        return self._keep_alive and not self._transport.is_closing()

    def close(self) -> None:
        self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        if self._response is None or self._response.done():
            self._transport.abort()  # nobody has asked
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(NoResponse(f"the response is not HTTP: {error}"))
        if self._received > MAX_BODY_BYTES:
            self._fail(NoResponse(f"the response is larger than {MAX_BODY_BYTES} bytes"))

    def connection_lost(self, error: Exception | None) -> None:
        if self._response is not None:
            message = f"the server closed the connection{f': {error}' if error else ''}"
            self._fail(NoResponse(message) if self._received else _Closed(message))

    def _fail(self, error: NoResponse) -> None:
        self._transport.abort()
        if self._response is not None and not self._response.done():
            self._response.set_exception(error)

    # httptools

    def on_body(self, part: bytes) -> None:
        self._body += part

    def on_message_complete(self) -> None:
        self._keep_alive = bool(self._parser.should_keep_alive())
        if self._response is not None and not self._response.done():
            self._response.set_result((self._parser.get_status_code(), bytes(self._body)))


class HttpClient:
    """`async with HttpClient("http://defaulter:8085") as client: status, body = await client.post("/path", b"{}", {})`.
    The caller sets the deadline."""

    def __init__(self, url: str, ssl: SSLContext | None = None) -> None:
        """`ssl` is for an https URL; None trusts the CAs of the system."""
        parts = urlsplit(url)
        self._is_https = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port or (443 if self._is_https else 80)
        self._ssl: SSLContext | bool | None = (ssl or True) if self._is_https else None
        self._above, self._authority = parts.path.rstrip("/"), parts.netloc.rpartition("@")[2]
        self._idle: list[_Connection] = []
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the idle connections."""
        while self._idle:
            self._idle.pop().close()

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """The status and body of the response. Raises `NoResponse` or OSError. The request must be one that may be
        repeated: it is sent again if the server has closed an idle connection meanwhile. Neither `path` nor `headers`
        may contain control characters."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        lines += f"Host: {self._authority}\r\nContent-Length: {len(body)}\r\n"
        head = f"POST {self._above}{path} HTTP/1.1\r\n{lines}\r\n"
        request = head.encode("ascii") + body
        async with self._slots:
            while (connection := self._take_idle()) is not None:
                try:
                    return await self._send(connection, request)
                except _Closed:
                    continue
            _, connection = await asyncio.get_running_loop().create_connection(
                _Connection, self._host, self._port, ssl=self._ssl
            )
            return await self._send(connection, request)

    def _take_idle(self) -> _Connection | None:
        oldest = asyncio.get_running_loop().time() - IDLE_SECONDS
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_since >= oldest:
                return connection
            connection.close()
        return None

    async def _send(self, connection: _Connection, request: bytes) -> tuple[int, bytes]:
        try:
            answer = await connection.post(request)
        except BaseException:
            connection.close()  # the response to a cancelled request must not be taken for that to the next one
            raise
        if connection.reusable():
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.close()
        return answer
