"""The server over real sockets: certificates that change, and a stop that drops no request."""

from __future__ import annotations

import asyncio
import datetime
import select
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop
from cryptography import x509
from cryptography.x509.oid import NameOID

from poolhouse.service.callers import address_of
from poolhouse.service.server import bind, serve
from tests.service.test_certwatcher import write_pair

HOUR, DAY = datetime.timedelta(hours=1), datetime.timedelta(days=1)


@asynccontextmanager
async def serving(app: Any, tls: Path | None = None, **options: Any) -> AsyncIterator[tuple[int, asyncio.Task[None]]]:
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(app, "127.0.0.1", 0, tls, started=port.set_result, **options))
    try:
        yield await port, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def served_name(port: int) -> str:
    """The common name of the certificate that a new connection without a server name gets."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    raw = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    name = x509.load_der_x509_certificate(raw).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(name[0].value)


async def hello(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        return
    if scope["path"] == "/slow":
        await asyncio.sleep(3)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


async def test_a_new_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    write_pair(tmp_path, "old")
    async with serving(hello, tmp_path) as (port, task):
        assert await served_name(port) == "old"
        write_pair(tmp_path, "new")
        await asyncio.sleep(3)
        assert await served_name(port) == "new"
        assert not task.done()


async def test_an_incomplete_pair_is_not_served(tmp_path: Path) -> None:
    write_pair(tmp_path, "old")
    async with serving(hello, tmp_path) as (port, _):
        write_pair(tmp_path, "new", with_key=False)
        await asyncio.sleep(3)
        assert await served_name(port) == "old"
        (tmp_path / "tls.key").write_text("garbage")
        await asyncio.sleep(3)
        assert await served_name(port) == "old"
        (tmp_path / "tls.crt").unlink()
        await asyncio.sleep(3)
        assert await served_name(port) == "old"
        write_pair(tmp_path, "whole")
        await asyncio.sleep(3)
        assert await served_name(port) == "whole"


async def test_open_connections_survive_a_new_certificate(tmp_path: Path) -> None:
    write_pair(tmp_path, "old")
    connector = aiohttp.TCPConnector(ssl=False, limit=1)
    async with serving(hello, tmp_path) as (port, _), aiohttp.ClientSession(connector=connector) as session:
        for name in ("one", "two"):
            async with session.get(f"https://127.0.0.1:{port}/") as answer:
                assert await answer.text() == "hello"
            write_pair(tmp_path, name)
            await asyncio.sleep(3)


async def test_a_stop_finishes_requests_and_accepts_none() -> None:
    async with serving(hello) as (port, task), aiohttp.ClientSession() as session:
        slow = asyncio.create_task(session.get(f"http://127.0.0.1:{port}/slow"))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.sleep(1)
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(f"http://127.0.0.1:{port}/")
        assert await (await slow).text() == "hello"
        await asyncio.wait({task}, timeout=5)
        assert task.cancelled()


async def test_requests_are_accepted_while_the_server_lingers() -> None:
    async with serving(hello, linger_seconds=5) as (port, task), aiohttp.ClientSession() as session:
        task.cancel()
        await asyncio.sleep(2)
        async with session.get(f"http://127.0.0.1:{port}/") as answer:
            assert answer.status == 200
        await asyncio.sleep(10)
        assert task.done()


async def test_a_kept_connection_ends_with_an_announced_response() -> None:
    async with serving(hello, linger_seconds=5) as (port, task), aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/") as answer:
            assert "Connection" not in answer.headers
        task.cancel()
        await asyncio.sleep(2)
        async with session.get(f"http://127.0.0.1:{port}/") as answer:
            assert answer.headers.getall("Connection") == ["close"]


async def test_draining_has_a_deadline() -> None:
    async def stuck(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await asyncio.Event().wait()

    async with serving(stuck, drain_seconds=4) as (port, task), aiohttp.ClientSession() as session:
        call = asyncio.create_task(session.get(f"http://127.0.0.1:{port}/"))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.sleep(8)
        assert task.done()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


async def test_a_server_that_does_not_drain_ends_at_once(tmp_path: Path) -> None:
    """A leader that has lost its Lease because it had no processor cannot wait for timers."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def follow(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        await receive()
        begun.set()
        assert (await receive())["type"] == "http.disconnect"
        ended.set()

    write_pair(tmp_path, "node")
    connector = aiohttp.TCPConnector(ssl=False)
    async with (
        serving(follow, tmp_path, drain_seconds=0) as (port, task),
        aiohttp.ClientSession(connector=connector) as session,
    ):
        call = asyncio.create_task(session.get(f"https://127.0.0.1:{port}/"))
        await begun.wait()
        loop = asyncio.get_running_loop()
        began = loop.time()
        task.cancel()
        await asyncio.wait({task})
        assert loop.time() < began + 0.001, "in virtual time, a turn takes a microsecond, and only a timer takes more"
        assert ended.is_set()
        with pytest.raises(aiohttp.ClientConnectorError):  # aiohttp asks again, and nobody listens
            await call


async def test_a_server_ends_at_once_that_has_not_begun() -> None:
    task = asyncio.create_task(serve(hello, "127.0.0.1", 0, drain_seconds=0))
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


def test_new_connections_do_not_wait_for_a_turn_each() -> None:
    """libuv accepts one connection for each listening socket in a turn of the event loop."""

    async def turns(count: int) -> int:
        async with serving(hello) as (port, _), AsyncExitStack() as stack:
            clients = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(count)]
            for client in clients:
                client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            turn = 0
            while len(select.select(clients, (), (), 0)[0]) < count:
                await asyncio.sleep(0)
                turn += 1
            return turn

    assert uvloop.run(turns(40)) < 40


async def send_until_closed(port: int, *pieces: bytes, every_seconds: float = 1.0) -> tuple[float, bytes]:
    """Sends the pieces one by one. Returns after how many seconds the server closed, and what it sent."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def send() -> None:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(every_seconds)

    sending = asyncio.create_task(send())
    said = b""
    with suppress(ConnectionError):
        while some := await reader.read(1000):
            said += some
    sending.cancel()
    writer.close()
    return loop.time() - began, said


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([b"G"], id="a letter"),
        pytest.param([b"GET / HT"], id="half a line"),
        pytest.param([b"GET / HTTP/1.1\r\nHost: x\r\n", *[b"a: b\r\n"] * 100], id="a header every second"),
    ],
)
async def test_a_slow_head_ends_the_connection(pieces: list[bytes]) -> None:
    async with serving(hello) as (port, _):
        seconds, said = await send_until_closed(port, *pieces)
    assert 4.9 < seconds < 6
    assert said == b""


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([], id="never used"),
        pytest.param([b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"], id="used before"),
    ],
)
async def test_idle_connections_are_kept_longer_than_clients_keep_them(pieces: list[bytes]) -> None:
    """Clients in Go keep a connection for 90 s, and lose a request if the server closes it first."""
    async with serving(hello) as (port, _):
        seconds, said = await send_until_closed(port, *pieces)
    assert 100 < seconds < 130
    assert said.endswith(b"hello\r\n0\r\n\r\n") == bool(pieces)


async def test_a_second_request_has_the_same_deadline() -> None:
    async with serving(hello) as (port, _):
        seconds, said = await send_until_closed(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /", *[b"x"] * 100)
    assert 5.9 < seconds < 8
    assert said.endswith(b"hello\r\n0\r\n\r\n")


async def test_a_body_that_trickles_in_after_the_response_ends_the_connection() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
    async with serving(hello) as (port, _):
        seconds, _ = await send_until_closed(port, head, *[b"x"] * 1000)
    assert seconds < 36


async def test_a_large_head_is_refused() -> None:
    async with serving(hello) as (port, _):
        pieces = [b"GET / HTTP/1.1\r\n", *[b"a: " + b"x" * 1000 + b"\r\n"] * 1000]
        seconds, said = await send_until_closed(port, *pieces, every_seconds=0.001)
    assert seconds < 2
    assert b"too large" in said


async def test_the_error_names_a_port_that_is_in_use() -> None:
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"):
            await serve(hello, "127.0.0.1", port)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_all_addresses_are_those_of_both_ip_versions(family: socket.AddressFamily) -> None:
    if family == socket.AF_INET6 and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with bind("::", 0) as listener, socket.socket(family) as client:
        listener.listen()
        client.connect(("127.0.0.1" if family == socket.AF_INET else "::1", listener.getsockname()[1]))
        accepted, address = listener.accept()
        with accepted:
            assert address_of({"client": address}) in ("127.0.0.1", "::1")


async def test_a_tls_directory_without_files_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="tls"):
        await serve(hello, "127.0.0.1", 0, tmp_path)
