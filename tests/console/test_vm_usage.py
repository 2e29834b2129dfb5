"""The charts of a VM, with a server that answers as Prometheus may."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner

from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.console import vm_usage
from poolhouse.console.cluster_state import ClusterState
from poolhouse.console.command import console
from poolhouse.console.vm_usage import DEADLINE_SECONDS, labels, usage
from poolhouse.runtime.resource import VMS
from poolhouse.service.prometheus import Prometheus, PrometheusServer, connect
from tests.runtime.faulty_server import Request, Server, status

Json = dict[str, Any]
Answer = Callable[[web.Request], Awaitable[web.Response]]
KEY = ("shop", "web-1")


def series(*values: tuple[float, str]) -> Json:
    result = [{"metric": {}, "values": [list(each) for each in values]}] if values else []
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


@dataclass
class Vm:
    """A VM at the API server."""

    created: datetime = field(default_factory=lambda: datetime.now(UTC) - timedelta(days=1))
    uid: str = "uid-1"
    refused: int = 0
    """status with which the API server refuses it"""

    async def answer(self, request: Request) -> None:
        if self.refused:
            await request.answer(self.refused, status(self.refused, "Refused"))
            return
        names = {"namespace": "shop", "name": "web-1", "uid": self.uid}
        await request.answer(200, {"metadata": {**names, "creationTimestamp": format_time(self.created)}})


@asynccontextmanager
async def console_state(folder: Path, vm: Vm) -> AsyncIterator[ClusterState]:
    async with Server() as server, await server.connect(folder) as api:
        server.script = vm.answer
        yield ClusterState(api, None, "alice")


@asynccontextmanager
async def prometheus_of(answer: Answer) -> AsyncIterator[Prometheus]:
    app = web.Application()
    app.router.add_post("/api/v1/query_range", answer)
    async with (
        TestServer(app) as server,
        connect(PrometheusServer(str(server.make_url(""))), DEADLINE_SECONDS) as found,
    ):
        assert found is not None
        yield found


@dataclass
class Asked:
    """A Prometheus that records what it is asked."""

    queries: list[tuple[str, str, float]] = field(default_factory=list)
    """each with its namespace and its period in seconds"""

    async def answer(self, request: web.Request) -> web.Response:
        values = {name: str(value) for name, value in (await request.post()).items()}
        start, end = float(values["start"]), float(values["end"])
        self.queries.append((values["query"], request.query["namespace"], end - start))
        return web.json_response(series((start, "0.5"), (end, "2147483648")))


async def test_both_charts_are_of_the_vm(tmp_path: Path) -> None:
    asked = Asked()
    async with prometheus_of(asked.answer) as prometheus, console_state(tmp_path, Vm()) as state:
        (part,) = await usage(state, prometheus, VMS, KEY)
    assert part["problem"] == ""
    assert [name for chart in part["charts"] for name in vm_usage.CHARTS if name in chart] == list(vm_usage.CHARTS)
    assert ">2</text>" in part["charts"][1]
    assert all('class="line-0"' in each for each in part["charts"])
    selector = '{namespace="shop",name="web-1"}'
    assert sorted(asked.queries) == [
        (f"sum(kubevirt_vmi_memory_resident_bytes{selector})", "shop", 3600),
        (f"sum(rate(kubevirt_vmi_cpu_usage_seconds_total{selector}[5m]))", "shop", 3600),
    ]


@pytest.mark.parametrize("code", [401, 403, 404])
async def test_nothing_is_asked_about_a_vm_that_the_user_may_not_get(tmp_path: Path, code: int) -> None:
    asked = Asked()
    async with prometheus_of(asked.answer) as prometheus, console_state(tmp_path, Vm(refused=code)) as state:
        (part,) = await usage(state, prometheus, VMS, KEY)
    assert part["charts"] == []
    assert "The VirtualMachine cannot be read" in part["problem"]
    assert asked.queries == []


async def test_figures_that_are_in_memory_are_not_shown_once_the_right_is_lost(tmp_path: Path) -> None:
    asked, vm = Asked(), Vm()
    async with prometheus_of(asked.answer) as prometheus, console_state(tmp_path, vm) as state:
        (before,) = await usage(state, prometheus, VMS, KEY)
        vm.refused = 403
        (after,) = await usage(state, prometheus, VMS, KEY)
    assert (len(before["charts"]), len(after["charts"])) == (2, 0)
    assert len(asked.queries) == 2


async def test_figures_of_a_former_vm_with_the_same_name_are_not_shown(tmp_path: Path) -> None:
    asked, vm = Asked(), Vm()
    async with prometheus_of(asked.answer) as prometheus, console_state(tmp_path, vm) as state:
        await usage(state, prometheus, VMS, KEY)
        vm.uid, vm.created = "uid-2", datetime.now(UTC) - timedelta(seconds=600)
        await usage(state, prometheus, VMS, KEY)
        vm.uid, vm.created = "uid-3", datetime.now(UTC) + timedelta(seconds=600)  # the clocks differ
        await usage(state, prometheus, VMS, KEY)
    first, second, third = ({seconds for *_, seconds in asked.queries[each : each + 2]} for each in (0, 2, 4))
    assert first == {3600}
    assert all(600 <= each < 700 for each in second)
    assert third == {0}


@pytest.mark.parametrize(
    "name", ['a"} or vector(1) #', "a\\", 'a\\"', "a\nb", "a{b}", "é", "`", "'", "[5m]", "{labels}", ""]
)
def test_a_name_cannot_widen_the_query(name: str) -> None:
    """Each quoted string contains the whole name, and the rest of the query is that of the console."""
    found = labels(name, name)
    quoted = re.fullmatch(r'\{namespace=("(?:[^"\\\n]|\\.)*"),name=("(?:[^"\\\n]|\\.)*")\}', found)
    assert [json.loads(each) for each in quoted.groups()] == [name, name]


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
    async with prometheus_of(answer) as prometheus, console_state(tmp_path, Vm()) as state:
        (part,) = await usage(state, prometheus, VMS, KEY)
    assert part["charts"] == []
    assert problem in part["problem"]
    assert bool(part["problem"]) == bool(problem)


async def test_a_prometheus_that_is_away_is_named(tmp_path: Path) -> None:
    async with connect(PrometheusServer("http://127.0.0.1:1")) as prometheus, console_state(tmp_path, Vm()) as state:
        (found,) = await usage(state, prometheus, VMS, KEY)
    assert found["problem"].startswith("Prometheus cannot be reached: Cannot connect to host 127.0.0.1:1 ")


async def test_nothing_is_asked_without_a_prometheus(tmp_path: Path) -> None:
    async with console_state(tmp_path, Vm(refused=500)) as state:
        assert await usage(state, None, VMS, KEY) == []


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
