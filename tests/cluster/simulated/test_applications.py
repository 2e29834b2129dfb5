"""Applications of claims in warm VMs, by the agents of simulated guests."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from poolhouse.stack.engine.agents.addresses import NETWORK
from poolhouse.stack.paths import StackPaths
from tests.cluster.claiming import Counter
from tests.cluster.pooling import until
from tests.cluster.warm_pools import RunningControllers, controllers, template

Json = dict[str, Any]

POLICY = {"allowApplication": True, "onEmpty": "Queue"}
APPLICATION = {"restartPolicy": "Never", "containers": [{"name": "build", "image": "builder:1"}]}


@pytest.fixture
def start(simulated: StackPaths, ours: Path) -> partial[AbstractAsyncContextManager[RunningControllers]]:
    """Starts the controllers, which reach the agents of the stack."""
    port = json.loads(simulated.ports.read_text())["agents"]
    return partial(controllers, ours, agent_proxy=f"127.0.0.1:{port}")


def with_network(**faults: str) -> Json:
    found = template(**faults)
    guest = found["spec"]["template"]["spec"]
    guest["domain"]["devices"] = {"interfaces": [{"name": "default", "masquerade": {}}]}
    guest["networks"] = [{"name": "default", "pod": {}}]
    return found


async def application(desk: Counter, name: str) -> str:
    return str(((await desk.claimed(name)).get("application") or {}).get("phase", ""))


async def test_a_warm_vm_runs_an_application_until_its_claim_ends(desk: Counter, start: Any) -> None:
    async with start():
        await desk.filled(1, agent={}, template=with_network(), claimPolicy=POLICY)
        await desk.claim("mine", poolName="web", application=APPLICATION)
        status = await desk.becomes("mine", "Ready")
        assert (status["launchType"], status["attempts"]) == ("Warm", 1)
        assert ip_address(status["addresses"][0]) in NETWORK
        await until(lambda: application(desk, "mine"), "Running")
        began = (await desk.claimed("mine"))["application"]["startTime"]
    async with start():  # a second process launches nothing again
        await until(lambda: application(desk, "mine"), "Running")
        await desk.alter("mine", release=True)
        status = await desk.becomes("mine", "Released")
    assert status["application"]["startTime"] == began
    (container,) = status["application"]["containers"]
    assert status["application"]["phase"] == "Succeeded", "the agent has stopped it before its VM was deleted"
    assert container["state"]["terminated"]["exitCode"] == 0


async def test_an_application_that_fails_is_the_claims_own(desk: Counter, start: Any) -> None:
    async with start():
        faults = {"application_seconds": "0.5", "application_exit_code": "3"}
        await desk.filled(1, agent={}, template=with_network(**faults), claimPolicy=POLICY)
        await desk.claim("mine", poolName="web", application=APPLICATION)
        await until(lambda: application(desk, "mine"), "Failed")
        status = await desk.claimed("mine")
        assert (status["phase"], status["attempts"]) == ("Ready", 1), "no other VM is tried"
        (container,) = status["application"]["containers"]
        assert container["state"]["terminated"]["exitCode"] == 3
        for kind in ("ApplicationHealthy", "Ready", "Stalled"):
            assert await desk.reason("mine", kind) == "ApplicationFailed"


async def test_vms_without_an_agent_that_answers_are_not_given_away(desk: Counter, start: Any) -> None:
    async with start():
        await desk.pool(1, agent={}, template=with_network(application="false"), claimPolicy=POLICY)
        await desk.claim("mine", poolName="web", application=APPLICATION, bindTimeoutSeconds=5)
        status = await desk.becomes("mine", "Failed", 120)
        assert "vmRef" not in status
