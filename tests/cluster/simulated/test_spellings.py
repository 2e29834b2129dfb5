"""Pools and warm pools whose templates are written again in other spellings of the same meaning."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio

from controllers.pool.pools import POOLS
from controllers.warmpool.warm_pool import WARM_POOLS
from poolhouse.api.kubevirt.meaning import VM_TEMPLATE
from poolhouse.runtime.resource import PVCS, VMIS, VMS
from poolhouse.stack.paths import StackPaths
from tests.cluster import warm_pools
from tests.cluster.pooling import Place, controller, namespace, template, until
from tests.kubevirt.spellings import respell

Json = dict[str, Any]

POOL_NAMES = ("a", "b", "c", "d", "e")
WARM_NAMES = ("warm-a", "warm-b")
ROUNDS = 5


def large(disk: str) -> Json:
    """A template with quantities, lists and objects of many types."""
    found = template(runStrategy="Always")
    spec = found["spec"]
    spec.pop("running", None)
    spec["dataVolumeTemplates"][0]["metadata"]["name"] = disk
    inner = spec["template"]["spec"]
    inner["volumes"][0]["dataVolume"]["name"] = disk
    inner["domain"] |= {
        "cpu": {"cores": 1},
        "memory": {"guest": "1.5Gi"},
        "resources": {"requests": {"memory": "1.5Gi", "cpu": 1}},
        "firmware": {"bootloader": {"bios": {}}},
    }
    inner["tolerations"] = [{"key": "a", "operator": "Exists"}, {"key": "b", "value": "c"}]
    inner["nodeSelector"] = {}
    return found


async def facts(place: Place) -> dict[str, set[Any]]:
    """What a restart, a new disk or a write of a VM would change."""
    found: dict[str, set[Any]] = {}
    for resource in (VMS, VMIS, PVCS):
        items, _ = await place.api.list(resource, place.namespace)
        found[resource.plural] = {
            (each["metadata"]["name"], each["metadata"]["uid"], each["metadata"].get("generation")) for each in items
        }
    return found


@pytest_asyncio.fixture
async def fleet(simulated: StackPaths, ours: Path) -> AsyncIterator[Place]:
    async with namespace(simulated.kubeconfig) as place, controller(ours), warm_pools.controllers(ours):
        yield place


async def complete(place: Place, name: str = "web") -> None:
    async def answer() -> Any:
        found = await place.seen(name)
        if found.get("status", {}).get("observedGeneration") != found["metadata"]["generation"]:
            return "not looked at yet"
        return (await place.condition("Progressing", name)).get("reason")

    await until(answer, "Complete", 120)


async def observed(place: Place) -> None:
    async def behind() -> list[str]:
        found = []
        for resource in (POOLS, WARM_POOLS):
            for each in (await place.api.list(resource, place.namespace))[0]:
                if each.get("status", {}).get("observedGeneration") != each["metadata"]["generation"]:
                    found.append(each["metadata"]["name"])
        return found

    await until(behind, [])


async def test_templates_in_other_spellings_change_no_vm_and_no_disk(fleet: Place) -> None:
    random = Random(1)
    for name in POOL_NAMES:
        strategy = {"proactive": {"replacePolicy": "Recreate"}} if name in "ab" else {"proactive": {}}
        await fleet.pool(2, name, template=large(f"disk-{name}"), updateStrategy=strategy)
    warm = warm_pools.PoolNamespace(fleet.api, fleet.namespace)
    for name in WARM_NAMES:
        await warm.pool(2, name, template=warm_pools.template("96Mi"))
    for name in POOL_NAMES:
        await complete(fleet, name)
    for name in WARM_NAMES:
        await until(lambda name=name: warm.available(name), 2)
    before = await facts(fleet)
    for _ in range(ROUNDS):
        for name in POOL_NAMES:
            pool = await fleet.seen(name)
            pool["spec"]["template"] = respell(pool["spec"]["template"], VM_TEMPLATE, random)
            await fleet.api.replace(POOLS, pool)
        for name in WARM_NAMES:
            pool = await fleet.api.get(WARM_POOLS, fleet.namespace, name)
            pool["spec"]["template"] = respell(pool["spec"]["template"], VM_TEMPLATE, random)
            await fleet.api.replace(WARM_POOLS, pool)
        await observed(fleet)
    assert await facts(fleet) == before
    for name in POOL_NAMES:
        assert (await fleet.condition("DisksOutdated", name)).get("status", "False") == "False"
        status = (await fleet.seen(name))["status"]
        assert status["updateRevision"] == status["currentRevision"]


@pytest.mark.parametrize(
    ("power", "spelling"),
    [({"running": True}, {"runStrategy": "Always"}), ({"runStrategy": "Always"}, {"running": True})],
)
async def test_a_vm_that_a_user_has_stopped_stays_stopped(fleet: Place, power: Json, spelling: Json) -> None:
    def powered(value: Json, memory: str) -> Json:
        found = template()
        found["spec"].pop("running", None)
        found["spec"] |= value
        found["spec"]["template"]["spec"]["domain"]["memory"] = {"guest": memory}
        return found

    await fleet.pool(2, template=powered(power, "64Mi"))
    await complete(fleet)
    stop = {"spec": {"running": None, "runStrategy": "Halted"}}
    await fleet.api.patch(VMS, fleet.namespace, "web-2", stop)

    async def running() -> list[str]:
        return sorted(each["metadata"]["name"] for each in (await fleet.api.list(VMIS, fleet.namespace))[0])

    await until(running, ["web-1"])
    before = await facts(fleet)
    pool = await fleet.seen()
    await fleet.api.replace(POOLS, {**pool, "spec": {**pool["spec"], "template": powered(spelling, "65536Ki")}})
    await observed(fleet)
    assert await facts(fleet) == before
    pool = await fleet.seen()
    await fleet.api.replace(POOLS, {**pool, "spec": {**pool["spec"], "template": powered(spelling, "96Mi")}})
    await complete(fleet)
    machines = await fleet.vms()
    assert [machines[name]["spec"].get("runStrategy") for name in ("web-2",)] == ["Halted"]
    assert await running() == ["web-1"]
    for each in machines.values():
        assert len(each["spec"].keys() & {"running", "runStrategy"}) == 1
