"""The real clients against a real server: TCP, the gRPC health protocol, and the agent's own calls."""

from __future__ import annotations

import pytest

from controllers.warmpool.ec2.agent import AgentEndpoint, Application, NetworkAgentClient
from tests.cluster.instances import agent

WHO = Application("ns", "mine", "claim-uid")


async def test_an_agent_is_asked_for_its_health_and_launches_a_claims_application() -> None:
    async with agent() as found:
        place, network = AgentEndpoint("127.0.0.1", found.port, grpc=True), NetworkAgentClient()
        assert (await network.health(place, 60)).verdict == "Healthy"
        found.serving(False)
        health = await network.health(place, 60)
        assert (health.verdict, health.reason) == ("Failed", "NotServing")
        assert (await network.health(AgentEndpoint("127.0.0.1", found.port), 60)).verdict == "Healthy"
        assert (await network.launch(place, WHO, 60)).verdict == "Healthy"
        assert found.launched == [{"namespace": "ns", "name": "mine", "uid": "claim-uid"}]
        for phase, verdict in (("Pending", "Unable"), ("Failed", "Failed"), ("Succeeded", "Healthy"), ("", "Unable")):
            found.phase = phase
            assert (await network.launch(place, WHO, 60)).verdict == verdict
        await network.terminate(place, 60)
        assert found.terminated == 1


@pytest.mark.parametrize("grpc", [False, True])
async def test_an_agent_that_is_away_is_a_failed_check_and_nothing_worse(grpc: bool) -> None:
    place, network = AgentEndpoint("127.0.0.1", 9, grpc=grpc), NetworkAgentClient()
    health = await network.health(place, 60)
    assert (health.verdict, health.reason) == ("Failed", "NoAnswer")
    if grpc:
        assert (await network.launch(place, WHO, 60)).reason == "NoAnswer"
        await network.terminate(place, 60)
