"""Answers in pieces and of all lengths, and connections that may have another request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from poolhouse.runtime.api import Api
from poolhouse.runtime.connections import KEEP_ALIVE_SECONDS, MAX_HEAD_BYTES, head_of, take_body, take_head
from poolhouse.runtime.errors import Unreachable
from tests.runtime.faulty_server import THINGS, Hangup, Request, Server, thing

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n"


def read(received: bytes, *, ended: bool = False) -> tuple[int, bytes, bool] | None:
    """Status and body of the answer, and whether its connection stays open. None before its end."""
    rest = bytearray(received)
    answer = take_head(rest)
    if answer is None or not take_body(rest, answer, ended=ended):
        return None
    return answer.status, answer.body, answer.keeps_open


ANSWERS = [
    pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", (200, b"ab", True), id="of a length"),
    pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", (204, b"", True), id="no content"),
    pytest.param(b"HTTP/1.1 404\r\nContent-Length: 0\r\n\r\n", (404, b"", True), id="no reason"),
    pytest.param(CHUNKED + b"2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n", (200, b"abc", True), id="chunks"),
    pytest.param(CHUNKED + b"0\r\n\r\n", (200, b"", True), id="no chunk"),
    pytest.param(CHUNKED + b"1\r\na\r\n0\r\nX: y\r\n\r\n", (200, b"a", True), id="chunks with a trailer"),
    pytest.param(
        CHUNKED + b"9\r\na\r\n0\r\n\r\nb\r\n0\r\n\r\n", (200, b"a\r\n0\r\n\r\nb", True), id="a chunk like an end"
    ),
    pytest.param(
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\na",
        (201, b"a", True),
        id="after another head",
    ),
    pytest.param(
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na", (200, b"a", False), id="the last one"
    ),
    pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", (200, b"a", False), id="of HTTP/1.0"),
    pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab", (200, b"a", False), id="more than its length"),
]


@pytest.mark.parametrize(("received", "answer"), ANSWERS)
def test_an_answer_is_complete_at_its_end(received: bytes, answer: tuple[int, bytes, bool]) -> None:
    assert read(received) == answer
    if answer[2]:
        assert [read(received[:size]) for size in range(len(received))] == [None] * len(received)


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    received = b"HTTP/1.1 200 OK\r\n\r\nabc"
    assert read(received) is None
    assert read(received, ended=True) == (200, b"abc", False)


@pytest.mark.parametrize(
    "received",
    [
        pytest.param(b"SSH-2.0", id="another protocol"),
        pytest.param(b"HTTP/1.1 ok\r\n\r\n", id="no status"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n", id="no length"),
        pytest.param(CHUNKED + b"x\r\n\r\n", id="no size of a chunk"),
        pytest.param(CHUNKED + b"-9\r\n\r\n", id="a negative size"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD_BYTES, id="a head without an end"),
    ],
)
def test_what_is_no_answer_is_refused(received: bytes) -> None:
    with pytest.raises(ValueError, match=r"no head of HTTP|invalid literal|a chunk of"):
        read(received)


@pytest.mark.parametrize("value", ["a\r\nX: b", "a\nX: b", "a\rX: b", "a\0"])
def test_a_header_stays_in_its_line(value: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        head_of("POST", "/x", [("Impersonate-User", value)])


async def ok(request: Request) -> None:
    await request.answer(200, thing("a", 1))


async def last(request: Request) -> None:
    await request.answer(200, thing("a", 1), {"Connection": "close"})


async def closes(request: Request) -> None:
    await ok(request)
    raise Hangup


async def says_more(request: Request) -> None:
    await ok(request)
    await asyncio.sleep(1)
    await ok(request)


async def patch(api: Api) -> None:
    await api.patch(THINGS, "n", "a", {})


def connections(server: Server) -> int:
    return len({request.writer for request in server.requests})


@pytest.mark.parametrize(
    ("script", "pause", "expected"),
    [
        pytest.param(ok, 1, 1, id="one for all writes"),
        pytest.param(ok, KEEP_ALIVE_SECONDS + 1, 3, id="a new one after a pause"),
        pytest.param(last, 1, 3, id="a new one if the server says so"),
        pytest.param(closes, 1, 3, id="a new one if the server has closed it"),
        pytest.param(says_more, 2, 3, id="a new one after an answer to no request"),
    ],
)
async def test_writes_share_a_connection(
    server: Server, api: Api, script: Callable[[Request], Awaitable[None]], pause: float, expected: int
) -> None:
    server.script = script
    for _ in range(3):
        await patch(api)
        await asyncio.sleep(pause)
    assert connections(server) == expected


async def test_writes_at_once_have_a_connection_each(server: Server, api: Api) -> None:
    async def slow(request: Request) -> None:
        await asyncio.sleep(1)
        await ok(request)

    server.script = slow
    for _ in range(2):
        await asyncio.gather(*(patch(api) for _ in range(3)))
    assert (len(server.requests), connections(server)) == (6, 3)


async def test_the_late_answer_to_a_cancelled_write_is_nobody_elses(server: Server, api: Api) -> None:
    async def late(request: Request) -> None:
        await asyncio.sleep(2)
        await request.answer(200, thing("late", 1))

    server.script = late
    call = asyncio.create_task(patch(api))
    await asyncio.sleep(1)
    call.cancel()
    server.script = ok
    answer = await api.patch(THINGS, "n", "a", {})
    assert answer["metadata"]["name"] == "a"
    assert connections(server) == 2


async def test_a_long_answer_arrives_in_pieces(server: Server, api: Api) -> None:
    async def script(request: Request) -> None:
        await request.begin()
        raw = b'{"text": "' + b"x" * 300_000 + b'"}'
        for at in range(0, len(raw), 50_000):
            await request.chunk(raw[at : at + 50_000])
            await asyncio.sleep(0.1)
        await request.end()

    server.script = script
    assert len((await api.patch(THINGS, "n", "a", {}))["text"]) == 300_000


async def test_a_refused_connection_names_the_server(server: Server, tmp_path: Path) -> None:
    await server.stop()
    async with await server.connect(tmp_path) as api:
        with pytest.raises(Unreachable, match=rf"cannot connect to 127\.0\.0\.1:{server.port}: Connection refused"):
            await patch(api)
