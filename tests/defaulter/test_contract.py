"""The client, with servers that answer, reject, misbehave and hang."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from defaulter.contract import (
    DEFAULTS_PATH,
    Defaulter,
    DefaulterOverloaded,
    DefaulterUnavailable,
    InvalidDocument,
    UndecidedDocument,
)
from tests.serving import serving

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def asked(handler: Handler, timeout_seconds: float = 60, kubevirt: Any = None, **call: Any) -> Any:
    async with (
        serving(web.post(DEFAULTS_PATH, handler)) as port,
        Defaulter(f"http://127.0.0.1:{port}/", timeout_seconds, kubevirt=lambda: kubevirt) as defaulter,
    ):
        return await defaulter.complete({"kind": "VirtualMachine"}, **call)


@pytest.mark.sentence("4.28")
async def test_the_client_sends_the_envelope_and_returns_its_object() -> None:
    envelopes = []

    async def handler(request: web.Request) -> web.Response:
        envelopes.append(await request.json())
        return web.json_response({"object": envelopes[0]["object"], "warnings": ["w"]})

    answer = await asked(handler, kubevirt={"spec": {}}, old={"a": 1}, namespace="ns", seed="s")
    assert answer.warnings == ("w",)
    assert answer.object == {"kind": "VirtualMachine"}
    assert envelopes[0] == {
        "apiVersion": "poolhouse.dev/v1alpha1",
        "kind": "DefaultingRequest",
        "object": {"kind": "VirtualMachine"},
        "oldObject": {"a": 1},
        "namespace": "ns",
        "seed": "s",
        "kubevirt": {"spec": {}},
    }


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_an_invalid_document_raises_every_problem(status: int) -> None:
    async def handler(request: web.Request) -> web.Response:
        problems = [{"path": "spec.a", "message": "one"}, {"path": "", "message": "two"}]
        return web.json_response({"problems": problems}, status=status)

    with pytest.raises(InvalidDocument, match=r"spec.a: one; two") as refused:
        await asked(handler)
    assert [problem.path for problem in refused.value.problems] == ["spec.a", ""]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (503, json.dumps({"problems": [{"path": "", "message": "libvirt is ill"}]})),
        (429, "{}"),
        (500, "Internal Server Error"),
        (404, "<html>"),
        (200, "not json"),
        (200, "[]"),
        (200, '{"object": 3}'),
    ],
)
async def test_any_other_response_means_unavailable(status: int, body: str) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    with pytest.raises(DefaulterUnavailable):
        await asked(handler)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        pytest.param(429, DefaulterOverloaded, id="busy"),
        pytest.param(500, UndecidedDocument, id="an error in the code that handles this document"),
        pytest.param(501, UndecidedDocument, id="no emulator"),
        pytest.param(502, DefaulterUnavailable, id="a proxy"),
        pytest.param(503, DefaulterUnavailable, id="no worker"),
    ],
)
async def test_the_status_says_whether_the_service_or_the_document_fails(status: int, error: type[Exception]) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response({"problems": [{"path": "spec.a", "message": "why"}]}, status=status)

    with pytest.raises(DefaulterUnavailable, match=r"^spec.a: why$") as failed:
        await asked(handler)
    assert type(failed.value) is error


async def test_a_server_that_hangs_is_unavailable_after_the_timeout() -> None:
    async def handler(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    with pytest.raises(DefaulterUnavailable, match=r"within 0.3 s"):
        await asked(handler, timeout_seconds=0.3)


async def test_a_server_that_does_not_run_is_unavailable() -> None:
    with pytest.raises(DefaulterUnavailable):
        await Defaulter("http://127.0.0.1:9").complete({})


def test_the_contract_needs_neither_libvirt_nor_a_server() -> None:
    program = (
        "import sys, defaulter.contract as c; c.undefaulted_fields({});"
        "print(*(m for m in ('libvirt', 'lxml', 'fastapi', 'uvicorn', 'aiohttp') if m in sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
