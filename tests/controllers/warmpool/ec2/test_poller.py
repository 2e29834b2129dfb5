"""What polls of EC2 show, and what happens to instances whose pool is gone."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from controllers.warmpool.backends import Change
from controllers.warmpool.ec2.poller import NOT_LISTED, RETRIES, EC2Poller
from controllers.warmpool.warm_vm import NO_OWNER
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.runtime.errors import Forbidden, NotFound, Unreachable
from tests.controllers.warmpool.ec2.fake_client import POOL, order
from tests.controllers.warmpool.ec2.test_backend import CLAIM, TAKEN, Process


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


def poller_of(process: Process, pools: Pools, *known: str, policy: str = "Delete") -> EC2Poller:
    async def cluster() -> str:
        return "cluster"

    api = pools
    return EC2Poller(
        process.client,
        process.cache,
        process.backend,
        api,
        cluster,
        dict.fromkeys(known, policy).get,
        5.0,
        lambda: process.now,
    )


@pytest.mark.sentence("5.9", "5.41")
async def test_the_first_poll_after_a_restart_finds_the_instances() -> None:
    before = Process()
    made = await before.backend.create(order())
    after = Process(before.client)
    poller = poller_of(after, Pools(), POOL.uid)
    assert poller.problem == NOT_LISTED
    assert await poller.poll() == 5.0
    assert poller.problem is None
    assert after.cache.vms.get(made.key) == made


async def test_while_ec2_is_unreachable_the_cache_stays_and_has_a_problem() -> None:
    process = Process()
    made = await process.backend.create(order())
    poller = poller_of(process, Pools(), POOL.uid)
    await poller.poll()
    process.client.refuses = Unreachable("no answer")
    assert await poller.poll() == RETRIES.delay(1, "ec2")
    assert "no answer" in (poller.problem or "")
    assert isinstance(poller.error, Unreachable)
    assert process.cache.vms.get(made.key) == made
    process.client.refuses = None
    await poller.poll()
    assert (poller.problem, poller.error) == (None, None)


async def test_an_error_of_the_api_server_is_not_reported_as_one_of_ec2() -> None:
    async def cluster() -> str:
        raise Forbidden("no right to get namespaces")

    poller = poller_of(Process(), Pools())
    poller.cluster = cluster
    await poller.poll()
    assert poller.problem == "the UID of the namespace kube-system cannot be read: no right to get namespaces"
    assert isinstance(poller.error, Forbidden)


async def test_instances_are_terminated_with_their_pool() -> None:
    process = Process()
    await process.backend.create(order())
    for pools, state in ((Pools(POOL.uid), "running"), (Pools("another-uid"), "shutting-down")):
        await poller_of(process, pools).poll()
        assert [each["State"]["Name"] for each in process.client.instances.values()] == [state]


async def test_an_instance_that_a_user_terminated_leaves_the_cache() -> None:
    process = Process()
    made = await process.backend.create(order())
    process.client.instances[made.uid]["State"] = {"Name": "terminated"}
    await poller_of(process, Pools(), POOL.uid).poll()
    assert len(process.cache.vms) == 0


async def test_claimed_and_orphaned_instances_stay() -> None:
    process = Process()
    claimed = await process.backend.change(await process.ready(), TAKEN)
    assert (claimed.owner, claimed.state) == (CLAIM, WarmState.ALLOCATING)
    await process.backend.change(await process.ready(name="mac-2"), Change(owner=NO_OWNER))
    await poller_of(process, Pools()).poll()
    assert {each["State"]["Name"] for each in process.client.instances.values()} == {"running"}


@pytest.mark.parametrize(
    ("policies", "state", "orphaned"),
    [
        pytest.param(["Delete"], "shutting-down", "", id="deleted with its pool"),
        pytest.param(["Orphan"], "running", "PoolDeleted", id="orphaned by its pool"),
        pytest.param(["Orphan", "Delete"], "shutting-down", "", id="the policy was changed back"),
        pytest.param(["Orphan", ""], "running", "PoolDeleted", id="an invalid pool changes nothing"),
        pytest.param([], "shutting-down", "", id="no poll while the pool existed"),
    ],
)
async def test_instances_of_a_pool_that_was_deleted_while_ec2_was_disabled(
    policies: list[str], state: str, orphaned: str
) -> None:
    process = Process()
    made = await process.backend.create(order())
    for policy in policies:
        await poller_of(process, Pools(POOL.uid), POOL.uid, policy=policy).poll()
    # EC2 was disabled, the pool deleted, and EC2 enabled again.
    after = Process(process.client)
    await poller_of(after, Pools()).poll()
    found = await after.backend.read(made)
    assert (process.client.instances[made.uid]["State"]["Name"], found.orphaned) == (state, orphaned)
    assert (found.owner == NO_OWNER) == bool(orphaned)
    await poller_of(after, Pools()).poll()
    assert process.client.instances[made.uid]["State"]["Name"] == state, "the next poll changes nothing"


async def test_the_deletion_policy_is_written_once() -> None:
    process = Process()
    made = await process.backend.create(order())
    for _ in range(3):
        await poller_of(process, Pools(POOL.uid), POOL.uid, policy="Orphan").poll()
    found = await process.backend.read(made)
    assert int(found.resource_version) == int(made.resource_version) + 1


async def test_nothing_is_terminated_while_the_api_server_is_away() -> None:
    process = Process()
    await process.backend.create(order())
    pools = Pools()
    pools.away = True
    await poller_of(process, pools).poll()
    assert {each["State"]["Name"] for each in process.client.instances.values()} == {"running"}


@pytest.mark.sentence("5.68", "5.73")
async def test_polls_and_their_errors_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    process = Process()
    await process.backend.create(order())
    poller = poller_of(process, Pools(POOL.uid), POOL.uid)
    await poller.poll()
    assert ("VMChecked", "listed 1 EC2 instances") in [
        (getattr(each, "event", ""), each.getMessage()) for each in caplog.records
    ]
    caplog.clear()
    process.client.refuses = Unreachable("no answer")
    await poller.poll()
    (line,) = caplog.records
    assert (line.levelno, line.getMessage()) == (logging.WARNING, "the EC2 instances cannot be listed: no answer")
