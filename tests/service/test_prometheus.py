"""The client of Prometheus, against servers that answer badly. tests/cluster asks a real Prometheus."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from poolhouse.service.certificates import new_ca, new_server_certificate
from poolhouse.service.prometheus import (
    MAX_BYTES,
    Prometheus,
    PrometheusError,
    PrometheusServer,
    connect,
    parse_answer,
    parse_number,
    parse_series,
)

SETTING = "POOLHOUSE_PROMETHEUS_URL"


@dataclass
class Server:
    url: str = ""
    requests: list[tuple[str, dict[str, str], str | None]] = field(default_factory=list)
    answer: Any = None


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    found = Server()

    async def handle(request: web.Request) -> web.StreamResponse:
        form = {key: str(value) for key, value in (await request.post()).items()}
        found.requests.append((str(request.rel_url), form, request.headers.get("Authorization")))
        response: web.StreamResponse = found.answer()
        return response

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    async with TestServer(app) as running:
        found.url = str(running.make_url("")).rstrip("/")
        yield found


def vector(*values: str) -> dict[str, Any]:
    result = [{"metric": {}, "value": [1, value]} for value in values]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


async def query(server: Server, **given: Any) -> float | None:
    async with aiohttp.ClientSession() as session:
        return await Prometheus(PrometheusServer(server.url, **given), session).query("up", "team-a")


async def test_a_query_has_the_namespace_and_the_token_of_the_file(server: Server, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    server.answer = lambda: web.json_response(vector("1"))
    assert await query(server, token_file=tmp_path / "token") == 1
    ((path, form, authorization),) = server.requests
    assert path == "/api/v1/query?namespace=team-a"
    assert form == {"query": "up", "timeout": "5s"}
    assert authorization == "Bearer secret"


async def test_a_server_is_verified_with_the_authority_of_the_directory(tmp_path: Path) -> None:
    now, day = datetime.now(UTC), timedelta(days=1)
    authority, other = (new_ca(name, now, day) for name in ("this", "other"))
    leaf = new_server_certificate(authority, "prometheus", ["127.0.0.1"], now, day)
    (tmp_path / "server.pem").write_bytes(leaf.certificate + leaf.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(vector("1"))

    async def ask(url: str, bundle: bytes) -> float | None:
        (tmp_path / "ca.crt").write_bytes(bundle)
        async with connect(PrometheusServer.parse(SETTING, url, tmp_path)) as prometheus:
            return await prometheus.query("up", "team-a")

    app = web.Application()
    app.router.add_post("/api/v1/query", answer)
    running = TestServer(app, scheme="https")
    await running.start_server(ssl=context)
    try:
        assert await ask(str(running.make_url("")), authority.certificate) == 1
        with pytest.raises(PrometheusError, match="CERTIFICATE_VERIFY_FAILED"):
            await ask(str(running.make_url("")), other.certificate)
    finally:
        await running.close()


async def test_a_redirect_is_not_followed(server: Server) -> None:
    server.answer = lambda: web.Response(status=302, headers={"Location": f"{server.url}/elsewhere"})
    with pytest.raises(PrometheusError, match="answered 302 without JSON"):
        await query(server)
    assert len(server.requests) == 1


async def test_an_endless_answer_is_cut_off(server: Server) -> None:
    server.answer = lambda: web.Response(body=b"x" * (MAX_BYTES + 1))
    with pytest.raises(PrometheusError, match="too many results"):
        await query(server)


async def test_a_server_that_is_gone(server: Server) -> None:
    server.url = "http://127.0.0.1:1"
    with pytest.raises(PrometheusError, match="cannot be reached"):
        await query(server)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        pytest.param(200, b"<html>", "without JSON", id="a page"),
        pytest.param(200, b"[]", "no reason", id="a list"),
        pytest.param(422, b'{"status": "error", "error": "too much"}', "answered 422: too much", id="an error"),
        pytest.param(200, json.dumps(vector("1", "2")).encode(), "has 2 results", id="two samples"),
        pytest.param(200, json.dumps(vector("one")).encode(), "unknown form", id="a sample that is no number"),
        pytest.param(
            200, b'{"status": "success", "data": {"resultType": "vector", "result": [{}]}}', "unknown form", id="empty"
        ),
        pytest.param(200, b'{"status": "success", "data": {}}', "type None", id="no data"),
    ],
)
def test_an_answer_that_is_no_number(status: int, body: bytes, words: str) -> None:
    with pytest.raises(PrometheusError, match=words):
        parse_number(parse_answer(status, body))


async def test_a_range_is_asked_for_with_its_times(server: Server) -> None:
    values = [[1, "2.5"], [31, "NaN"], [61, "3"]]
    server.answer = lambda: web.json_response({"status": "success", "data": {"result": [{"values": values}]}})
    async with connect(PrometheusServer(server.url), 2) as prometheus:
        found = await prometheus.query_range("up", "team-a", start=1.2, end=61.2, step_seconds=30)
    assert found == [(1.0, 2.5), (61.0, 3.0)]
    ((path, form, _),) = server.requests
    assert path == "/api/v1/query_range?namespace=team-a"
    assert form == {"query": "up", "start": "1", "end": "61", "step": "30", "timeout": "2s"}


def test_a_range_without_or_with_an_unknown_series() -> None:
    assert parse_series({"result": []}) == []
    for data in (None, {}, {"result": [{}]}, {"result": [{"values": [1]}]}):
        with pytest.raises(PrometheusError, match="something else than a series"):
            parse_series(data)


def test_an_answer_without_samples() -> None:
    assert parse_number(vector()["data"]) is None
    assert parse_number(vector("+Inf")["data"]) == float("inf")


@pytest.mark.parametrize(
    "url",
    [
        *("prometheus:9090", "file:///etc/passwd", "http://", "http://user:pw@host", "http://host/?query=up"),
        *("http://host:port", "http://host:99999", "http://host:0", "http://[::1", "http://host/#up"),
    ],
)
def test_an_invalid_address(url: str) -> None:
    with pytest.raises(ValueError, match=r"^POOLHOUSE_PROMETHEUS_URL: Invalid value: .*must be an http or https URL"):
        PrometheusServer.parse(SETTING, url, None)


def test_files_of_the_operator(tmp_path: Path) -> None:
    assert PrometheusServer.parse(SETTING, "", tmp_path) is None
    assert PrometheusServer.parse(SETTING, "http://p:9090/", tmp_path) == PrometheusServer("http://p:9090")
    (tmp_path / "token").write_text("secret")
    found = PrometheusServer.parse(SETTING, "https://p:9090", tmp_path)
    assert found == PrometheusServer("https://p:9090", tmp_path / "token")
    with pytest.raises(ValueError, match="plain text"):
        PrometheusServer.parse(SETTING, "http://p:9090", tmp_path)
    (tmp_path / "ca.crt").write_text("no certificate")
    with pytest.raises(ValueError, match=f"{SETTING}: .*ca.crt has no certificate of an authority"):
        PrometheusServer.parse(SETTING, "https://p:9090", tmp_path)
