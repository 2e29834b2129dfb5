"""HTTP clients whose requests end before a deadline.

httpx limits each read, write and connection, but not their sum: a server that sends a byte a second holds a request for
ever. asyncio can cancel a request. For the sync client, each operation on a connection gets the time that is left.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from socket import SOCK_STREAM, gaierror, getaddrinfo
from threading import local
from time import monotonic
from typing import Any

import httpcore
import httpx

from .errors import ApiError

PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.25, 10.0
LEAST_SECONDS = 0.001
"""0 would make a socket non-blocking"""
PIECE_BYTES = 16 * 1024
LATE = "no complete answer before the deadline"


def new_async_http(
    *,
    server: str,
    tls: ssl.SSLContext,
    proxy: str | None,
    auth: httpx.Auth | None,
    headers: Mapping[str, str],
    transport: httpx.AsyncBaseTransport | None,
) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=server,
        verify=tls,
        auth=auth,
        proxy=proxy,
        headers=dict(headers),
        transport=transport,
        trust_env=False,
    )


def new_http(
    *,
    server: str,
    tls: ssl.SSLContext,
    proxy: str | None,
    auth: httpx.Auth | None,
    headers: Mapping[str, str],
    transport: httpx.BaseTransport | None,
) -> httpx.Client:
    return httpx.Client(
        base_url=server,
        auth=auth,
        headers=dict(headers),
        transport=transport or DeadlineTransport(tls, proxy),
        trust_env=False,
    )


class AsyncDeadline:
    """Raises httpx.ReadTimeout in the block when the time `end` of the monotonic clock has come."""

    def __init__(self, end: float) -> None:
        self._timeout = asyncio.timeout(max(0.0, end - monotonic()))

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        try:
            await self._timeout.__aexit__(*error)
        except TimeoutError as late:
            raise httpx.ReadTimeout(LATE) from late


class Deadline:
    """The same for what this thread does on connections of a `DeadlineTransport`."""

    _of = local()

    def __init__(self, end: float) -> None:
        self._end, self._outer = end, float("inf")

    def __enter__(self) -> None:
        self._outer = getattr(self._of, "end", float("inf"))
        self._of.end = min(self._end, self._outer)

    def __exit__(self, *error: Any) -> None:
        self._of.end = self._outer

    @classmethod
    def left(cls, timeout: float | None) -> float | None:
        """The seconds for one operation: `timeout`, or less if the deadline is earlier."""
        end = getattr(cls._of, "end", float("inf"))
        if end == float("inf"):
            return timeout
        left = end - monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout(LATE)
        return max(LEAST_SECONDS, left if timeout is None else min(left, timeout))


class DeadlineTransport(httpx.BaseTransport):
    """Sends requests through the proxy, if there is one."""

    def __init__(self, tls: ssl.SSLContext, proxy: str | None) -> None:
        through = httpx.Proxy(proxy) if proxy else None
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls,
            proxy=httpcore.Proxy(str(through.url), auth=through.raw_auth) if through else None,
            keepalive_expiry=5.0,
            network_backend=_Backend(),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url, body = request.url, request.stream
        assert isinstance(body, httpx.SyncByteStream)
        sent = httpcore.Request(
            method=request.method,
            url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=body,
            extensions=request.extensions,
        )
        with _errors():
            answer = self._pool.handle_request(sent)
        return httpx.Response(answer.status, headers=answer.headers, stream=_Body(answer), extensions=answer.extensions)

    def close(self) -> None:
        self._pool.close()


@dataclass
class _Body(httpx.SyncByteStream):
    answer: httpcore.Response

    def __iter__(self) -> Iterator[bytes]:
        with _errors():
            yield from self.answer.iter_stream()

    def close(self) -> None:
        self.answer.close()


@contextmanager
def _errors() -> Iterator[None]:
    """Raises errors of httpcore as those of httpx, which have the same names."""
    try:
        yield
    except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, httpcore.ProxyError) as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, Deadline.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), PIECE_BYTES):
            self._stream.write(buffer[start : start + PIECE_BYTES], Deadline.left(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, Deadline.left(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.NetworkBackend):
    def __init__(self) -> None:
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        try:
            addresses = [str(each[4][0]) for each in getaddrinfo(host, port, type=SOCK_STREAM)]
        except gaierror as error:
            raise httpcore.ConnectError(str(error)) from error
        # One by one: the operating system would give each address the whole time.
        for address in addresses[:-1]:
            try:
                return self._connect(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return self._connect(addresses[-1], port, timeout, local_address, socket_options)

    def _connect(self, address: str, port: int, timeout: float | None, *options: Any) -> httpcore.NetworkStream:
        return _Stream(self._backend.connect_tcp(address, port, Deadline.left(timeout), *options))


def pause_seconds(error: ApiError, attempt: int) -> float:
    """The pause before a request is repeated. It grows with the attempts, and is at least what the server asks for."""
    growing: float = min(MAX_PAUSE_SECONDS, PAUSE_SECONDS * 2 ** min(attempt, 10)) * random.uniform(0.5, 1.0)
    return max(growing, error.retry_after_seconds or 0.0)
