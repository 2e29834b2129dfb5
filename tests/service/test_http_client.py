"""What the client makes of responses, closed connections and servers that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uvloop

from service import http_client
from service.certificates import new_ca, new_server_certificate
from service.http_client import HttpClient, NoResponse

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Sends the next of some texts for each request. None closes the connection instead."""

    def __init__(self, answers: Iterable[bytes | None]) -> None:
        self._answers = iter(answers)
        self.connections = 0
        self.heads: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                await reader.readexactly(length)
                answer = next(self._answers)
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def serving(*answers: bytes | None) -> AsyncIterator[tuple[Server, HttpClient]]:
    server = Server(answers)
    listener = await asyncio.start_server(server, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/above/"
    async with listener, HttpClient(url) as client:
        yield server, client
    client.close()


async def test_requests_after_each_other_use_one_connection() -> None:
    async with serving(OK, OK, OK) as (server, client):
        for _ in range(3):
            assert await client.post("/path", b"{}", {"X": "y"}) == (200, b"ok")
    assert server.connections == 1
    assert server.heads[0].startswith(b"POST /above/path HTTP/1.1\r\n")
    assert {b"X: y", b"Content-Length: 2"} < {*server.heads[0].split(b"\r\n")}


async def test_requests_at_once_use_a_connection_each() -> None:
    async with serving(*[OK] * 5) as (server, client):
        assert await asyncio.gather(*(client.post("/", b"", {}) for _ in range(5))) == [(200, b"ok")] * 5
    assert server.connections == 5


@pytest.mark.parametrize(
    ("answer", "response"),
    [
        pytest.param(
            b"HTTP/1.1 422 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
            (422, b"abcde"),
            id="chunks",
        ),
        pytest.param(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", (503, b""), id="no body"),
        pytest.param(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na", (200, b"a"), id="the last"),
    ],
)
async def test_a_response_is_read_whole(answer: bytes, response: tuple[int, bytes]) -> None:
    async with serving(answer, OK) as (_, client):
        assert await client.post("/", b"", {}) == response
        assert await client.post("/", b"", {}) == (200, b"ok")


async def test_a_connection_that_the_server_closed_meanwhile_is_replaced() -> None:
    async with serving(OK, None, OK) as (server, client):
        await client.post("/", b"", {})
        assert await client.post("/", b"", {}) == (200, b"ok")
    assert server.connections == 2


async def test_a_new_connection_that_closes_at_once_is_an_error() -> None:
    async with serving(None, OK) as (_, client):
        with pytest.raises(NoResponse, match="closed"):
            await client.post("/", b"", {})


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"SSH-2.0-OpenSSH\r\n", id="another protocol"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", id="no length"),
    ],
)
async def test_what_is_no_http_is_an_error(answer: bytes) -> None:
    async with serving(answer) as (_, client):
        with pytest.raises(NoResponse, match="not HTTP"):
            await client.post("/", b"", {})


async def test_an_endless_response_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "MAX_BODY_BYTES", 1000)
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 2000) as (_, client):
        with pytest.raises(NoResponse, match="larger"):
            await client.post("/", b"", {})


async def test_the_response_to_a_cancelled_request_is_not_that_to_the_next() -> None:
    late = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"slow" in head:
            await late.wait()
        body = b"slow" if b"slow" in head else b"fast"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + body)
        writer.close()

    listener = await asyncio.start_server(slow, "127.0.0.1", 0)
    async with listener, HttpClient(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}") as client:
        first = asyncio.create_task(client.post("/slow", b"", {}))
        await asyncio.sleep(0)
        first.cancel()
        late.set()
        assert await client.post("/fast", b"", {}) == (200, b"fast")


def test_the_loop_of_the_services_is_supported() -> None:
    async def asked() -> list[tuple[int, bytes]]:
        async with serving(OK, OK) as (_, client):
            return [await client.post("/", b"", {}) for _ in range(2)]

    assert uvloop.run(asked()) == [(200, b"ok")] * 2


async def test_an_https_server_needs_a_certificate_of_the_trusted_authority(tmp_path: Path) -> None:
    now, life = datetime.now(UTC), timedelta(days=1)
    authority = new_ca("trusted", now, life)
    pair = new_server_certificate(authority, "defaulter", ["127.0.0.1"], now, life)
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    trusting = ssl.create_default_context(cadata=authority.certificate.decode())
    listener = await asyncio.start_server(Server([OK, OK]), "127.0.0.1", 0, ssl=served)
    url = f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with listener, HttpClient(url, trusting) as client:
        assert [await client.post("/", b"", {}) for _ in range(2)] == [(200, b"ok")] * 2
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            await HttpClient(url).post("/", b"", {})


async def test_a_server_that_does_not_run_is_an_error() -> None:
    with pytest.raises(OSError, match="onnect"):
        await HttpClient("http://127.0.0.1:9").post("/", b"", {})
