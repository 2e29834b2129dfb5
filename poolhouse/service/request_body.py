"""Reads the bodies of HTTP requests, with limits on size, time and memory.

    bodies = BodyReader()

    async with bodies.raw(scope, receive) as body:   # starlette: request.scope, request.receive
        document = parse(body)

A body counts towards the limit `held_bytes` until the `async with` block ends. The limit is needed because a thousand
callers may send bodies of maximum size, and a parsed document takes about ten times the memory of its text. Each
holder, such as a namespace or an address, may use a part of the limit, so that one does not take the memory of all.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.service.held_counter import HeldCounter
from poolhouse.service.strict_json import InvalidJSON, TooManyValues, loads, quote

MAX_BODY_BYTES = 4 * 1024 * 1024
"""Maximum size of a body: an AdmissionReview has an old and a new object, and etcd stores up to 1.5 MiB of each."""
READ_TIMEOUT_SECONDS = 5.0
MAX_HELD_BYTES = 32 * 1024 * 1024


class RequestRefused(Exception):
    """A refused request, with the HTTP status and the message of the response."""

    def __init__(self, status: int, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after_seconds = status, message, retry_after_seconds


class BodyReader:
    def __init__(
        self,
        *,
        timeout_seconds: float = READ_TIMEOUT_SECONDS,
        held_bytes: int = MAX_HELD_BYTES,
        held_bytes_per_holder: int | None = None,
        max_body_bytes: int = MAX_BODY_BYTES,
        timeout_status: int = 408,
    ) -> None:
        """`held_bytes` limits the total size of the bodies of all requests in progress, and `held_bytes_per_holder`
        those of one holder; None is no limit."""
        self._timeout_seconds = timeout_seconds
        self._free_bytes = held_bytes
        self._held_bytes_per_holder = held_bytes if held_bytes_per_holder is None else held_bytes_per_holder
        self._held_by = HeldCounter[str]()
        self._max_body_bytes = max_body_bytes
        self._timeout_status = timeout_status

    @asynccontextmanager
    async def raw(self, scope: Any, receive: Any, holder: str = "") -> AsyncIterator[bytes]:
        """The bytes of a body with a JSON content type. Raises `RequestRefused`."""
        check_headers(scope["headers"], self._max_body_bytes)
        parts: list[bytes] = []
        try:
            await self._read(receive, parts, holder)
            yield b"".join(parts)
        finally:
            size = sum(map(len, parts))
            self._free_bytes += size
            self._held_by.release(holder, size)

    async def _read(self, receive: Any, parts: list[bytes], holder: str) -> None:
        size = 0
        try:
            async with asyncio.timeout(self._timeout_seconds):
                async for part in _parts(receive):
                    parts.append(part)
                    size += len(part)
                    self._free_bytes -= len(part)
                    self._held_by[holder] += len(part)
                    _check_size(size, self._max_body_bytes)
                    if self._free_bytes < 0 or self._held_by[holder] > self._held_bytes_per_holder:
                        message = "too many large requests at once; try again in a second"
                        raise RequestRefused(429, message, retry_after_seconds=1)
        except TimeoutError:
            message = f"the body did not arrive within {self._timeout_seconds:g} s"
            raise RequestRefused(self._timeout_status, message) from None


def parse(body: bytes, *, large_integers: bool = False) -> Json:
    """The JSON object in a body. Raises `RequestRefused`."""
    try:
        return loads(body, large_integers=large_integers)
    except InvalidJSON as error:
        raise RequestRefused(413 if isinstance(error, TooManyValues) else 400, str(error)) from None


def check_headers(headers: Iterable[tuple[bytes, bytes]], max_body_bytes: int = MAX_BODY_BYTES) -> None:
    """Raises `RequestRefused` for a type, an encoding or a length that is not accepted."""
    found = {name.lower(): value.decode("latin-1") for name, value in headers}
    content_type = found.get(b"content-type", "")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise RequestRefused(415, f"Content-Type must be application/json, not {quote(content_type or 'absent')}")
    # Compressed bodies are refused, because they may be decompression bombs. API servers and kubectl send none.
    encoding = found.get(b"content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise RequestRefused(415, f"Content-Encoding {quote(encoding)} is not accepted: send the JSON uncompressed")
    length = found.get(b"content-length", "")
    if length.isdigit() and len(length) < 20:
        _check_size(int(length), max_body_bytes)


def _check_size(size_bytes: int, max_body_bytes: int) -> None:
    if size_bytes >= max_body_bytes:
        raise RequestRefused(413, f"the body must be smaller than {max_body_bytes} bytes")


async def _parts(receive: Any) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestRefused(400, "the client disconnected before the body was complete")
        yield message.get("body", b"")
        more = message.get("more_body", False)
