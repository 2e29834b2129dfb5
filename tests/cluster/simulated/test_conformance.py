"""The engine behaves as KubeVirt does, and the command that checks it cleans up."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from poolhouse.api.kubevirt.behaviours import BEHAVIOURS
from poolhouse.cli.conformance import check
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import NAMESPACES
from poolhouse.stack.paths import StackPaths
from tests.waiting import eventually

PREFIX = "poolhouse-conformance-"


@pytest_asyncio.fixture
async def api(simulated: StackPaths) -> AsyncIterator[Api]:
    async with await Api.connect(simulated.kubeconfig, user_agent="tests", timeout_seconds=60) as api:
        yield api


async def namespaces(api: Api) -> list[str]:
    found, _ = await api.list(NAMESPACES)
    return [name for each in found if (name := str(each["metadata"]["name"])).startswith(PREFIX)]


async def no_namespaces(api: Api) -> bool:
    return not await namespaces(api)


async def test_the_engine_behaves_like_kubevirt(api: Api) -> None:
    version, results = await check(api, BEHAVIOURS, 120)
    assert version.startswith("v1.")
    assert len(results) == len(BEHAVIOURS)
    assert [each for each in results if each.outcome != "ok"] == []


def command(simulated: StackPaths, *options: str) -> list[str]:
    return [
        sys.executable,
        "-P",
        "-m",
        "poolhouse.cli.main",
        "conformance",
        "--kubeconfig",
        str(simulated.kubeconfig),
        *options,
    ]


async def test_the_command_reports_and_cleans_up(simulated: StackPaths, api: Api) -> None:
    options = ("--only", "halted-vm-is-stopped", "--only", "restart", "--no-guests", "-o", "json")
    done = await asyncio.to_thread(subprocess.run, command(simulated, *options), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    outcomes = {each["name"]: each["outcome"] for each in json.loads(done.stdout)["behaviours"]}
    assert outcomes == {"halted-vm-is-stopped": "ok", "restart": "skipped"}
    await eventually(lambda: no_namespaces(api))


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_an_interrupted_command_cleans_up(
    simulated: StackPaths, api: Api, sent: signal.Signals, code: int
) -> None:
    running = await asyncio.create_subprocess_exec(
        *command(simulated),
        stdout=subprocess.DEVNULL,
        # A shell starts a command in the background with SIGINT ignored, and the tests may be such a command.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    await eventually(lambda: namespaces(api))
    running.send_signal(sent)
    assert await running.wait() == code
    await eventually(lambda: no_namespaces(api))
