"""The real clients against a real server: TCP, the gRPC health protocol, and the agent's own calls."""

from __future__ import annotations

import pytest

from controllers.shared.pace import Pace
from controllers.warmpool.agent import (
    MAX_CONTAINERS,
    MAX_STATUS_BYTES,
    AgentEndpoint,
    ApplicationHealth,
    LogsRefused,
    NetworkAgentClient,
    application_health,
)
from controllers.warmpool.agent_protocol import messages
from tests.controllers.warmpool.agents import agent, garbling_agent

WHO = {"metadata": {"namespace": "ns", "name": "mine", "uid": "claim-uid"}}


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
        await client.terminate(endpoint, 60, 30.0, "claim-uid")
        assert found.terminations == [{}, {"gracePeriodSeconds": "30", "podUID": "claim-uid"}]


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
        await NetworkAgentClient().launch(AgentEndpoint("127.0.0.1", found.port, grpc=True), {**WHO, "spec": spec}, 60)
        assert found.specs == [spec]


@pytest.mark.parametrize("grpc", [False, True])
async def test_an_unreachable_agent_fails_the_health_check(grpc: bool) -> None:
    endpoint, client = AgentEndpoint("127.0.0.1", 9, grpc=grpc), NetworkAgentClient()
    health = await client.health(endpoint, 60)
    assert (health.verdict, health.reason) == ("Failed", "NoAnswer")
    if grpc:
        assert (await client.launch(endpoint, WHO, 60)).reason == "NoAnswer"
        await client.terminate(endpoint, 60)


async def test_a_refused_application_is_no_missing_answer() -> None:
    spec = {"containers": [{"name": "a"}]}
    async with agent() as found:
        endpoint = AgentEndpoint("127.0.0.1", found.port, grpc=True)
        health = await NetworkAgentClient().launch(endpoint, {**WHO, "spec": spec}, 60)
        assert (health.verdict, health.reason) == ("Failed", "LaunchRefused")
        assert "no restart policy" in health.message


async def test_an_answer_that_cannot_be_read_is_a_failure() -> None:
    async with agent() as found:
        found.seconds = 2**60
        health = await NetworkAgentClient().application_health(AgentEndpoint("127.0.0.1", found.port, grpc=True), 60)
        assert (health.verdict, health.reason) == ("Failed", "InvalidAnswer")


async def test_an_accepted_application_counts_as_launched_whatever_the_agent_says_next() -> None:
    """Otherwise another VM would start it a second time."""
    async with agent() as found:
        found.seconds = 2**60
        health = await NetworkAgentClient().launch(AgentEndpoint("127.0.0.1", found.port, grpc=True), WHO, 60)
        assert found.launched
    assert isinstance(health, ApplicationHealth)
    assert (health.verdict, health.reason) == ("Unable", "InvalidAnswer")


async def test_a_time_before_1970_is_one_that_the_api_server_takes() -> None:
    async with agent() as found:
        found.seconds = -62135596800  # Go's zero time
        health = await NetworkAgentClient().application_health(AgentEndpoint("127.0.0.1", found.port, grpc=True), 60)
    assert isinstance(health, ApplicationHealth)
    assert health.status["startTime"] == "0001-01-01T00:00:00Z"


def report(containers: int, name: str = "c") -> bytes:
    answer = messages()["ApplicationHealthResponse"]()
    answer.podStatus.phase = "Running"
    for statuses in (answer.podStatus.containerStatuses, answer.podStatus.initContainerStatuses):
        for _ in range(containers):
            statuses.add(name=name)
    return bytes(answer.SerializeToString())


async def test_a_hostile_answer_costs_no_more_than_that_of_the_largest_application() -> None:
    async with garbling_agent(report(20_000)) as port:
        health = await NetworkAgentClient().application_health(AgentEndpoint("127.0.0.1", port, grpc=True), 60)
    assert isinstance(health, ApplicationHealth)
    assert {len(health.status[each]) for each in ("containerStatuses", "initContainerStatuses")} == {MAX_CONTAINERS}


async def test_a_long_answer_is_not_read() -> None:
    async with garbling_agent(report(1, "c" * MAX_STATUS_BYTES)) as port:
        health = await NetworkAgentClient().application_health(AgentEndpoint("127.0.0.1", port, grpc=True), 60)
    assert (health.verdict, health.reason) == ("Failed", "InvalidAnswer")
    assert f"at most {MAX_STATUS_BYTES} are read" in health.message


async def test_answers_are_read_at_the_pace_of_their_namespace() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    answer = report(16)
    async with garbling_agent(answer) as port:
        client = NetworkAgentClient(pace=Pace(0.001, 1000, sleep))
        await client.application_health(AgentEndpoint("127.0.0.1", port, grpc=True, namespace="tenant"), 60)
    assert slept == [len(answer) / 1000]


@pytest.mark.parametrize("answer", [b"\xff\xff\xff", b"\x0a\x7f", b"{}"])
async def test_bytes_that_are_no_message_are_a_failure_of_the_agent(answer: bytes) -> None:
    async with garbling_agent(answer) as port:
        endpoint, client = AgentEndpoint("127.0.0.1", port, grpc=True), NetworkAgentClient()
        calls = (client.health(endpoint, 60), client.launch(endpoint, WHO, 60), client.application_health(endpoint, 60))
        for call in calls:
            health = await call
            assert (health.verdict, health.reason) == ("Failed", "InvalidAnswer")
        assert [each async for each in client.watch(endpoint)] == []
        await client.terminate(endpoint, 60)
        with pytest.raises(LogsRefused) as refused:
            [each async for each in client.logs(endpoint, {})]
        assert refused.value.code == "INVALID_ANSWER"


async def test_a_watch_sees_each_change() -> None:
    async with agent() as found:
        stream = NetworkAgentClient().watch(AgentEndpoint("127.0.0.1", found.port, grpc=True))
        assert (await anext(stream)).reason == "ApplicationRunning"
        found.becomes("Failed")
        assert (await anext(stream)).reason == "ApplicationFailed"
        await stream.aclose()


async def test_an_agent_without_watch_ends_it_at_once() -> None:
    async with agent(watch=False) as found:
        endpoint = AgentEndpoint("127.0.0.1", found.port, grpc=True)
        assert [each async for each in NetworkAgentClient().watch(endpoint)] == []


def test_a_failed_application_names_the_container_that_failed() -> None:
    ended = {"name": "build", "state": {"terminated": {"exitCode": 3}}}
    well = {"name": "proxy", "state": {"terminated": {"exitCode": 0}}}
    health = application_health({"phase": "Failed", "containerStatuses": [well, ended]})
    assert health.message == "the application is Failed: container build has ended with exit code 3"
