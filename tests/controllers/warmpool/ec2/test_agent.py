"""The real clients against a real server: TCP, the gRPC health protocol, and the agent's own calls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controllers.warmpool.ec2.agent import AgentEndpoint, Application, NetworkAgentClient
from tests.cluster.instances import agent

WHO = Application("ns", "mine", "claim-uid")


@pytest.mark.sentence("5.14", "5.15")
async def test_health_launch_and_termination() -> None:
    async with agent() as found:
        endpoint, client = AgentEndpoint("127.0.0.1", found.port, grpc=True), NetworkAgentClient()
        assert (await client.health(endpoint, 60)).verdict == "Healthy"
        found.serving(False)
        health = await client.health(endpoint, 60)
        assert (health.verdict, health.reason) == ("Failed", "NotServing")
        assert (await client.health(AgentEndpoint("127.0.0.1", found.port), 60)).verdict == "Healthy"
        assert (await client.launch(endpoint, WHO, 60)).verdict == "Healthy"
        assert found.launched == [{"namespace": "ns", "name": "mine", "uid": "claim-uid"}]
        for phase, verdict in (("Pending", "Unable"), ("Failed", "Failed"), ("Succeeded", "Healthy"), ("", "Unable")):
            found.phase = phase
            assert (await client.launch(endpoint, WHO, 60)).verdict == verdict
        found.phase = "Failed"
        health = await client.application_health(endpoint, 60)
        assert (health.verdict, health.reason) == ("Failed", "ApplicationFailed")
        await client.terminate(endpoint, 60)
        assert found.terminated == 1


async def test_the_agent_gets_the_whole_spec() -> None:
    container = {
        "name": "build",
        "image": "builder:1",
        "command": ["make", "-j2"],
        "args": ["all"],
        "workingDir": "/src",
        "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
        "env": [{"name": "TOKEN", "value": "s3cret"}],
    }
    spec = {"containers": [container], "restartPolicy": "Never"}
    async with agent() as found:
        await NetworkAgentClient().launch(
            AgentEndpoint("127.0.0.1", found.port, grpc=True), replace(WHO, spec=spec), 60
        )
        assert found.specs == [spec]


@pytest.mark.parametrize("grpc", [False, True])
async def test_an_unreachable_agent_fails_the_health_check(grpc: bool) -> None:
    endpoint, client = AgentEndpoint("127.0.0.1", 9, grpc=grpc), NetworkAgentClient()
    health = await client.health(endpoint, 60)
    assert (health.verdict, health.reason) == ("Failed", "NoAnswer")
    if grpc:
        assert (await client.launch(endpoint, WHO, 60)).reason == "NoAnswer"
        await client.terminate(endpoint, 60)
