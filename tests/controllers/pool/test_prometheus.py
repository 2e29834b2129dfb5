"""The client of Prometheus, against servers that answer badly. tests/cluster asks a real Prometheus."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from controllers.pool.prometheus import MAX_BYTES, Prometheus, PrometheusError, PrometheusServer, parse_answer


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
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


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
        parse_answer(status, body)


def test_an_answer_without_samples() -> None:
    assert parse_answer(200, json.dumps(vector()).encode()) is None
    assert parse_answer(200, json.dumps(vector("+Inf")).encode()) == float("inf")


@pytest.mark.parametrize(
    "url", ["prometheus:9090", "file:///etc/passwd", "http://", "http://user:pw@host", "http://host/?query=up"]
)
def test_an_invalid_address(url: str) -> None:
    with pytest.raises(ValueError, match="POOLHOUSE_PROMETHEUS_URL"):
        PrometheusServer.parse(url, None)


def test_files_of_the_operator(tmp_path: Path) -> None:
    assert PrometheusServer.parse("", tmp_path) is None
    assert PrometheusServer.parse("http://p:9090/", tmp_path) == PrometheusServer("http://p:9090")
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text("")
    found = PrometheusServer.parse("https://p:9090", tmp_path)
    assert found == PrometheusServer("https://p:9090", tmp_path / "token", tmp_path / "ca.crt")
    with pytest.raises(ValueError, match="plain text"):
        PrometheusServer.parse("http://p:9090", tmp_path)
