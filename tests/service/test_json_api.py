"""Endpoints answer a POST with a token, and refuse other requests with a message."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from poolhouse.service import json_api
from poolhouse.service.json_api import MAX_IN_FLIGHT, MAX_IN_FLIGHT_OF_TENANT, JsonApi
from poolhouse.service.request_body import MAX_BODY_BYTES

Json = dict[str, Any]
HEADERS = {"Authorization": "Bearer me", "Content-Type": "application/json"}


async def other(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def echo(document: Json, token: str) -> tuple[int, Json]:
    return 200, {token: document}


async def tenant_of(token: str) -> str:
    return token.partition("/")[0]


def client(answer: Any = echo) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=JsonApi(other, {"/ask": answer}, tenant_of))
    return httpx.AsyncClient(transport=transport, base_url="http://here", headers=HEADERS)


async def test_an_endpoint_answers() -> None:
    async with client() as http:
        answer = await http.post("/ask", json={"a": 1})
    assert (answer.status_code, answer.json()) == (200, {"me": {"a": 1}})


async def test_other_paths_reach_the_app() -> None:
    async with client() as http:
        assert (await http.get("/healthz")).status_code == 204


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b"", 400, id="empty"),
        pytest.param(b"no", 400, id="not JSON"),
        pytest.param(b"[" * 100_000, 400, id="nested too deeply"),
        pytest.param(b"[1]", 400, id="not an object"),
        pytest.param(b"\xff{}", 400, id="not UTF-8"),
        pytest.param(b" " * MAX_BODY_BYTES + b"{}", 413, id="too large"),
    ],
)
async def test_a_bad_body_is_refused_with_a_message(body: bytes, status: int) -> None:
    async with client() as http:
        answer = await http.post("/ask", content=body)
    assert answer.status_code == status
    assert answer.json()["problems"][0]["message"]


async def test_get_is_refused() -> None:
    async with client() as http:
        answer = await http.get("/ask")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")


@pytest.mark.parametrize("given", ["", "Basic bWU6bWU=", "Bearer ", "Bearer", "Bearer \xe9"])
async def test_a_request_without_a_token_is_refused(given: str) -> None:
    async with client() as http:
        answer = await http.post("/ask", json={"a": 1}, headers={b"Authorization": given.encode("latin-1")})
    assert answer.status_code == 401
    assert "Bearer" in answer.json()["problems"][0]["message"]


@pytest.mark.parametrize("tokens", [("me", "me"), ("me/a", "me/b")], ids=["one token", "two tokens of one tenant"])
async def test_one_tenant_does_not_take_the_places_of_others(tokens: tuple[str, str]) -> None:
    one, more = ({"Authorization": f"Bearer {token}"} for token in tokens)
    go = asyncio.Event()

    async def slow(document: Json, token: str) -> tuple[int, Json]:
        await go.wait()
        return 200, {}

    async with client(slow) as http, asyncio.TaskGroup() as group:
        asked = [group.create_task(http.post("/ask", json={}, headers=one)) for _ in range(MAX_IN_FLIGHT_OF_TENANT)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert (await http.post("/ask", json={}, headers=more)).status_code == 429
        another = group.create_task(http.post("/ask", json={}, headers={"Authorization": "Bearer another"}))
        go.set()
    assert [task.result().status_code for task in (*asked, another)] == [200] * (MAX_IN_FLIGHT_OF_TENANT + 1)


async def test_callers_together_are_limited_too() -> None:
    go = asyncio.Event()

    async def slow(document: Json, token: str) -> tuple[int, Json]:
        await go.wait()
        return 200, {}

    async with client(slow) as http, asyncio.TaskGroup() as group:
        headers = [{"Authorization": f"Bearer {number}"} for number in range(MAX_IN_FLIGHT + 1)]
        asked = [group.create_task(http.post("/ask", json={}, headers=each)) for each in headers[1:]]
        for _ in range(10):
            await asyncio.sleep(0)
        assert (await http.post("/ask", json={}, headers=headers[0])).status_code == 429
        go.set()
    assert [task.result().status_code for task in asked] == [200] * MAX_IN_FLIGHT


async def test_the_body_of_a_token_that_nobody_knows_is_not_read() -> None:
    async def nobody(token: str) -> tuple[int, Json]:
        return 401, {}

    async def never_read() -> AsyncIterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    transport = httpx.ASGITransport(app=JsonApi(other, {"/ask": echo}, nobody))
    async with httpx.AsyncClient(transport=transport, base_url="http://here", headers=HEADERS) as http:
        assert (await http.post("/ask", content=never_read())).status_code == 401


async def test_a_body_is_parsed_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def parse(body: bytes) -> Json:
        threads.append(threading.get_ident())
        return {}

    monkeypatch.setattr(json_api, "parse", parse)
    async with client() as http:
        assert (await http.post("/ask", json={})).status_code == 200
    assert len(threads) == 1
    assert threads != [threading.get_ident()]
