"""The REST service, with scripted workers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from defaulter.app import create
from defaulter.contract import DEFAULTS_PATH
from defaulter.metrics import Metrics
from defaulter.worker_pool import DocumentFailed, QueueFull, RequestFailed, WorkerCounts
from poolhouse.service.request_body import MAX_BODY_BYTES


class Scripted:
    """Workers with one response or one exception."""

    def __init__(self, answer: tuple[int, bytes] | Exception) -> None:
        self.answer = answer
        self.counts = WorkerCounts()
        self.asked: list[bytes] = []

    def queue_length(self) -> int:
        return 0

    async def ask(self, tag: int, body: bytes = b"", *, tenant: str = "", urgent: bool = False) -> tuple[int, bytes]:
        self.asked.append(body)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def client(answer: tuple[int, bytes] | Exception, body_seconds: float = 5.0) -> httpx.AsyncClient:
    workers: Any = Scripted(answer)
    transport = httpx.ASGITransport(create(workers, Metrics(workers), body_seconds=body_seconds))
    headers = {"content-type": "application/json"}
    return httpx.AsyncClient(transport=transport, base_url="http://defaulter", headers=headers)


@pytest.mark.sentence("4.18")
def test_the_path_is_that_of_the_design_document() -> None:
    assert DEFAULTS_PATH == "/apis/vms/defaults"


@pytest.mark.parametrize(
    ("answer", "status", "sentence"),
    [
        pytest.param((200, b'{"a": 1}'), 200, '"a"', id="an answer is passed on"),
        pytest.param((422, b'{"problems": []}'), 422, "problems", id="problems are passed on"),
        pytest.param(QueueFull(), 429, "too many requests", id="busy"),
        pytest.param(RequestFailed("libvirt gave no answer within 2 s"), 503, "within 2 s", id="no worker"),
        pytest.param(DocumentFailed("two workers ended"), 501, "two workers ended", id="costly document"),
    ],
)
@pytest.mark.sentence("4.18")
async def test_statuses(answer: tuple[int, bytes] | Exception, status: int, sentence: str) -> None:
    async with client(answer) as http:
        found = await http.post(DEFAULTS_PATH, content=b"{}")
        assert (found.status_code, found.headers["content-type"]) == (status, "application/json")
        assert sentence in found.text
        assert ("retry-after" in found.headers) is (status in (429, 503))
        assert f'requests_total{{status="{status}"}} 1.0' in (await http.get("/metrics")).text


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_beyond_the_limit_is_not_read_to_its_end(declared: bool) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 65536
            yield b"x" * 65536

    async with client((200, b"{}")) as http:
        content = b"x" * (MAX_BODY_BYTES + 1) if declared else endless()
        found = await http.post(DEFAULTS_PATH, content=content)
    assert found.status_code == 413
    assert str(MAX_BODY_BYTES) in found.json()["problems"][0]["message"]
    assert sent < 2 * MAX_BODY_BYTES


async def test_a_compressed_body_gets_415() -> None:
    async with client((200, b"{}")) as http:
        found = await http.post(DEFAULTS_PATH, content=b"\x1f\x8b", headers={"content-encoding": "gzip"})
    assert found.status_code == 415


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_a_body_of_another_content_type_gets_415(kind: str) -> None:
    async with client((200, b"{}")) as http:
        found = await http.post(DEFAULTS_PATH, content=b"{}", headers={"content-type": kind})
    assert found.status_code == 415
    assert "application/json" in found.json()["problems"][0]["message"]


async def test_a_content_type_may_have_a_charset() -> None:
    async with client((200, b"{}")) as http:
        found = await http.post(
            DEFAULTS_PATH, content=b"{}", headers={"content-type": "Application/JSON; charset=utf-8"}
        )
    assert found.status_code == 200


async def test_a_body_that_arrives_too_slowly_gets_400() -> None:
    async def trickle() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async with client((200, b"{}"), body_seconds=0.05) as http:
        found = await http.post(DEFAULTS_PATH, content=trickle())
    assert found.status_code == 400


@pytest.mark.parametrize(
    ("answer", "status"),
    [((200, b"{}"), 200), ((503, b"ill"), 503), (RequestFailed("late"), 503), (QueueFull(), 503)],
)
async def test_ready_means_that_libvirt_answers_a_probe(answer: tuple[int, bytes] | Exception, status: int) -> None:
    async with client(answer) as http:
        assert (await http.get("/readyz")).status_code == status
        assert (await http.get("/healthz")).status_code == 200


async def test_readiness_says_why_no_worker_starts() -> None:
    workers: Any = Scripted((200, b"{}"))
    workers.counts.start_error = "there is no emulator for s390x here"
    http = httpx.AsyncClient(transport=httpx.ASGITransport(create(workers, Metrics(workers))), base_url="http://d")
    async with http:
        found = await http.get("/readyz")
        assert (found.status_code, found.text) == (503, "no worker starts: there is no emulator for s390x here")
        workers.counts.ready = 1
        assert (await http.get("/readyz")).status_code == 200, "another one works"


async def test_readiness_says_what_does_not_confine_the_workers() -> None:
    workers: Any = Scripted((200, b"{}"))
    workers.counts.unconfined = {"Landlock": "Function not implemented"}
    http = httpx.AsyncClient(transport=httpx.ASGITransport(create(workers, Metrics(workers))), base_url="http://d")
    async with http:
        found = await http.get("/readyz")
    assert found.status_code == 200
    assert found.text == "ok\nworkers are not confined by Landlock: Function not implemented"


async def test_the_version_names_libvirt_and_qemu() -> None:
    content = {"libvirt": "9.0.0", "qemu": {"amd64": "7.2.22"}, "machines": {"amd64": ["pc-q35-7.2"]}, "aliases": {}}
    async with client((200, json.dumps(content).encode())) as http:
        assert content.items() <= (await http.get("/version")).json().items()


@pytest.mark.parametrize(
    ("path", "media_type", "content"),
    [
        ("/openapi.json", "application/json", '"#/components/schemas/DefaultingRequest"'),
        ("/openapi.json", "application/json", '"name":"Poolhouse-Tenant","in":"header","required":false'),
        ("/docs", "text/html; charset=utf-8", "/apis/vms/defaults"),
        ("/docs", "text/html; charset=utf-8", "Poolhouse-Tenant"),
    ],
)
async def test_the_service_describes_its_endpoints(path: str, media_type: str, content: str) -> None:
    async with client((200, b"{}")) as http:
        found = await http.get(path)
    assert (found.status_code, found.headers["content-type"]) == (200, media_type)
    assert content in found.text


async def test_other_methods_are_not_allowed() -> None:
    async with client((200, b"{}")) as http:
        answer = await http.get(DEFAULTS_PATH)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
