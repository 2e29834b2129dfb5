"""The EC2 backend: which write wins, and what happens when an answer is lost."""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from controllers.warmpool.agent import AgentEndpoint, ApplicationHealth, Launched
from controllers.warmpool.backends import HEALTHY, Change, Health, InvalidTransition, OutcomeUnknown, WriteConflict
from controllers.warmpool.ec2.backend import EC2Backend
from controllers.warmpool.ec2.instance_cache import MAX_LAG_SECONDS, InstanceCache
from controllers.warmpool.ec2.settings import EC2Settings
from controllers.warmpool.warm_vm import CLAIM_KIND, Owner, WarmVM, why_unavailable
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.warm_readiness import Readiness
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.runtime.errors import AlreadyExists, Forbidden, Invalid, Unreachable
from tests.controllers.warmpool.ec2.fake_client import TEMPLATE, FakeEC2Client, order

SETTINGS = EC2Settings(region="us-east-1")
CLAIM = Owner(CLAIM_KIND, "mine", "claim-uid")
OTHER = Owner(CLAIM_KIND, "theirs", "other-uid")
READY = Change(WarmState.READY)
TAKEN = Change(WarmState.ALLOCATING, "claim-uid", CLAIM, annotations={meta.CLAIM_NAME: "mine"})
GRPC = {**TEMPLATE, "protocol": "GRPC"}


@dataclass
class Agents:
    well: Health = HEALTHY
    launched: list[dict[str, Any]] = field(default_factory=list)
    ended: int = 0

    async def health(self, place: AgentEndpoint, timeout_seconds: float) -> Health:
        return self.well

    async def launch(self, place: AgentEndpoint, pod: dict[str, Any], timeout_seconds: float) -> Health:
        self.launched.append(pod)
        return ApplicationHealth("Healthy", "ApplicationRunning", "it runs", {"phase": "Running"})

    async def terminate(self, place: AgentEndpoint, timeout_seconds: float) -> None:
        self.ended += 1


@dataclass
class Process:
    """A process with its own view of an EC2 that other processes use too."""

    client: FakeEC2Client = field(default_factory=FakeEC2Client)
    agents: Agents = field(default_factory=Agents)
    now: float = 0.0

    def __post_init__(self) -> None:
        async def cluster() -> str:
            return "cluster"

        self.cache = InstanceCache(lambda: self.now)
        self.backend = EC2Backend(
            self.client,
            self.agents,
            self.cache,
            SETTINGS,
            cluster,
            lambda: datetime(2026, 11, 21, tzinfo=UTC),
        )

    async def ready(self, **given: Any) -> WarmVM:
        return await self.backend.change(await self.backend.create(order(**given)), READY)


@pytest.mark.sentence("5.28", "5.50", "5.51", "5.54")
async def test_launch_parameters() -> None:
    process = Process()
    template = {**TEMPLATE, "keyPair": "k", "iamInstanceProfile": "arn:aws:p", "securityGroups": ["sg-1"]}
    await process.backend.create(order(template={**template, "instanceType": "mac1.metal"}))
    (wanted,) = process.client.wanted
    assert wanted["ImageId"] == "ami-1"
    assert wanted["SubnetId"] == "subnet-a"
    assert wanted["KeyName"] == "k"
    assert wanted["IamInstanceProfile"] == {"Arn": "arn:aws:p"}
    assert wanted["SecurityGroupIds"] == ["sg-1"]
    assert wanted["Placement"] == {"Tenancy": "host"}


async def test_a_launch_without_subnet_is_invalid() -> None:
    process = Process()
    with pytest.raises(Invalid, match="POOLHOUSE_EC2_SUBNET"):
        await process.backend.create(order(template={"imageID": "ami-1"}, placement={"name": "default"}))
    assert process.client.wanted == []


async def test_a_repeated_launch_creates_one_instance() -> None:
    process = Process()
    process.client.loses = Unreachable("no answer")
    with pytest.raises(OutcomeUnknown):
        await process.backend.create(order())
    process.client.loses = None
    made = await process.backend.create(order())
    assert list(process.client.instances) == [made.uid]


async def test_a_repeated_launch_repeats_the_user_data() -> None:
    """EC2 refuses a client token that is repeated with other parameters, and each download URL is different."""
    process = Process()
    request = order(template={**TEMPLATE, "bootstrapAgent": {"s3Bucket": "agents", "s3Key": "agent-1"}})
    process.client.loses = Unreachable("no answer")
    with pytest.raises(OutcomeUnknown):
        await process.backend.create(request)
    process.client.loses = None
    await process.backend.create(request)
    first, second = process.client.wanted
    assert first["UserData"] == second["UserData"] != ""
    await process.backend.create(order("mac-2", template=request.template))
    assert process.client.wanted[2]["UserData"] != first["UserData"]


async def test_a_terminated_instance_is_not_created_again() -> None:
    process = Process()
    made = await process.backend.create(order())
    assert await process.backend.terminate(made, "test")
    with pytest.raises(AlreadyExists):
        await process.backend.create(order())


async def test_a_refusal_is_raised() -> None:
    process = Process()
    process.client.refuses = Forbidden("no capacity")
    with pytest.raises(Forbidden):
        await process.backend.create(order())


@pytest.mark.sentence("5.32")
async def test_one_of_two_claims_gets_the_instance() -> None:
    process = Process()
    ready = await process.ready()
    given = await process.backend.change(ready, TAKEN)
    assert (given.claim_uid, given.owner, given.state) == ("claim-uid", CLAIM, WarmState.ALLOCATING)
    with pytest.raises(WriteConflict):
        await process.backend.change(ready, replace(TAKEN, claim_uid="other-uid", owner=OTHER))
    assert [m.uid for m in await process.backend.find("ns", "claim-uid")] == [ready.uid]
    assert await process.backend.find("ns", "other-uid") == []


@pytest.mark.sentence("5.32")
async def test_of_two_leaders_that_write_at_once_only_the_later_launches() -> None:
    first = Process()
    second = Process(first.client)
    ready = await first.ready(template=GRPC)
    assert await second.backend.read(ready) is not None
    mine = await first.backend.change(ready, TAKEN)
    # The other leader has read the instance before our write, and writes after it.
    tags = {each["Key"]: each["Value"] for each in first.client.instances[ready.uid]["Tags"]}
    await first.client.tag(
        ready.uid, {meta.CLAIM_UID: "other-uid", "poolhouse.dev/revision": tags["poolhouse.dev/revision"]}
    )
    found = await first.backend.check(mine, Readiness())
    assert (found.verdict, found.reason) == ("Failed", "ClaimedByAnother")
    assert first.agents.launched == []
    with pytest.raises(WriteConflict):
        await first.backend.change(mine, Change(WarmState.IN_USE))
    assert not await first.backend.terminate(mine, "it is not ours")
    assert first.client.instances[ready.uid]["State"]["Name"] == "running"


async def test_an_invalid_transition_is_not_sent() -> None:
    process = Process()
    used = await process.backend.change(
        await process.backend.change(await process.ready(), TAKEN), Change(WarmState.IN_USE)
    )
    with pytest.raises(InvalidTransition):
        await process.backend.change(used, READY)


async def test_a_write_without_answer_can_be_found() -> None:
    process = Process()
    ready = await process.ready()
    process.client.loses = Unreachable("no answer")
    with pytest.raises(OutcomeUnknown):
        await process.backend.change(ready, TAKEN)
    process.client.loses = None
    assert [m.state for m in await process.backend.find("ns", "claim-uid")] == [WarmState.ALLOCATING]


async def test_recent_writes_count_until_ec2_shows_them() -> None:
    process = Process()
    made = await process.backend.create(order())
    process.client.stale = []
    process.cache.replace(await process.client.describe({}), asked_at=1.0)
    assert process.cache.vms.get(made.key) is not None
    process.client.stale = copy.deepcopy(list(process.client.instances.values()))
    ready = await process.backend.change(made, READY)
    process.cache.replace(await process.client.describe({}), asked_at=2.0)
    assert process.cache.vms.get(made.key) == ready
    assert await process.backend.read(made) == ready
    assert await process.backend.terminate(ready, "test")
    process.cache.replace(await process.client.describe({}), asked_at=3.0)
    found = process.cache.vms.get(made.key)
    assert found.deleting


async def test_an_instance_that_ec2_does_not_know_yet_is_not_taken_for_terminated() -> None:
    process = Process()
    made = await process.backend.create(order())
    process.client.stale = []
    ready = await process.backend.change(made, READY)
    assert ready.state is WarmState.READY
    process.client.unknown = {made.uid}
    with pytest.raises(WriteConflict):
        await process.backend.change(ready, TAKEN)
    with pytest.raises(OutcomeUnknown, match="does not know"):
        await process.backend.terminate(ready, "test")
    assert not process.client.ended, "it was not terminated, and does not count as terminated"
    process.now += MAX_LAG_SECONDS + 1
    assert await process.backend.terminate(ready, "test"), "after so long it is gone"


async def test_an_instance_that_ec2_never_shows_is_dropped() -> None:
    process = Process()
    made = await process.backend.create(order())
    process.client.stale = []
    process.cache.replace([], asked_at=MAX_LAG_SECONDS + 1)
    assert process.cache.vms.get(made.key) is None


async def test_a_ready_instance_is_available() -> None:
    process = Process()
    ready = await process.ready()
    assert why_unavailable(process.cache.warm_vms.join(ready)) == ""
    process.client.instances[ready.uid]["State"] = {"Name": "stopped"}
    process.cache.replace(await process.client.describe({}), asked_at=1.0)
    found = process.cache.warm_vms.get(ready.key)
    assert found is not None
    assert why_unavailable(found) == "it does not run"


@pytest.mark.sentence("5.14", "5.15")
async def test_applications_are_launched_and_terminated_for_claims_only() -> None:
    process = Process()
    ready = await process.ready(template=GRPC)
    assert await process.backend.check(ready, Readiness()) == HEALTHY
    assert process.agents.launched == []
    given = await process.backend.change(ready, TAKEN)
    launched = await process.backend.check(given, Readiness())
    assert isinstance(launched, Launched)
    assert (launched.verdict, launched.application.status) == ("Healthy", {"phase": "Running"})
    assert process.agents.launched == [{"metadata": {"namespace": "ns", "name": "mine", "uid": "claim-uid"}}]
    assert await process.backend.terminate(given, "test")
    assert process.agents.ended == 1
    unused = await process.ready(name="mac-2", template=GRPC)
    assert await process.backend.terminate(unused, "test")
    assert process.agents.ended == 1


@pytest.mark.parametrize(
    ("tag", "endpoint"),
    [
        ("TCP:22", AgentEndpoint("a", 22)),
        ("GRPC:8200", AgentEndpoint("a", 8200, grpc=True)),
        ("GRPC:8200:tls", AgentEndpoint("a", 8200, grpc=True, tls=True)),
        ("", None),
        ("UDP:1", None),
        ("TCP:x", None),
    ],
)
def test_parse_agent_endpoint(tag: str, endpoint: AgentEndpoint | None) -> None:
    assert AgentEndpoint.parse(tag, "a") == endpoint


@pytest.mark.sentence("5.72")
async def test_a_termination_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    process = Process()
    assert await process.backend.terminate(await process.ready(), "one too many")
    (line,) = [each for each in caplog.records if getattr(each, "event", "") == "VMDeleting"]
    assert (line.getMessage(), line.__dict__["vm"]) == ("terminated mac-1: one too many", "mac-1")
