"""Questions over HTTP are answered, or refused with a sentence; health is somebody else's."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from service.json_api import AT_ONCE, BODY_LIMIT_BYTES, answering

Json = dict[str, Any]


async def other(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def echo(document: Json, token: str) -> tuple[int, Json]:
    return 200, {token: document}


def client(answer: Any = echo) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=answering(other, {"/ask": answer}))
    return httpx.AsyncClient(transport=transport, base_url="http://here", headers={"Authorization": "Bearer me"})


async def test_a_question_is_answered() -> None:
    async with client() as http:
        answer = await http.post("/ask", json={"a": 1})
    assert (answer.status_code, answer.json()) == (200, {"me": {"a": 1}})


async def test_everything_else_goes_on() -> None:
    async with client() as http:
        assert (await http.get("/healthz")).status_code == 204


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b"", 400, id="nothing"),
        pytest.param(b"no", 400, id="no JSON"),
        pytest.param(b"[" * 100_000, 400, id="nested without end"),
        pytest.param(b"[1]", 400, id="no object"),
        pytest.param(b"\xff{}", 400, id="no text"),
        pytest.param(b" " * BODY_LIMIT_BYTES + b"{}", 413, id="too large"),
    ],
)
async def test_what_is_no_question_is_refused_with_a_sentence(body: bytes, status: int) -> None:
    async with client() as http:
        answer = await http.post("/ask", content=body)
    assert answer.status_code == status
    assert answer.json()["problems"][0]["message"]


async def test_to_get_is_not_to_ask() -> None:
    async with client() as http:
        assert (await http.get("/ask")).status_code == 405


@pytest.mark.parametrize("given", ["", "Basic bWU6bWU=", "Bearer ", "Bearer"])
async def test_who_brings_no_token_is_told_nothing(given: str) -> None:
    async with client() as http:
        answer = await http.post("/ask", json={"a": 1}, headers={"Authorization": given})
    assert answer.status_code == 401
    assert "Bearer" in answer.json()["problems"][0]["message"]


async def test_too_many_questions_at_once_are_put_off() -> None:
    go = asyncio.Event()

    async def slow(document: Json, token: str) -> tuple[int, Json]:
        await go.wait()
        return 200, {}

    async with client(slow) as http, asyncio.TaskGroup() as group:
        asked = [group.create_task(http.post("/ask", json={})) for _ in range(AT_ONCE)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert (await http.post("/ask", json={})).status_code == 429
        go.set()
    assert [task.result().status_code for task in asked] == [200] * AT_ONCE
