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

from poolhouse.cli.output import Failed
from poolhouse.console import vm_usage
from poolhouse.console.cluster_state import ClusterState
from poolhouse.console.vm_usage import parse_series, parse_url, usage
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
    async with TestServer(app) as server, api_server(tmp_path) as api:
        yield await usage(ClusterState(api, None, "alice"), str(server.make_url("/")).rstrip("/"), "shop", "web-1")


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
        pytest.param(answering("{}", 503), "status 503", id="an error"),
        pytest.param(answering("", 302, Location="http://127.0.0.1:1/"), "status 302", id="a redirect is not followed"),
        pytest.param(answering("<html>"), "something else than a series", id="a login page"),
        pytest.param(answering("[]"), "something else than a series", id="JSON of another form"),
        pytest.param(answering(" " * 300_000), "more than 262144 bytes", id="too much"),
        pytest.param(hang, "no answer within 2 s", id="no answer"),
    ],
)
async def test_a_page_without_charts_says_why(tmp_path: Path, answer: Answer, problem: str) -> None:
    async with part_of_page(tmp_path, answer) as (part,):
        assert part["charts"] == []
        assert problem in part["problem"]
        assert bool(part["problem"]) == bool(problem)


async def test_a_prometheus_that_is_away_is_named(tmp_path: Path) -> None:
    async with api_server(tmp_path) as api:
        (part,) = await usage(ClusterState(api, None, "alice"), "http://127.0.0.1:1", "shop", "web-1")
    assert part["problem"] == "Prometheus cannot be reached at 127.0.0.1:1."


async def test_nothing_is_asked_without_a_prometheus(tmp_path: Path) -> None:
    async with api_server(tmp_path) as api:
        assert await usage(ClusterState(api, None, "alice"), "", "shop", "web-1") == []


def test_points_are_times_and_values() -> None:
    assert parse_series(json.dumps(series((1, "2.5"), (31, "NaN"), (61, "3"))).encode()) == [(1.0, 2.5), (61.0, 3.0)]


@pytest.mark.parametrize("url", ["prometheus:9090", "file:///etc/passwd", "http://", "http://p/?query=1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(Failed, match="--prometheus: must be an http or https URL"):
        parse_url(url)


def test_a_path_stays() -> None:
    assert parse_url("https://p.example/prometheus/") == "https://p.example/prometheus"
