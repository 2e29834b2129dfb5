"""The charts of a VM, with a server that answers as Prometheus may."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner

from poolhouse.console import vm_usage
from poolhouse.console.cluster_state import ClusterState
from poolhouse.console.command import console
from poolhouse.console.vm_usage import DEADLINE_SECONDS, usage
from poolhouse.service.prometheus import PrometheusServer, connect
from tests.console.test_vm_stream import api_server

Json = dict[str, Any]
Answer = Callable[[web.Request], Awaitable[web.Response]]


def series(*values: tuple[float, str]) -> Json:
    result = [{"metric": {}, "values": [list(each) for each in values]}] if values else []
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


@asynccontextmanager
async def part_of_page(tmp_path: Path, answer: Answer) -> Any:
    app = web.Application()
    app.router.add_post("/api/v1/query_range", answer)
    async with TestServer(app) as server:
        yield await part(tmp_path, str(server.make_url("/")).rstrip("/"))


async def part(tmp_path: Path, url: str) -> list[Json]:
    server = PrometheusServer(url) if url else None
    async with api_server(tmp_path) as api, connect(server, DEADLINE_SECONDS) as prometheus:
        return await usage(ClusterState(api, None, "alice"), prometheus, "shop", "web-1")


async def test_both_charts_are_of_the_vm(tmp_path: Path) -> None:
    asked = []

    async def answer(request: web.Request) -> web.Response:
        values = await request.post()
        asked.append((values["query"], request.query["namespace"]))
        return web.json_response(
            series((float(str(values["start"])), "0.5"), (float(str(values["end"])), "2147483648"))
        )

    async with part_of_page(tmp_path, answer) as (part,):
        assert part["problem"] == ""
        assert [name for chart in part["charts"] for name in vm_usage.CHARTS if name in chart] == list(vm_usage.CHARTS)
        assert ">2</text>" in part["charts"][1]
        assert all('class="line-0"' in each for each in part["charts"])
    labels = '{namespace="shop",name="web-1"}'
    assert sorted(asked) == [
        (f"sum(kubevirt_vmi_memory_resident_bytes{labels})", "shop"),
        (f"sum(rate(kubevirt_vmi_cpu_usage_seconds_total{labels}[5m]))", "shop"),
    ]


async def hang(request: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


def answering(text: str, status: int = 200, **headers: str) -> Answer:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=text, status=status, headers=headers)

    return answer


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(answering(json.dumps(series())), "", id="no series"),
        pytest.param(answering("{}", 503), "answered 503: no reason", id="an error"),
        pytest.param(
            answering("", 302, Location="http://127.0.0.1:1/"),
            "answered 302 without JSON",
            id="a redirect is not followed",
        ),
        pytest.param(answering("<html>"), "answered 200 without JSON", id="a login page"),
        pytest.param(answering("[]"), "answered 200: no reason", id="JSON of another form"),
        pytest.param(answering(" " * 300_000), "too many results", id="too much"),
        pytest.param(hang, "no answer within 2 s", id="no answer"),
    ],
)
async def test_a_page_without_charts_says_why(tmp_path: Path, answer: Answer, problem: str) -> None:
    async with part_of_page(tmp_path, answer) as (part,):
        assert part["charts"] == []
        assert problem in part["problem"]
        assert bool(part["problem"]) == bool(problem)


async def test_a_prometheus_that_is_away_is_named(tmp_path: Path) -> None:
    (found,) = await part(tmp_path, "http://127.0.0.1:1")
    assert found["problem"].startswith("Prometheus cannot be reached: Cannot connect to host 127.0.0.1:1 ")


async def test_nothing_is_asked_without_a_prometheus(tmp_path: Path) -> None:
    assert await part(tmp_path, "") == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--prometheus", "prometheus:9090"], "--prometheus: Invalid value", id="not a URL"),
        pytest.param(["--prometheus-dir", "."], "--prometheus-dir needs --prometheus URL", id="a token for no address"),
        pytest.param(["--prometheus", "http://p", "--prometheus-dir", "no"], "does not exist", id="no directory"),
    ],
)
def test_a_prometheus_that_cannot_be_asked_is_refused(tmp_path: Path, arguments: list[str], words: str) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("")
    result = CliRunner().invoke(console, [*arguments, "--kubeconfig", str(kubeconfig)])
    assert result.exit_code != 0
    assert words in result.output
