"""The reader of request bodies keeps its bounds of size, time and memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from poolhouse.service.request_body import MAX_BODY_BYTES, BodyReader, RequestRefused, check_headers, parse
from poolhouse.service.strict_json import MAX_VALUES

JSON = [(b"content-type", b"application/json")]


def receiver(parts: Iterable[bytes | None]) -> Any:
    """An ASGI `receive`. None is a client that disconnects; after the last part the client sends nothing more."""
    messages = [
        {"type": "http.disconnect"} if part is None else {"type": "http.request", "body": part, "more_body": True}
        for part in parts
    ]

    async def receive() -> dict[str, Any]:
        if not messages:
            await asyncio.Event().wait()
        return messages.pop(0)

    return receive


def whole(body: bytes) -> Any:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    return receive


async def refused(bodies: BodyReader, receive: Any) -> RequestRefused:
    with pytest.raises(RequestRefused) as refusal:
        async with bodies.raw({"headers": JSON}, receive) as body:
            parse(body)
    return refusal.value


async def test_a_body_is_parsed() -> None:
    async with BodyReader().raw({"headers": JSON}, whole(b'{"a": 1}')) as body:
        assert parse(body) == {"a": 1}


@pytest.mark.parametrize(
    ("receive", "status"),
    [
        pytest.param(whole(b"x" * MAX_BODY_BYTES), 413, id="too large"),
        pytest.param(receiver([b"{", None]), 400, id="the client disconnects"),
        pytest.param(receiver([b"{"]), 408, id="the rest does not arrive"),
        pytest.param(whole(b"no"), 400, id="not JSON"),
    ],
)
async def test_a_refused_body(receive: Any, status: int) -> None:
    assert (await refused(BodyReader(timeout_seconds=0.01), receive)).status == status


async def test_the_bodies_of_all_requests_are_bounded_together() -> None:
    bodies = BodyReader(held_bytes=10)
    async with bodies.raw({"headers": JSON}, whole(b"12345678")):
        second = await refused(bodies, whole(b"12345678"))
        assert (second.status, second.retry_after_seconds) == (429, 1)
    async with bodies.raw({"headers": JSON}, whole(b"1234567890")) as body:
        assert body == b"1234567890"


async def test_a_holder_may_use_a_part_of_the_memory() -> None:
    bodies = BodyReader(held_bytes=20, held_bytes_per_holder=10)
    async with bodies.raw({"headers": JSON}, whole(b"12345678"), "a"):
        with pytest.raises(RequestRefused):
            async with bodies.raw({"headers": JSON}, whole(b"12345678"), "a"):
                pass
        async with bodies.raw({"headers": JSON}, whole(b"12345678"), "b") as body:
            assert body == b"12345678"
    async with bodies.raw({"headers": JSON}, whole(b"1234567890"), "a") as body:
        assert body == b"1234567890"


async def test_a_timeout_of_the_callers_own_work_stays_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        async with BodyReader().raw({"headers": JSON}, whole(b"{}")):
            raise TimeoutError


def test_a_document_with_too_many_values_is_too_large() -> None:
    with pytest.raises(RequestRefused) as refusal:
        parse(b"[" + b"[]," * MAX_VALUES + b"[]]")
    assert refusal.value.status == 413


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({}, 415, id="no content type"),
        pytest.param({"content-type": "text/plain"}, 415, id="text"),
        pytest.param({"content-type": "application/yaml"}, 415, id="YAML"),
        pytest.param({"content-type": "application/json", "content-encoding": "gzip"}, 415, id="gzip"),
        pytest.param({"content-type": "application/json", "content-encoding": "br, gzip"}, 415, id="two encodings"),
        pytest.param(
            {"content-type": "application/json", "content-length": str(MAX_BODY_BYTES)}, 413, id="an announced length"
        ),
    ],
)
def test_headers_that_are_refused(headers: dict[str, str], status: int) -> None:
    with pytest.raises(RequestRefused) as refusal:
        check_headers([(name.encode(), value.encode()) for name, value in headers.items()])
    assert refusal.value.status == status


@pytest.mark.parametrize("content_type", [b"application/json", b"application/json; charset=utf-8", b"Application/JSON"])
def test_headers_that_are_accepted(content_type: bytes) -> None:
    check_headers([(b"Content-Type", content_type), (b"content-length", b"17")])
