"""A fleet whose templates are rewritten in other spellings of the same meaning: nothing happens to its VMs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest

from controllers.pool.pools import POOLS
from controllers.warmpool.warm_pool import WARM_POOLS
from poolhouse.api.kubevirt.meaning import VM_TEMPLATE
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import Resource
from tests.builders import manifest, vm_spec
from tests.histories.api_server import Change
from tests.histories.client import Network
from tests.histories.others import GUESTS, respell_template
from tests.histories.pools import HOOKS, build
from tests.histories.warm_pools import build as build_warm
from tests.histories.world import HERE, Process, World, engine
from tests.virtual_loop import VirtualLoop

Json = dict[str, Any]

ROUNDS = 4
SETTLE_SECONDS = 600.0
JUDGE_SECONDS = 45.0
"""Within this time the controllers have judged a template."""
SPEC: Json = {
    "domain": {
        "cpu": {"cores": 2, "sockets": 1, "threads": 1},
        "memory": {"guest": "1536Mi"},
        "resources": {"requests": {"cpu": "500m", "memory": "1.5Gi"}, "limits": {"cpu": 1}},
        "devices": {"disks": [{"name": "scratch", "disk": {"bus": "virtio"}}]},
        "clock": {"utc": {}, "timer": {"hpet": {"present": False}}},
    },
    "terminationGracePeriodSeconds": 0,
    "evictionStrategy": "LiveMigrate",
    "nodeSelector": {},
    "volumes": [{"name": "scratch", "emptyDisk": {"capacity": "1Gi"}}],
}


def proactive(**spec: Any) -> Json:
    return {"updateStrategy": {"proactive": spec}}


FLEET: Mapping[str, Json] = {
    "plain": {},
    "recreate": proactive(replacePolicy="Recreate"),
    "surge": proactive(maxSurge=1),
    "hooks": {"lifecycleHooks": HOOKS, **proactive(steps=[{"setReplicas": 1}, {"pause": {}}])},
    "kept": {"scaleInStrategy": {"proactive": {"statePreservation": "Offline"}}, "maxLifetimeSeconds": 864_000},
}
WARM: Mapping[str, Json] = {"running": {"mode": "Running"}, "paused": {"mode": "Paused", "hotReplicas": 1}}


def pool(name: str, spec: Json) -> Json:
    disks = [*SPEC["domain"]["devices"]["disks"], {"name": name, "disk": {"bus": "virtio"}}]
    volumes = [*SPEC["volumes"], {"name": name, "dataVolume": {"name": name}}]
    domain = {**SPEC["domain"], "devices": {"disks": disks}}
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Ti"}}}
    disk = {"metadata": {"name": name}, "spec": {"source": {"blank": {}}, "storage": storage}}
    inner = {**SPEC, "domain": domain, "volumes": volumes}
    template = {"spec": vm_spec(inner, dataVolumeTemplates=[disk])}
    return manifest(POOLS, name, {"replicas": 3, "template": template, **spec}, HERE)


def warm_pool(name: str, standby: Json) -> Json:
    spec = {"replicas": 3, "standby": standby, "template": {"spec": {"template": {"spec": SPEC}}}}
    return manifest(WARM_POOLS, name, spec, HERE)


MEMBERS: tuple[tuple[Resource, str], ...] = (*((POOLS, name) for name in FLEET), *((WARM_POOLS, name) for name in WARM))


class Fleet:
    def __init__(self, world: World) -> None:
        self.world, self.api = world, world.api("users")
        self.writes: list[str] = []

    async def create(self) -> None:
        for name, spec in FLEET.items():
            await self.api.create(POOLS, pool(name, spec))
        for name, standby in WARM.items():
            await self.api.create(WARM_POOLS, warm_pool(name, standby))
        await asyncio.sleep(SETTLE_SECONDS)
        for resource, name in MEMBERS:
            assert await self.is_ready(resource, name), name
        self.world.server.observers.append(self._wrote)

    async def is_ready(self, resource: Resource, name: str) -> bool:
        found = await self.api.get(resource, HERE, name)
        ready = [each for each in found["status"]["conditions"] if each["type"] == "Ready" and each["status"] == "True"]
        return bool(ready) and found["status"]["observedGeneration"] == found["metadata"]["generation"]

    def _wrote(self, change: Change) -> None:
        if change.plural in GUESTS:
            self.writes.append(f"{change.actor} wrote {change.plural} {change.document['metadata']['name']}")

    def guests(self) -> dict[tuple[str, str], tuple[str, str]]:
        """The UID and the resourceVersion of each VM, VMI, disk and revision."""
        return {
            (plural, each["metadata"]["name"]): (each["metadata"]["uid"], each["metadata"]["resourceVersion"])
            for plural in sorted(GUESTS)
            for each in self.world.server.objects(plural)
        }


async def respell(api: Api, resource: Resource, name: str, random: Random) -> None:
    await respell_template(api, resource, (HERE, name), VM_TEMPLATE, random)


@pytest.mark.slow
def test_other_spellings_of_the_templates_of_a_fleet_touch_no_vm() -> None:
    async def scene() -> None:
        world = World(Random("fleet"))
        fleet = Fleet(world)
        async with engine(world), AsyncExitStack() as stack:
            for each in (build, build_warm):
                stack.push_async_callback(Process.start(world, each, Network(world.random)).kill)
            await fleet.create()
            before = fleet.guests()
            assert sum(plural == "virtualmachines.kubevirt.io" for plural, _ in before) == 3 * len(MEMBERS)
            assert sum(plural == "datavolumes.cdi.kubevirt.io" for plural, _ in before) == 3 * len(FLEET)
            for _ in range(ROUNDS):
                for resource, name in world.random.sample(MEMBERS, len(MEMBERS)):
                    await respell(fleet.api, resource, name, world.random)
                await asyncio.sleep(JUDGE_SECONDS)
                assert fleet.writes == []
            assert fleet.guests() == before
            for resource, name in MEMBERS:
                assert await fleet.is_ready(resource, name), name
            # The same templates with one other value, which shows that the test sees writes to each pool.
            for resource, name in MEMBERS:
                fleet.writes.clear()
                template = {"spec": {"template": {"spec": {"domain": {"memory": {"guest": "1537Mi"}}}}}}
                await fleet.api.patch(resource, HERE, name, {"spec": {"template": template}})
                await asyncio.sleep(JUDGE_SECONDS)
                assert fleet.writes, name

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(moment_seconds=0)) as runner:
        runner.run(scene())
