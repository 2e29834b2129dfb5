"""The paths that every service has. Here the application is called as a server calls it."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Gauge

from poolhouse.runtime.metrics import Metrics
from poolhouse.service import health as module
from poolhouse.service.callers import ABORT
from poolhouse.service.health import PAGES_PER_ADDRESS, PIECE_BYTES, health, health_app
from tests.service.test_server import serving
from tests.virtual_loop import VirtualLoop

Headers = dict[bytes, bytes]


async def get(
    app: Any, path: str = "/metrics", address: str = "192.0.2.1", **headers: str
) -> tuple[int, Headers, bytes]:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "GET", "path": path, "headers": given, "client": (address, 1)}
    await app(scope, None, send)
    assert [each["more_body"] for each in sent[1:]] == [True] * (len(sent) - 2) + [False]
    assert all(len(each["body"]) <= PIECE_BYTES for each in sent[1:])
    body = b"".join(each["body"] for each in sent[1:])
    answer = dict(sent[0]["headers"])
    assert answer[b"content-length"] == str(len(body)).encode()
    return sent[0]["status"], answer, body


def large() -> CollectorRegistry:
    registry = CollectorRegistry()
    gauge = Gauge("many", "Many.", ("number",), registry=registry)
    for number in range(10_000):
        gauge.labels(str(number)).set(number)
    return registry


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
        async with session.post(f"http://127.0.0.1:{port}/metrics") as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


def test_readyz_names_what_is_missing() -> None:
    status, _, body = health("/readyz", lambda: {"pools": "not listed yet"}, Metrics().registry)
    assert status == 503
    assert json.loads(body) == {"ready": False, "missing": {"pools": "not listed yet"}}
    assert health("/healthz", lambda: {"pools": "not listed yet"}, Metrics().registry)[0] == 200


@pytest.mark.parametrize(
    ("accepted", "compressed"),
    [("gzip", True), ("deflate, gzip;q=0.5", True), ("gzip;q=0", False), ("br", False), ("", False)],
)
async def test_a_page_is_compressed_for_clients_that_accept_it(accepted: str, compressed: bool) -> None:
    status, headers, body = await get(health_app(lambda: None, large()), accept_encoding=accepted)
    assert (status, headers.get(b"content-encoding")) == (200, b"gzip" if compressed else None)
    text = gzip.decompress(body) if compressed else body
    assert text.count(b"\n") == 10_002


def test_an_address_gets_a_page_a_few_times_and_other_addresses_still_get_it() -> None:
    async def ask() -> None:
        app = health_app(lambda: None, large())
        answers = await asyncio.gather(*(get(app) for _ in range(24)))
        assert sorted(each[0] for each in answers) == [200] * PAGES_PER_ADDRESS + [429] * (24 - PAGES_PER_ADDRESS)
        assert all(headers[b"retry-after"] == b"1" for status, headers, _ in answers if status == 429)
        assert (await get(app, address="192.0.2.2"))[0] == 200

    loop = VirtualLoop()
    try:
        loop.run_until_complete(ask())
    finally:
        loop.close()


async def test_metrics_may_ask_for_a_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    app = health_app(lambda: None, Metrics().registry, file)
    assert (await get(app, authorization="Bearer "))[0] == 401, "without a file nobody may scrape"
    file.write_text("")
    assert (await get(app, authorization="Bearer "))[0] == 401, "an empty token is none"
    file.write_text("secret\n")
    for given in ({}, {"authorization": "Bearer other"}, {"authorization": "Basic secret"}):
        status, headers, body = await get(app, **given)
        assert (status, headers[b"www-authenticate"], b"kubevirt" in body) == (401, b"Bearer", False)
    assert (await get(app, authorization="Bearer secret"))[0] == 200
    file.write_text("next")
    assert (await get(app, authorization="Bearer secret"))[0] == 401, "a changed file is read again"
    assert (await get(app, "/healthz"))[0] == 200, "probes have no token"


def test_a_client_that_does_not_read_is_disconnected() -> None:
    async def ask() -> None:
        aborted = asyncio.Event()

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.body":
                await aborted.wait()

        scope = {"type": "http", "method": "GET", "path": "/metrics", "headers": [], "client": ("192.0.2.1", 1)}
        scope["extensions"] = {ABORT: aborted.set}
        loop = asyncio.get_running_loop()
        began = loop.time()
        await health_app(lambda: None, large())(scope, None, send)
        assert module.SEND_SECONDS <= loop.time() - began < module.SEND_SECONDS + 1

    loop = VirtualLoop()
    try:
        loop.run_until_complete(ask())
    finally:
        loop.close()
