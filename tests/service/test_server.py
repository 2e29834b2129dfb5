"""Serving over real sockets: certificates that change, ends that drop nothing."""

from __future__ import annotations

import asyncio
import datetime
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from runtime.metrics import Metrics
from service.certificates import Validity, read_validity
from service.server import Certificate, bind, health, health_app, serve

HOUR, DAY = datetime.timedelta(hours=1), datetime.timedelta(days=1)


def write_pair(
    directory: Path,
    name: str,
    *,
    only: str = "both",
    begins: datetime.timedelta = -HOUR,
    ends: datetime.timedelta = DAY,
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .sign(key, hashes.SHA256())
    )
    if only in ("both", "certificate"):
        (directory / "tls.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    if only in ("both", "key"):
        pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        (directory / "tls.key").write_bytes(key.private_bytes(*pem))


@asynccontextmanager
async def serving(app: Any, tls: Path | None = None, **options: Any) -> AsyncIterator[tuple[int, asyncio.Task[None]]]:
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(app, "127.0.0.1", 0, tls, started=port.set_result, **options))
    try:
        yield await port, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def who(port: int) -> str:
    """The common name of the certificate that a new connection is shown, which names no host, as the API server's
    doesn't."""
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
        assert await who(port) == "old"
        write_pair(tmp_path, "new")
        await asyncio.sleep(3)
        assert await who(port) == "new"
        assert not task.done()


async def test_a_half_written_pair_changes_nothing_until_it_is_whole(tmp_path: Path) -> None:
    write_pair(tmp_path, "old")
    async with serving(hello, tmp_path) as (port, _):
        write_pair(tmp_path, "new", only="certificate")
        await asyncio.sleep(3)
        assert await who(port) == "old"
        (tmp_path / "tls.key").write_text("garbage")
        await asyncio.sleep(3)
        assert await who(port) == "old"
        (tmp_path / "tls.crt").unlink()
        await asyncio.sleep(3)
        assert await who(port) == "old"
        write_pair(tmp_path, "whole")
        await asyncio.sleep(3)
        assert await who(port) == "whole"


async def test_a_connection_that_is_open_lives_on_with_the_old_certificate(tmp_path: Path) -> None:
    write_pair(tmp_path, "old")
    connector = aiohttp.TCPConnector(ssl=False, limit=1)
    async with serving(hello, tmp_path) as (port, _), aiohttp.ClientSession(connector=connector) as session:
        for name in ("one", "two"):
            async with session.get(f"https://127.0.0.1:{port}/") as answer:
                assert await answer.text() == "hello"
            write_pair(tmp_path, name)
            await asyncio.sleep(3)


def test_a_secret_that_is_swapped_by_its_link_is_seen(tmp_path: Path) -> None:
    """How a kubelet renews a mounted Secret: the files are links through one link, which is replaced."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        write_pair(tmp_path / name, name)
    (tmp_path / "data").symlink_to("first")
    for file in ("tls.crt", "tls.key"):
        (tmp_path / file).symlink_to(f"data/{file}")
    certificate = Certificate(tmp_path)
    assert not certificate.renew()
    (tmp_path / "new").symlink_to("second")
    (tmp_path / "new").rename(tmp_path / "data")
    assert certificate.renew()
    assert not certificate.renew()


@pytest.mark.parametrize(
    ("ends", "begins", "shown"),
    [
        pytest.param(DAY, -HOUR, True, id="one that holds"),
        pytest.param(DAY, HOUR, False, id="not yet, while the old one is believed"),
        pytest.param(-HOUR / 2, HOUR, True, id="nobody believes the old one either"),
    ],
)
def test_a_certificate_is_shown_when_its_time_has_come(
    ends: datetime.timedelta, begins: datetime.timedelta, shown: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_pair(tmp_path, "old", ends=ends)
    certificate = Certificate(tmp_path)
    write_pair(tmp_path, "new", begins=begins, ends=2 * DAY)
    assert certificate.renew() is shown
    assert not certificate.renew()
    assert caplog.text.count("it begins at") == (0 if shown else 1), "said once"


def test_it_says_of_each_certificate_that_it_shows_how_long_it_is_valid(tmp_path: Path) -> None:
    write_pair(tmp_path, "old", ends=DAY)
    seen: list[Validity] = []
    certificate = Certificate(tmp_path, shown=seen.append)
    write_pair(tmp_path, "new", ends=2 * DAY)
    certificate.renew()
    assert seen[-1] == read_validity((tmp_path / "tls.crt").read_bytes())
    assert seen[-1].end - seen[0].end >= 0.9 * DAY


def test_one_that_begins_later_is_shown_where_there_is_no_other(tmp_path: Path) -> None:
    write_pair(tmp_path, "new", begins=HOUR)
    assert not Certificate(tmp_path).renew()


def test_old_tls_is_not_spoken(tmp_path: Path) -> None:
    write_pair(tmp_path, "old")
    assert Certificate(tmp_path).context.minimum_version >= ssl.TLSVersion.TLSv1_2


async def test_a_stop_answers_what_is_under_way_and_accepts_nothing_new() -> None:
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


async def test_it_accepts_for_as_long_as_it_lingers() -> None:
    async with serving(hello, linger_seconds=5) as (port, task), aiohttp.ClientSession() as session:
        task.cancel()
        await asyncio.sleep(2)
        async with session.get(f"http://127.0.0.1:{port}/") as answer:
            assert answer.status == 200
        await asyncio.sleep(10)
        assert task.done()


async def test_who_keeps_a_connection_is_told_before_it_ends() -> None:
    async with serving(hello, linger_seconds=5) as (port, task), aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/") as answer:
            assert "Connection" not in answer.headers
        task.cancel()
        await asyncio.sleep(2)
        async with session.get(f"http://127.0.0.1:{port}/") as answer:
            assert answer.headers.getall("Connection") == ["close"]


async def test_an_answer_that_does_not_come_is_not_waited_for_for_ever() -> None:
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


async def closed(port: int, *pieces: bytes, every_seconds: float = 1.0) -> tuple[float, bytes]:
    """Sends the pieces one by one; when the other side closed the connection, and what it said until then."""
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
async def test_a_head_that_does_not_end_is_cut_off(pieces: list[bytes]) -> None:
    async with serving(hello) as (port, _):
        seconds, said = await closed(port, *pieces)
    assert 4.9 < seconds < 6
    assert said == b""


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([], id="not used yet"),
        pytest.param([b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"], id="used before"),
    ],
)
async def test_a_connection_is_kept_for_longer_than_clients_keep_it(pieces: list[bytes]) -> None:
    """Go's keep it for 90 s, and lose the request that they send when we close it first."""
    async with serving(hello) as (port, _):
        seconds, said = await closed(port, *pieces)
    assert 100 < seconds < 130
    assert said.endswith(b"hello\r\n0\r\n\r\n") == bool(pieces)


async def test_a_second_request_is_held_to_the_same() -> None:
    async with serving(hello) as (port, _):
        seconds, said = await closed(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /", *[b"x"] * 100)
    assert 5.9 < seconds < 8
    assert said.endswith(b"hello\r\n0\r\n\r\n")


async def test_a_body_that_trickles_on_after_the_answer_is_cut_off() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
    async with serving(hello) as (port, _):
        seconds, _ = await closed(port, head, *[b"x"] * 1000)
    assert seconds < 36


async def test_a_head_of_any_size_is_not_kept() -> None:
    async with serving(hello) as (port, _):
        pieces = [b"GET / HTTP/1.1\r\n", *[b"a: " + b"x" * 1000 + b"\r\n"] * 1000]
        seconds, said = await closed(port, *pieces, every_seconds=0.001)
    assert seconds < 2
    assert b"too large" in said


async def test_a_port_that_is_taken_is_named() -> None:
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"):
            await serve(hello, "127.0.0.1", port)


async def test_a_tls_directory_without_a_pair_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="tls"):
        await serve(hello, "127.0.0.1", 0, tmp_path)


async def test_health_over_http() -> None:
    app = health_app(lambda: None, Metrics().registry)
    async with serving(app) as (port, _), aiohttp.ClientSession() as session:
        for path, text in {"/healthz": "ok", "/readyz": "true", "/metrics": "kubevirt_poolhouse_"}.items():
            async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                assert answer.status == 200
                assert text in await answer.text()
        async with session.get(f"http://127.0.0.1:{port}/other") as answer:
            assert answer.status == 404
        async with session.head(f"http://127.0.0.1:{port}/healthz") as answer:
            assert answer.status == 200


def test_not_ready_says_what_is_missing() -> None:
    status, _, body = health("/readyz", lambda: {"pools": "not listed yet"}, Metrics().registry)
    assert status == 503
    assert json.loads(body) == {"ready": False, "missing": {"pools": "not listed yet"}}
    assert health("/healthz", lambda: {"pools": "not listed yet"}, Metrics().registry)[0] == 200
