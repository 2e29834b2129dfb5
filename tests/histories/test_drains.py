"""All nodes of a cluster are drained one after another, as in an upgrade, under three pools of ten VMs. What the checks
of drains in histories take for a move, and how long they wait."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds import meta
from poolhouse.runtime.resource import VMS
from tests.cluster.test_pool_chaos import complaints
from tests.histories.api_server import is_deleting
from tests.histories.client import Network
from tests.histories.drains import NODE_NAMES, Drains, is_moving, is_ready
from tests.histories.pools import VMI_RESOURCE, PatchingPlace, build
from tests.histories.world import HERE, Process, World, engine, quiet_logs
from tests.virtual_loop import VirtualLoop

Json = dict[str, Any]

REPLICAS, MAX_UNAVAILABLE = 10, 2
NAMES = [f"pool-{letter}" for letter in "abc"]
LIMIT_SECONDS = 3600.0


def evictable(strategy: str) -> Json:
    """Without disks, because pools of one namespace must not share their names."""
    spec = {"evictionStrategy": strategy, "domain": {"devices": {}, "memory": {"guest": "64Mi"}}}
    return {"spec": {"running": True, "template": {"spec": spec}}}


class Upgrade:
    def __init__(self, strategy: str) -> None:
        self.world, self.strategy = World(Random(strategy)), strategy
        self.place = PatchingPlace(self.world.api("users"), HERE)
        self.drains = Drains(self.world)
        self.least = dict.fromkeys(NAMES, REPLICAS)
        self.seconds: list[float] = []

    async def run(self) -> None:
        async with engine(self.world):
            await self.drains.begin()
            process = Process.start(self.world, build, Network(self.world.random))
            for name in NAMES:
                await self.place.pool(REPLICAS, name, template=evictable(self.strategy), maxUnavailable=MAX_UNAVAILABLE)
            await self.complete()
            before = await self.identities()
            self.world.server.observers.append(lambda _: self.count())
            for node in NODE_NAMES:
                began = asyncio.get_running_loop().time()
                assert await self.drains.drain(node, LIMIT_SECONDS)
                self.seconds.append(asyncio.get_running_loop().time() - began)
                assert not self.vmis_on(node)
                await self.drains.cordon(node, None)
                await self.complete()
            assert await self.identities() == before
            await process.kill()

    def ready(self) -> list[Json]:
        vmis = self.world.server.objects(VMI_RESOURCE)
        return [vmi for vmi in vmis if not is_deleting(vmi) and is_ready(vmi)]

    def count(self) -> None:
        names = [vmi["metadata"]["labels"][meta.POOL] for vmi in self.ready()]
        self.least = {pool: min(least, names.count(pool)) for pool, least in self.least.items()}

    def vmis_on(self, node: str) -> list[str]:
        vmis = self.world.server.objects(VMI_RESOURCE)
        return [vmi["metadata"]["name"] for vmi in vmis if at(vmi, "status", "nodeName") == node]

    async def complete(self) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while any([complaints(await self.place.seen(name)) for name in NAMES]):  # noqa: ASYNC110
                await asyncio.sleep(1)

    async def identities(self) -> dict[str, str]:
        return {name: vm["metadata"]["uid"] for name, vm in (await self.place.vms()).items()}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["None", "LiveMigrate"])
def test_a_cluster_upgrade_leaves_each_pool_its_minimum(strategy: str) -> None:
    async def upgrade() -> Upgrade:
        found = Upgrade(strategy)
        await found.run()
        return found

    with quiet_logs(), asyncio.Runner(loop_factory=lambda: VirtualLoop(moment_seconds=0)) as runner:
        found = runner.run(upgrade())
    assert found.world.violations == []
    assert found.least == dict.fromkeys(NAMES, REPLICAS if strategy == "LiveMigrate" else REPLICAS - MAX_UNAVAILABLE)
    assert max(found.seconds) < LIMIT_SECONDS / 30


def test_vms_that_have_left_the_pool_make_no_room_for_evictions() -> None:
    """They keep the pool's label. In the drain they migrate, so that each has two ready Pods for a moment."""

    async def least_available() -> int:
        world, left = World(Random("left")), ("web-1", "web-2", "web-3")
        place, drains, least = PatchingPlace(world.api("users"), HERE), Drains(world), list[int]()

        def count() -> None:
            vmis = world.server.objects(VMI_RESOURCE)
            least.append(sum(is_ready(vmi) and vmi["metadata"]["name"] not in left for vmi in vmis))

        async def complete() -> None:
            await asyncio.sleep(5)
            async with asyncio.timeout(LIMIT_SECONDS):
                while complaints(await place.seen()):  # noqa: ASYNC110
                    await asyncio.sleep(1)

        async with engine(world):
            await drains.begin()
            process = Process.start(world, build, Network(world.random))
            await place.pool(6, template=evictable("LiveMigrate"), maxUnavailable=2)
            await complete()
            for name in left:
                await place.api.patch(VMS, HERE, name, {"metadata": {"ownerReferences": None}})
            await place.change(template=evictable("None"))
            await complete()
            world.server.observers.append(lambda _: count())
            for node in NODE_NAMES:
                assert await drains.drain(node, LIMIT_SECONDS)
                await complete()
                await drains.cordon(node, None)
            await process.kill()
        return min(least)

    with quiet_logs(), asyncio.Runner(loop_factory=lambda: VirtualLoop(moment_seconds=0)) as runner:
        assert runner.run(least_available()) == 4


MARKED: Json = {"phase": "Running", "nodeName": "node-1", "evacuationNodeName": "node-1"}


@pytest.mark.parametrize(
    ("status", "moves"),
    [
        pytest.param(MARKED, True, id="marked by an eviction"),
        pytest.param({**MARKED, "phase": "Scheduled"}, False, id="marked before its guest runs"),
        pytest.param({**MARKED, "nodeName": "node-2"}, False, id="it has left the node"),
        pytest.param({**MARKED, "migrationState": {"completed": True, "failed": True}}, False, id="could not move"),
        pytest.param({**MARKED, "migrationState": {"completed": True}}, True, id="marked again on another node"),
        pytest.param({"phase": "Running", "migrationState": {"targetNode": "node-2"}}, True, id="migrates"),
        pytest.param({"phase": "Running", "migrationState": {"completed": True}}, False, id="has migrated"),
    ],
)
def test_which_vmis_must_not_be_restarted(status: Json, moves: bool) -> None:
    assert is_moving({"status": status}) is moves


def test_a_clock_that_was_set_back_is_behind_the_times_that_it_gave() -> None:
    async def seconds_behind() -> list[float]:
        world, found = World(Random(1)), list[float]()
        for hours in (1, -1, -1, 3):
            world.jump(timedelta(hours=hours))
            found.append(world.behind_seconds)
        return found

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(moment_seconds=0)) as runner:
        assert runner.run(seconds_behind()) == [0, 3600, 7200, 0]
