"""Instances behind the interface that VMs are held behind: who wins, and what is known when an answer is lost."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from controllers.warmpool.backends import HEALTHY, Change, Health, InvalidTransition, OutcomeUnknown, WriteConflict
from controllers.warmpool.ec2.agent import AgentEndpoint, Application
from controllers.warmpool.ec2.backend import EC2Backend
from controllers.warmpool.ec2.instance_cache import SHOWN_SECONDS, InstanceCache
from controllers.warmpool.ec2.settings import EC2Settings
from controllers.warmpool.warm_vm import CLAIM_KIND, Owner, WarmVM, why_unavailable
from kinds import meta
from kinds.warm_states import WarmState
from kinds.warmpool import Readiness
from runtime.errors import AlreadyExists, Forbidden, Invalid, Unreachable
from tests.controllers.warmpool.ec2.cloud import TEMPLATE, Few, order

CLAIM = Owner(CLAIM_KIND, "mine", "claim-uid")
OTHER = Owner(CLAIM_KIND, "theirs", "other-uid")
READY = Change(WarmState.READY)
TAKEN = Change(WarmState.ALLOCATING, "claim-uid", CLAIM, annotations={meta.CLAIM_NAME: "mine"})
GRPC = {**TEMPLATE, "protocol": "GRPC"}


@dataclass
class Agents:
    well: Health = HEALTHY
    launched: list[Application] = field(default_factory=list)
    ended: int = 0

    async def health(self, place: AgentEndpoint, timeout_seconds: float) -> Health:
        return self.well

    async def launch(self, place: AgentEndpoint, application: Application, timeout_seconds: float) -> Health:
        self.launched.append(application)
        return self.well

    async def terminate(self, place: AgentEndpoint, timeout_seconds: float) -> None:
        self.ended += 1


@dataclass
class House:
    """One process' view of an EC2 that others may see too."""

    cloud: Few = field(default_factory=Few)
    agents: Agents = field(default_factory=Agents)
    now: float = 0.0

    def __post_init__(self) -> None:
        async def cluster() -> str:
            return "cluster"

        self.shown = InstanceCache(lambda: self.now)
        self.instances = EC2Backend(
            self.cloud, self.agents, self.shown, EC2Settings("r"), cluster, lambda: datetime(2026, 11, 21, tzinfo=UTC)
        )

    async def ready(self, **given: Any) -> WarmVM:
        return await self.instances.change(await self.instances.create(order(**given)), READY)


async def test_a_launch_says_what_the_pool_says() -> None:
    house = House()
    template = {**TEMPLATE, "keyPair": "k", "iamInstanceProfile": "arn:aws:p", "securityGroups": ["sg-1"]}
    await house.instances.create(order(template={**template, "instanceType": "mac1.metal"}))
    (wanted,) = house.cloud.wanted
    assert wanted["ImageId"] == "ami-1"
    assert wanted["SubnetId"] == "subnet-a"
    assert wanted["KeyName"] == "k"
    assert wanted["IamInstanceProfile"] == {"Arn": "arn:aws:p"}
    assert wanted["SecurityGroupIds"] == ["sg-1"]
    assert wanted["Placement"] == {"Tenancy": "host"}


async def test_without_any_subnet_nothing_is_asked_for() -> None:
    house = House()
    with pytest.raises(Invalid, match="POOLHOUSE_EC2_SUBNET"):
        await house.instances.create(order(template={"imageID": "ami-1"}, placement={"name": "default"}))
    assert house.cloud.wanted == []


async def test_a_lost_answer_to_a_launch_makes_no_second_instance() -> None:
    house = House()
    house.cloud.loses = Unreachable("no answer")
    with pytest.raises(OutcomeUnknown):
        await house.instances.create(order())
    house.cloud.loses = None
    made = await house.instances.create(order())
    assert list(house.cloud.instances) == [made.uid]


async def test_what_was_made_once_and_is_gone_is_not_made_again() -> None:
    house = House()
    made = await house.instances.create(order())
    assert await house.instances.terminate(made, "test")
    with pytest.raises(AlreadyExists):
        await house.instances.create(order())


async def test_a_refusal_is_told_as_it_is() -> None:
    house = House()
    house.cloud.refuses = Forbidden("no capacity")
    with pytest.raises(Forbidden):
        await house.instances.create(order())


async def test_of_two_claims_one_gets_it() -> None:
    house = House()
    ready = await house.ready()
    given = await house.instances.change(ready, TAKEN)
    assert (given.claim_uid, given.owner, given.state) == ("claim-uid", CLAIM, WarmState.ALLOCATING)
    with pytest.raises(WriteConflict):
        await house.instances.change(ready, replace(TAKEN, claim_uid="other-uid", owner=OTHER))
    assert [m.uid for m in await house.instances.find("ns", "claim-uid")] == [ready.uid]
    assert await house.instances.find("ns", "other-uid") == []


async def test_two_leaders_that_write_in_the_same_moment_don_t_both_launch() -> None:
    first = House()
    second = House(first.cloud)
    ready = await first.ready(template=GRPC)
    assert await second.instances.read(ready) is not None
    mine = await first.instances.change(ready, TAKEN)
    # The other one had looked before, and its write comes after ours.
    tags = {each["Key"]: each["Value"] for each in first.cloud.instances[ready.uid]["Tags"]}
    await first.cloud.tag(
        ready.uid, {meta.CLAIM_UID: "other-uid", "poolhouse.dev/revision": tags["poolhouse.dev/revision"]}
    )
    found = await first.instances.check(mine, Readiness())
    assert (found.verdict, found.reason) == ("Failed", "Lost")
    assert first.agents.launched == []
    with pytest.raises(WriteConflict):
        await first.instances.change(mine, Change(WarmState.IN_USE))
    assert not await first.instances.terminate(mine, "it is not ours")
    assert first.cloud.instances[ready.uid]["State"]["Name"] == "running"


async def test_what_the_states_forbid_is_not_sent() -> None:
    house = House()
    used = await house.instances.change(
        await house.instances.change(await house.ready(), TAKEN), Change(WarmState.IN_USE)
    )
    with pytest.raises(InvalidTransition):
        await house.instances.change(used, READY)


async def test_a_lost_answer_to_a_write_is_looked_up() -> None:
    house = House()
    ready = await house.ready()
    house.cloud.loses = Unreachable("no answer")
    with pytest.raises(OutcomeUnknown):
        await house.instances.change(ready, TAKEN)
    house.cloud.loses = None
    assert [m.state for m in await house.instances.find("ns", "claim-uid")] == [WarmState.ALLOCATING]


async def test_what_ec2_does_not_show_yet_is_not_forgotten() -> None:
    house = House()
    made = await house.instances.create(order())
    house.cloud.stale = []
    house.shown.all(await house.cloud.describe({}), since=1.0)
    assert house.shown.machines.get(made.key) is not None
    house.cloud.stale = copy.deepcopy(list(house.cloud.instances.values()))
    ready = await house.instances.change(made, READY)
    house.shown.all(await house.cloud.describe({}), since=2.0)
    assert house.shown.machines.get(made.key) == ready
    assert await house.instances.read(made) == ready
    assert await house.instances.terminate(ready, "test")
    house.shown.all(await house.cloud.describe({}), since=3.0)
    found = house.shown.machines.get(made.key)
    assert found is not None
    assert found.deleting


async def test_what_ec2_does_not_know_yet_can_be_written_to_and_is_not_taken_for_gone() -> None:
    house = House()
    made = await house.instances.create(order())
    house.cloud.stale = []
    ready = await house.instances.change(made, READY)
    assert ready.state is WarmState.READY
    house.cloud.unknown = {made.uid}
    with pytest.raises(WriteConflict):
        await house.instances.change(ready, TAKEN)
    with pytest.raises(OutcomeUnknown, match="does not know"):
        await house.instances.terminate(ready, "test")
    assert not house.cloud.ended, "it was not ended, and nobody believes that it was"
    house.now += SHOWN_SECONDS + 1
    assert await house.instances.terminate(ready, "test"), "an hour is not that long: it is gone"


async def test_what_ec2_never_shows_is_believed_after_a_while() -> None:
    house = House()
    made = await house.instances.create(order())
    house.cloud.stale = []
    house.shown.all([], since=SHOWN_SECONDS + 1)
    assert house.shown.machines.get(made.key) is None


async def test_a_ready_instance_can_be_given_away() -> None:
    house = House()
    ready = await house.ready()
    assert why_unavailable(house.shown.queues.joined(ready)) == ""
    house.cloud.instances[ready.uid]["State"] = {"Name": "stopped"}
    house.shown.all(await house.cloud.describe({}), since=1.0)
    found = house.shown.queues.get(ready.key)
    assert found is not None
    assert why_unavailable(found) == "it does not run"


async def test_only_a_claims_application_is_launched_and_ended() -> None:
    house = House()
    ready = await house.ready(template=GRPC)
    assert await house.instances.check(ready, Readiness()) == HEALTHY
    assert house.agents.launched == []
    given = await house.instances.change(ready, TAKEN)
    assert await house.instances.check(given, Readiness()) == HEALTHY
    assert house.agents.launched == [Application("ns", "mine", "claim-uid")]
    assert await house.instances.terminate(given, "test")
    assert house.agents.ended == 1
    unused = await house.ready(name="mac-2", template=GRPC)
    assert await house.instances.terminate(unused, "test")
    assert house.agents.ended == 1


@pytest.mark.parametrize(
    ("tag", "place"),
    [
        ("TCP:22", AgentEndpoint("a", 22)),
        ("GRPC:8200", AgentEndpoint("a", 8200, grpc=True)),
        ("GRPC:8200:tls", AgentEndpoint("a", 8200, grpc=True, secure=True)),
        ("", None),
        ("UDP:1", None),
        ("TCP:x", None),
    ],
)
def test_where_an_agent_answers_is_read_from_a_tag(tag: str, place: AgentEndpoint | None) -> None:
    assert AgentEndpoint.read(tag, "a") == place
