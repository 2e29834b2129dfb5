"""HTTP to one API server: one call, one whole answer or one error, within a deadline. It knows no resource."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp

from runtime.clock import ApiServerClock
from runtime.errors import Unreachable, error_from_response
from runtime.metrics import Metrics

LIMIT_BYTES = 32 * 1024 * 1024


class LineTooLong(ValueError):
    """A line that has no end: not an object of Kubernetes, which ends at a few megabytes."""


class LineSplitter:
    """Splits a stream. A line is joined once, when its end arrives: a buffer that grows by `+=` and is searched from
    its beginning costs the square of an object's size, and `StreamReader.readline` ends at 64 KB."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit = limit_bytes
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their ends; empty ones are left out."""
        *ended, rest = chunk.split(b"\n")
        lines = []
        for end in ended:
            lines.append(b"".join([*self._parts, end]) if self._parts else end)
            self._parts, self._size = [], 0
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
            if self._size > self._limit:
                raise LineTooLong(f"a line longer than {self._limit} bytes")
        return [line for line in lines if line.strip()]

    @property
    def rest(self) -> bytes:
        """What came after the last line end. A stream that was cut leaves half an object here."""
        return b"".join(self._parts)


Document = dict[str, Any]


class RestConfig(Protocol):
    """Where the server is, and as whom we go there."""

    host: str
    tls: ssl.SSLContext
    anonymous_tls: ssl.SSLContext
    """for calls in another's name: a client certificate would win over their token"""
    server_name: str | None
    proxy: str | None

    async def authorization(self) -> str | None: ...

    async def renew(self) -> bool:
        """Reads all of this again, if that was not just done; whether it was."""


@dataclass(frozen=True)
class Request:
    verb: str
    """with `what`, how it is counted: both from small sets"""
    what: str
    method: str
    path: str
    body: Any = None
    query: Mapping[str, str] | None = None
    headers: Mapping[str, str] | None = None
    token: str | None = None
    """whose call it is, if not ours"""
    seconds: float | None = None
    warnings: list[str] | None = None
    """is given the warnings that come with the answer"""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Transport:
    def __init__(
        self,
        reach: RestConfig,
        session: aiohttp.ClientSession,
        *,
        seconds: float,
        turns: asyncio.Semaphore | None,
        metrics: Metrics,
        clock: ApiServerClock,
    ) -> None:
        """`turns` bounds how many calls are under way at once. Time begins to count when a call has its turn."""
        self.reach = reach
        self.session = session
        self.metrics = metrics
        self.clock = clock
        self._seconds = seconds
        self._turns = turns

    @property
    def urgent(self) -> Transport:
        return Transport(
            self.reach, self.session, seconds=self._seconds, turns=None, metrics=self.metrics, clock=self.clock
        )

    async def exchange(self, call: Request) -> Document:
        return parse_object(await self.body(call), str(call))

    async def body(self, call: Request) -> bytes:
        """The answer as it came."""
        if self._turns is None:
            return await self._answer(call)
        async with self._turns:
            return await self._answer(call)

    async def lines(self, call: Request, *, seconds: float, quiet_seconds: float) -> AsyncGenerator[bytes]:
        """The lines of an answer that goes on, until the server ends it, nothing came for `quiet_seconds` or `seconds`
        are over. A cut stream raises."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        lines = LineSplitter()
        # No deadline may be around a `yield`: it would cancel what its caller does with the line.
        async with _answers(call), self._open(call) as answer:
            while True:
                try:
                    async with asyncio.timeout_at(min(end, loop.time() + quiet_seconds)):
                        chunk = await answer.content.readany()
                except TimeoutError:
                    return
                for line in lines.feed(chunk):
                    yield line
                if not chunk:
                    break
        if lines.rest:
            raise Unreachable("the stream was cut inside a line", call=str(call))

    async def _answer(self, call: Request) -> bytes:
        began = time.perf_counter()
        try:
            async with _answers(call), asyncio.timeout(call.seconds or self._seconds), self._open(call) as answer:
                return await answer.read()
        finally:
            self.metrics.request_seconds.labels(call.verb).observe(time.perf_counter() - began)

    @asynccontextmanager
    async def _open(self, call: Request) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer of 2xx, its head had within the deadline; any other is raised as the error it is."""
        code = 0
        try:
            async with asyncio.timeout(call.seconds or self._seconds):
                sent_at = self.clock.steady
                answer = await self._send(call)
                code = answer.status
                if code < 300:  # an error may be the word of a proxy on the way
                    self.clock.observe(answer.headers, sent_at)
                if call.warnings is not None:
                    call.warnings.extend(warning_texts(answer.headers.getall("Warning", ())))
                if code >= 300:
                    async with answer:
                        raw = await answer.read()
                    later = answer.headers.get("Retry-After")
                    raise error_from_response(code, raw, retry_after=later, now=self.clock.now(), call=str(call))
            async with answer:
                yield answer
        finally:
            self.metrics.requests.labels(call.verb, call.what, str(code)).inc()

    async def _send(self, call: Request) -> aiohttp.ClientResponse:
        """Sends it once. Only what certainly did nothing, because it never got past TLS or a 401, is sent again, and
        only when there are new credentials to send it with."""
        try:
            answer = await self._send_once(call)
        except aiohttp.ClientConnectorCertificateError:
            if not await self.reach.renew():
                raise
            return await self._send_once(call)
        if answer.status == 401 and call.token is None:
            before = await self.reach.authorization()
            if await self.reach.renew() and await self.reach.authorization() != before:
                answer.release()
                return await self._send_once(call)
        return answer

    async def _send_once(self, call: Request) -> aiohttp.ClientResponse:
        reach = self.reach
        headers: dict[str, str] = {}
        data = None
        if call.body is not None:
            data = json.dumps(call.body, separators=(",", ":")).encode()
            headers["Content-Type"] = "application/json"
        headers |= call.headers or {}
        authorization = await reach.authorization() if call.token is None else f"Bearer {call.token}"
        if authorization:
            headers["Authorization"] = authorization
        return await self.session.request(
            call.method,
            reach.host + call.path,
            data=data,
            params=call.query or None,
            headers=headers,
            ssl=reach.tls if call.token is None else reach.anonymous_tls,
            server_hostname=reach.server_name,
            proxy=reach.proxy,
            # Deadlines are asyncio.timeout's: a timeout of aiohttp would be rounded up to whole seconds.
            timeout=aiohttp.ClientTimeout(total=None),
            # Elsewhere our credentials are nobody's business.
            allow_redirects=False,
        )


def new_session(user_agent: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        # The number of connections is bounded by turns, so that a watch never takes the place of a call.
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
        headers={"User-Agent": user_agent, "Accept": "application/json"},
        cookie_jar=aiohttp.DummyCookieJar(),
        # With it, aiohttp looks for a .netrc in a thread on every request; the proxy is found once instead.
        trust_env=False,
    )


@asynccontextmanager
async def _answers(call: Request) -> AsyncIterator[None]:
    """Turns what a connection can die of into `Unreachable`."""
    try:
        yield
    except TimeoutError as error:
        raise Unreachable("no answer before the deadline", reason="Timeout", call=str(call)) from error
    except LineTooLong as error:
        raise Unreachable(str(error), call=str(call)) from error
    except (aiohttp.ClientError, OSError) as error:
        raise Unreachable(_said(error), reason=type(error).__name__, call=str(call)) from error


def _said(error: Exception) -> str:
    """In a person's words: aiohttp's own sentence about a connection has the address of an object in it."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"cannot connect to {error.host}:{error.port}: {_why(error.certificate_error)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect to {error.host}:{error.port}: {_why(error.os_error)}"
    return str(error) or type(error).__name__


def _why(error: Exception) -> str:
    """A refused connection's own words are a function's arguments; those of names and of TLS are sentences."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno in errno.errorcode:
        return os.strerror(error.errno or 0)
    return getattr(error, "strerror", None) or str(error)


def parse_object(raw: bytes, call: str) -> Document:
    try:
        parsed = json.loads(raw)
    except ValueError as error:
        raise Unreachable(f"the answer is not JSON ({error}): {raw[:200]!r}", call=call) from error
    if not isinstance(parsed, dict):
        raise Unreachable(f"the answer is not an object: {raw[:200]!r}", call=call)
    return parsed


def warning_texts(headers: Iterable[str]) -> list[str]:
    """Those of `Warning: 299 - "..."`, as RFC 7234 quotes them."""
    quoted = (header.split(" ", 2)[-1].strip() for header in headers)
    return [re.sub(r"\\(.)", r"\1", text[1:-1]) for text in quoted if text[:1] == text[-1:] == '"']
