"""Sends HTTP requests to one API server. Each request returns a complete response or raises an error in time."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import aiohttp
import orjson

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.clock import ApiServerClock
from poolhouse.runtime.errors import Unreachable, error_from_response
from poolhouse.runtime.fair_slots import FairSlots
from poolhouse.runtime.resource import namespace_of_path

if TYPE_CHECKING:
    from poolhouse.runtime.metrics import Metrics

# Pings on websockets find dead connections, and keep proxies from closing idle ones.
HEARTBEAT_SECONDS = 30.0
# A limit far above the few megabytes of the largest Kubernetes objects.
MAX_LINE_BYTES = 32 * 1024 * 1024


class RestConfig(Protocol):
    """Address and credentials, like client-go's `rest.Config`."""

    host: str
    server_name: str | None
    proxy: str | None

    @property
    def tls(self) -> ssl.SSLContext: ...

    @property
    def anonymous_tls(self) -> ssl.SSLContext:
        """The context without client certificate, which takes precedence over the token of another user."""

    async def authorization(self) -> str | None: ...

    async def renew(self) -> bool:
        """Reads the configuration again, unless it was read seconds ago. Returns whether it was read."""

    async def renew_authorization(self) -> bool:
        """Returns whether `authorization` is another one after the configuration was read again."""


@dataclass(frozen=True)
class Request:
    verb: str
    """metric label, like `resource`"""
    resource: str
    method: str
    path: str
    body: Any = None
    query: Mapping[str, str] | None = None
    headers: Mapping[str, str] | None = None
    timeout_seconds: float | None = None
    warnings: list[str] | None = None
    """list to which the warnings of the response are appended"""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True)
class Transport:
    config: RestConfig
    session: aiohttp.ClientSession
    timeout_seconds: float
    in_flight: FairSlots[str] | None
    """Limit on the requests in flight, shared between namespaces or, if requests are made for users, between these. The
    deadline of a request starts when the request is sent."""
    metrics: Metrics
    clock: ApiServerClock
    impersonated: tuple[tuple[str, str], ...] = ()
    """headers of every request that name another user, for whom the API server executes it"""
    user: str = ""
    """the other user, if requests are made for one"""

    @property
    def unbounded(self) -> Transport:
        return replace(self, in_flight=None)

    async def send(self, request: Request) -> Json:
        return parse_object(await self.send_raw(request), str(request))

    async def send_raw(self, request: Request) -> bytes:
        return (await self.respond(request))[1]

    async def respond(self, request: Request) -> tuple[int, bytes]:
        """The code and the body of a 2xx response."""
        if self.in_flight is None:
            return await self._read(request)
        async with self.in_flight.slot(self.user or namespace_of_path(request.path)):
            return await self._read(request)

    async def lines(
        self, request: Request, *, timeout_seconds: float, idle_timeout_seconds: float, opened: Callable[[], None]
    ) -> AsyncGenerator[bytes]:
        """The lines of a stream, until its end, `timeout_seconds`, or `idle_timeout_seconds` without a line. Calls
        `opened` when the server has accepted the request. Raises `Unreachable` if the stream ends inside a line."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_seconds
        # A deadline around a `yield` would also cancel the caller's code.
        async with _unreachable(request), self._open(request) as answer:
            opened()
            while True:
                try:
                    async with asyncio.timeout_at(min(end, loop.time() + idle_timeout_seconds)):
                        line = await answer.content.readline(max_line_length=MAX_LINE_BYTES)
                except TimeoutError:
                    return
                if not line:
                    return
                if not line.endswith(b"\n"):
                    raise Unreachable("the stream was cut inside a line", call=str(request))
                if line.strip():
                    yield line

    @asynccontextmanager
    async def websocket(
        self, request: Request, protocol: str, max_message_bytes: int = 0
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """An open websocket. Raises ApiError if the server refuses it, with the message of the server. A message with
        more than `max_message_bytes` closes it; 0 is no limit."""
        config = self.config
        authorization = await config.authorization()
        headers = [*self.impersonated, *([("Authorization", authorization)] if authorization else [])]
        try:
            async with _unreachable(request), asyncio.timeout(request.timeout_seconds or self.timeout_seconds):
                found = await self.session.ws_connect(
                    config.host + request.path,
                    protocols=(protocol,),
                    headers=headers,
                    ssl=config.tls,
                    server_hostname=config.server_name,
                    proxy=config.proxy,
                    heartbeat=HEARTBEAT_SECONDS,
                    max_msg_size=max_message_bytes,
                )
        except Unreachable as error:
            if isinstance(error.__cause__, aiohttp.WSServerHandshakeError):
                # aiohttp drops the body of the refusal. The same request without an upgrade gets it.
                await self._read(request)
            raise
        async with found:
            yield found

    async def _read(self, request: Request) -> tuple[int, bytes]:
        began = time.perf_counter()
        timeout = asyncio.timeout(request.timeout_seconds or self.timeout_seconds)
        try:
            async with _unreachable(request), timeout, self._open(request) as answer:
                return answer.status, await answer.read()
        finally:
            self.metrics.request_seconds.labels(request.verb).observe(time.perf_counter() - began)

    @asynccontextmanager
    async def _open(self, request: Request) -> AsyncIterator[aiohttp.ClientResponse]:
        """Sends the request, and returns a 2xx response once its headers have arrived. Raises ApiError otherwise."""
        code = 0
        try:
            async with asyncio.timeout(request.timeout_seconds or self.timeout_seconds):
                sent_at = self.clock.steady
                answer = await self._send(request)
                code = answer.status
                if code < 300:  # an error may come from a proxy, with the proxy's `Date`
                    self.clock.observe(answer.headers, sent_at)
                if request.warnings is not None:
                    request.warnings.extend(warning_texts(answer.headers.getall("Warning", ())))
                if code >= 300:
                    async with answer:
                        raw = await answer.read()
                    retry_after = answer.headers.get("Retry-After")
                    raise error_from_response(
                        code, raw, retry_after=retry_after, now=self.clock.now(), call=str(request)
                    )
            async with answer:
                yield answer
        finally:
            self.metrics.requests.labels(request.verb, request.resource, str(code)).inc()

    async def _send(self, request: Request) -> aiohttp.ClientResponse:
        """Sends the request. After a TLS failure or a 401, sends it again if new credentials can be read."""
        try:
            answer = await self._send_once(request)
        except aiohttp.ClientConnectorCertificateError:
            if not await self.config.renew():
                raise
            return await self._send_once(request)
        if answer.status == 401 and await self.config.renew_authorization():
            answer.release()
            return await self._send_once(request)
        return answer

    async def _send_once(self, request: Request) -> aiohttp.ClientResponse:
        config = self.config
        headers: dict[str, str] = {}
        data = None
        if request.body is not None:
            data = encode(request.body)
            headers["Content-Type"] = "application/json"
        headers |= request.headers or {}
        if authorization := await config.authorization():
            headers["Authorization"] = authorization
        return await self.session.request(
            request.method,
            config.host + request.path,
            data=data,
            params=request.query or None,
            headers=[*self.impersonated, *headers.items()],
            ssl=config.tls,
            server_hostname=config.server_name,
            proxy=config.proxy,
            # asyncio.timeout sets the deadlines, because aiohttp rounds deadlines up to whole seconds.
            timeout=aiohttp.ClientTimeout(total=None),
            # The target of a redirect must not receive the credentials.
            allow_redirects=False,
        )


def encode(body: Any) -> bytes:
    """The body as Go's encoding/json writes it, whose escapes are legal only inside JSON strings.

    The API server keeps the `data` of a ControllerRevision in the bytes that it received. It refuses a later write of
    another field, for example by the garbage collector, if its own encoding of the data has other bytes."""
    text = json.dumps(body, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    # A lone surrogate has no UTF-8 form; JSON can hold it only as an escape.
    return text.translate(GO_ESCAPES).encode(errors="backslashreplace")


GO_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "&<>\u2028\u2029"}


def new_session(user_agent: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        # `in_flight` limits the requests instead, because watches must not count.
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
        # KubeVirt's subresources declare no content type. They answer 406 unless the client accepts any type.
        headers={"User-Agent": user_agent, "Accept": "application/json, */*"},
        cookie_jar=aiohttp.DummyCookieJar(),
        # `RestConfig` has the proxy. With trust_env, aiohttp would search for .netrc in a thread at every request.
        trust_env=False,
    )


@asynccontextmanager
async def _unreachable(request: Request) -> AsyncIterator[None]:
    """Turns every failure of a connection into `Unreachable`."""
    try:
        yield
    except TimeoutError as error:
        raise Unreachable("no answer before the deadline", reason="Timeout", call=str(request)) from error
    except aiohttp.http_exceptions.LineTooLong as error:
        raise Unreachable(f"a line is longer than {MAX_LINE_BYTES} bytes", call=str(request)) from error
    except (aiohttp.ClientError, OSError) as error:
        raise Unreachable(_message(error), reason=type(error).__name__, call=str(request)) from error


def _message(error: Exception) -> str:
    """The message of an error, without the address of a Python object in aiohttp's connection errors."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"cannot connect to {error.host}:{error.port}: {_cause(error.certificate_error)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect to {error.host}:{error.port}: {_cause(error.os_error)}"
    return str(error) or type(error).__name__


def _cause(error: Exception) -> str:
    """A readable cause. aiohttp's messages are readable for DNS and TLS errors, but not for refused connections."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno in errno.errorcode:
        return os.strerror(error.errno or 0)
    return getattr(error, "strerror", None) or str(error)


def parse_object(raw: bytes, call: str) -> Json:
    try:
        parsed = orjson.loads(raw)
    except ValueError as error:
        raise Unreachable(f"the answer is not JSON ({error}): {raw[:200]!r}", call=call) from error
    if not isinstance(parsed, dict):
        raise Unreachable(f"the answer is not an object: {raw[:200]!r}", call=call)
    return parsed


def warning_texts(headers: Iterable[str]) -> list[str]:
    """The texts of `Warning: 299 - "..."` headers (RFC 7234)."""
    quoted = (header.split(" ", 2)[-1].strip() for header in headers)
    return [re.sub(r"\\(.)", r"\1", text[1:-1]) for text in quoted if text[:1] == text[-1:] == '"']
