"""What is shown of EC2 on time, and what becomes of instances whose pool is gone."""

from __future__ import annotations

from typing import Any, cast

import pytest

from controllers.warmpool.backends import Change
from controllers.warmpool.ec2.poller import PAUSES, UNSEEN, EC2Poller
from controllers.warmpool.warm_vm import NO_OWNER
from kinds.warm_states import WarmState
from runtime.api import Api
from runtime.errors import NotFound, Unreachable
from tests.controllers.warmpool.ec2.cloud import POOL, order
from tests.controllers.warmpool.ec2.test_backend import CLAIM, TAKEN, House


class Pools:
    """An API server that has these pools, by UID."""

    def __init__(self, *uids: str) -> None:
        self.uids = uids
        self.away = False

    async def get(self, resource: Any, namespace: str, name: str) -> dict[str, Any]:
        if self.away:
            raise Unreachable("no answer")
        if not self.uids:
            raise NotFound("it is gone")
        return {"metadata": {"uid": self.uids[0]}}


def scan(house: House, pools: Pools, *known: str, policy: str = "Delete") -> EC2Poller:
    async def cluster() -> str:
        return "cluster"

    api = cast(Api, pools)
    return EC2Poller(
        house.cloud,
        house.shown,
        house.instances,
        api,
        cluster,
        dict.fromkeys(known, policy).get,
        5.0,
        lambda: house.now,
    )


async def test_a_restart_shows_what_is_there() -> None:
    before = House()
    made = await before.instances.create(order())
    after = House(before.cloud)
    looking = scan(after, Pools(), POOL.uid)
    assert looking.problem == UNSEEN
    assert await looking.look() == 5.0
    assert looking.problem is None
    assert after.shown.machines.get(made.key) == made


async def test_while_ec2_is_away_what_was_seen_stays_and_nobody_counts_on_it() -> None:
    house = House()
    made = await house.instances.create(order())
    looking = scan(house, Pools(), POOL.uid)
    await looking.look()
    house.cloud.refuses = Unreachable("no answer")
    assert await looking.look() == PAUSES.delay(1, "ec2")
    assert "no answer" in (looking.problem or "")
    assert house.shown.machines.get(made.key) == made


async def test_an_instance_goes_with_its_pool() -> None:
    house = House()
    await house.instances.create(order())
    for pools, state in ((Pools(POOL.uid), "running"), (Pools("another-uid"), "shutting-down")):
        await scan(house, pools).look()
        assert [each["State"]["Name"] for each in house.cloud.instances.values()] == [state]


async def test_what_somebody_terminated_a_moment_after_we_wrote_is_not_shown_on() -> None:
    house = House()
    made = await house.instances.create(order())
    house.cloud.instances[made.uid]["State"] = {"Name": "terminated"}
    await scan(house, Pools(), POOL.uid).look()
    assert len(house.shown.machines) == 0


async def test_one_that_is_a_claims_or_nobodys_stays() -> None:
    house = House()
    claimed = await house.instances.change(await house.ready(), TAKEN)
    assert (claimed.owner, claimed.state) == (CLAIM, WarmState.ALLOCATING)
    await house.instances.change(await house.ready(name="mac-2"), Change(owner=NO_OWNER))
    await scan(house, Pools()).look()
    assert {each["State"]["Name"] for each in house.cloud.instances.values()} == {"running"}


@pytest.mark.parametrize(
    ("policies", "state", "orphaned"),
    [
        pytest.param(["Delete"], "shutting-down", "", id="it was to go with its pool"),
        pytest.param(["Orphan"], "running", "PoolDeleted", id="it was to outlive its pool"),
        pytest.param(["Orphan", "Delete"], "shutting-down", "", id="that was taken back"),
        pytest.param(["Orphan", ""], "running", "PoolDeleted", id="what can't be read changes nothing"),
        pytest.param([], "shutting-down", "", id="nobody ever looked"),
    ],
)
async def test_a_pool_that_went_while_nobody_looked_had_said_what_becomes_of_its_instances(
    policies: list[str], state: str, orphaned: str
) -> None:
    house = House()
    made = await house.instances.create(order())
    for policy in policies:
        await scan(house, Pools(POOL.uid), POOL.uid, policy=policy).look()
    # EC2 was switched off, the pool deleted, and EC2 switched on.
    after = House(house.cloud)
    await scan(after, Pools()).look()
    found = await after.instances.read(made)
    assert found is not None
    assert (house.cloud.instances[made.uid]["State"]["Name"], found.orphaned) == (state, orphaned)
    assert (found.owner == NO_OWNER) == bool(orphaned)
    await scan(after, Pools()).look()
    assert house.cloud.instances[made.uid]["State"]["Name"] == state, "and it stays so"


async def test_what_becomes_of_an_instance_is_written_once() -> None:
    house = House()
    made = await house.instances.create(order())
    for _ in range(3):
        await scan(house, Pools(POOL.uid), POOL.uid, policy="Orphan").look()
    found = await house.instances.read(made)
    assert found is not None
    assert int(found.resource_version) == int(made.resource_version) + 1


async def test_who_cannot_ask_for_the_pool_ends_nothing() -> None:
    house = House()
    await house.instances.create(order())
    pools = Pools()
    pools.away = True
    await scan(house, pools).look()
    assert {each["State"]["Name"] for each in house.cloud.instances.values()} == {"running"}
