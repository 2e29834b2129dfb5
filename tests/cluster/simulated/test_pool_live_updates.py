"""A pool whose template changes in what KubeVirt applies to running VMs: the VMIs stay the same ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest_asyncio

from poolhouse.api.kinds.meta import NAMESPACE, SIM_PREFIX
from poolhouse.runtime.resource import KUBEVIRTS, NODES, VMIS, Resource
from poolhouse.stack.engine.resources import MIGRATIONS
from poolhouse.stack.paths import StackPaths
from tests.cluster.pooling import Place, controller, instancetype, template, until
from tests.cluster.simulated.test_pool_rollout import complete, runs
from tests.cluster.test_pool import condition, said, status

Json = dict[str, Any]


@pytest_asyncio.fixture
async def running(simulated: StackPaths, guests: Place) -> AsyncIterator[Place]:
    async with controller(simulated.kubeconfig):
        yield guests


def sized(sockets: int = 1, guest: str = "64Mi", **inner: Any) -> Json:
    found = template()
    spec = found["spec"]["template"]["spec"]
    spec["domain"] |= {"cpu": {"sockets": sockets, "cores": 1, "threads": 1}, "memory": {"guest": guest}}
    spec.update(inner)
    return found


def choice(live_update: str) -> Json:
    return {"proactive": {"liveUpdate": live_update}}


async def vmis(place: Place) -> list[Json]:
    items, _ = await place.api.list(VMIS, place.namespace)
    return list(items)


async def migrated(place: Place) -> list[str]:
    """The VMIs of all migrations that there were, of which KubeVirt keeps the last of each VMI."""
    items, _ = await place.api.list(MIGRATIONS, place.namespace)
    return sorted(each["spec"]["vmiName"] for each in items)


@asynccontextmanager
async def least_available(place: Place, replicas: int) -> AsyncIterator[list[int]]:
    """The numbers of available VMs that the pool says meanwhile, the lowest first."""
    seen = [replicas]

    async def look() -> None:
        while True:
            seen.append(await status(place, "availableReplicas") or 0)
            seen.sort()
            await asyncio.sleep(0.1)

    looking = asyncio.create_task(look())
    try:
        yield seen
        assert not looking.done(), "nobody was looking"
    finally:
        looking.cancel()


@asynccontextmanager
async def changed(place: Place, resource: Resource, key: tuple[str | None, str], change: Json, back: Json) -> Any:
    """An object that all tests share is another one until the block ends."""
    await place.api.patch(resource, *key, change)
    try:
        yield
    finally:
        await place.api.patch(resource, *key, back)


async def test_more_sockets_restart_no_vm_and_fewer_restart_within_the_budget(running: Place) -> None:
    await running.pool(6, maxUnavailable=1, template=sized(1))
    await complete(running)
    before = await runs(running)
    async with least_available(running, 6) as seen:
        await running.change(template=sized(2))
        await complete(running)
    assert seen[0] == 6, "a VM that migrates stays available"
    assert await runs(running) == before, "no VM was restarted"
    found = await vmis(running)
    assert {each["spec"]["domain"]["cpu"]["sockets"] for each in found} == {2}
    assert {each["status"]["currentCPUTopology"]["sockets"] for each in found} == {2}
    assert await migrated(running) == sorted(before), "each VM has migrated once"
    async with least_available(running, 6) as seen:
        await running.change(template=sized(1))
        await complete(running)
    assert seen[0] >= 5
    after = await runs(running)
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values()), "KubeVirt removes sockets by a restart only"


async def test_memory_goes_up_and_down_and_a_toleration_moves_nothing(running: Place) -> None:
    await running.pool(2, template=sized(guest="1Gi"))
    await complete(running)
    before = await runs(running)
    await running.change(template=sized(guest="1Gi", tolerations=[{"key": "batch", "operator": "Exists"}]))
    await complete(running)
    assert {each["spec"]["tolerations"][0]["key"] for each in await vmis(running)} == {"batch"}
    assert await migrated(running) == []
    for guest in ("2Gi", "1Gi"):
        await running.change(template=sized(guest=guest))
        await complete(running)
        assert {each["spec"]["domain"]["memory"]["guest"] for each in await vmis(running)} == {guest}
    assert await runs(running) == before


def of_type(name: str) -> Json:
    found = template()
    found["spec"]["instancetype"] = {"name": name, "kind": "VirtualMachineInstancetype"}
    found["spec"]["template"]["spec"]["domain"].pop("memory", None)
    return found


async def test_a_larger_instance_type_restarts_no_vm_and_a_smaller_one_does(running: Place) -> None:
    await instancetype(running.api, "small", 1, "1Gi", running.namespace)
    await instancetype(running.api, "large", 2, "2Gi", running.namespace)
    await running.pool(2, template=of_type("small"))
    await complete(running)
    before = await runs(running)
    # KubeVirt keeps the instance type of each VM: this change reaches none of them.
    await instancetype(running.api, "small", 1, "1200Mi", running.namespace)
    await running.change(template=of_type("large"))
    await complete(running)
    assert await runs(running) == before, "no VM was restarted"
    found = await vmis(running)
    assert {each["spec"]["domain"]["memory"]["guest"] for each in found} == {"2Gi"}
    assert {each["status"]["currentCPUTopology"]["sockets"] for each in found} == {2}
    assert await migrated(running) == sorted(before)
    await instancetype(running.api, "small", 1, "1Gi", running.namespace)
    await running.change(template=of_type("small"))
    await complete(running)
    assert not set((await runs(running)).values()) & set(before.values()), "KubeVirt removes sockets by a restart only"
    assert {each["spec"]["domain"]["memory"]["guest"] for each in await vmis(running)} == {"1Gi"}


def with_nics(*names: str, **state: str) -> Json:
    found = sized()
    spec = found["spec"]["template"]["spec"]
    spec["networks"] = [{"name": "default", "pod": {}}]
    spec["networks"] += [{"name": name, "multus": {"networkName": name}} for name in (*names, *state)]
    nics: list[Json] = [{"name": "default", "masquerade": {}}]
    nics += [{"name": name, "bridge": {}, "state": state.get(name)} for name in (*names, *state)]
    spec["domain"]["devices"]["interfaces"] = nics
    return found


async def nics(place: Place) -> set[tuple[str, ...]]:
    """In the status of the VMIs."""
    reported = (each["status"].get("interfaces") or () for each in await vmis(place))
    return {tuple(sorted(nic["name"] for nic in each)) for each in reported}


async def listed_nics(place: Place) -> set[tuple[str, ...]]:
    """In the spec of the VMs."""
    devices = [each["spec"]["template"]["spec"]["domain"]["devices"] for each in (await place.vms()).values()]
    return {tuple(nic["name"] for nic in each["interfaces"]) for each in devices}


async def test_nics_come_and_go_without_a_restart(running: Place) -> None:
    await running.pool(2, maxUnavailable=1, template=with_nics())
    await complete(running)
    before = await runs(running)
    async with least_available(running, 2) as seen:
        await running.change(template=with_nics("blue", "red"))
        await complete(running)
        assert await nics(running) == {("blue", "default", "red")}
        # KubeVirt takes the NIC out of the VM, and the template keeps it.
        await running.change(template=with_nics("red", blue="absent"))
        await complete(running)
        assert await nics(running) == {("default", "red")}
        # The template does without the NIC, as after a rollback.
        await running.change(template=with_nics())
        await complete(running)
    assert await nics(running) == {("default",)}
    # KubeVirt takes the NIC out of the VM after it has left the guest.
    await until(lambda: listed_nics(running), {("default",)})
    for vm in (await running.vms()).values():
        assert condition_of(vm, "RestartRequired") is None
    assert await runs(running) == before
    assert seen[0] == 2


def condition_of(document: Json, name: str) -> Json | None:
    return next((each for each in document["status"].get("conditions") or () if each["type"] == name), None)


async def test_a_disk_is_plugged_without_a_restart(running: Place) -> None:
    await running.pool(2, maxUnavailable=1, template=sized())
    await complete(running)
    before = await runs(running)
    plugged = sized()
    source = {"source": {"blank": {}}, "storage": {"resources": {"requests": {"storage": "8Mi"}}}}
    plugged["spec"]["dataVolumeTemplates"] += [{"metadata": {"name": "data"}, "spec": source}]
    spec = plugged["spec"]["template"]["spec"]
    spec["domain"]["devices"]["disks"] += [{"name": "data", "disk": {"bus": "virtio"}}]
    spec["volumes"] += [{"name": "data", "dataVolume": {"name": "data", "hotpluggable": True}}]
    await running.change(template=plugged)
    await complete(running)
    for vmi in await vmis(running):
        (status,) = (each for each in vmi["status"]["volumeStatus"] if each["name"] == "data")
        assert (status["phase"], status["persistentVolumeClaimInfo"]["claimName"]) == (
            "Ready",
            f"data-{vmi['metadata']['name'].rpartition('-')[2]}",
        )
    assert await runs(running) == before


async def test_require_waits_for_a_second_node_and_says_so(running: Place) -> None:
    await running.pool(2, template=sized(1), updateStrategy=choice("Require"), progressDeadlineSeconds=1)
    await complete(running)
    before = await runs(running)
    cordon = {"spec": {"unschedulable": True}}, {"spec": {"unschedulable": None}}
    async with changed(running, NODES, (None, "node-2"), *cordon), changed(running, NODES, (None, "node-1"), *cordon):
        await running.change(template=sized(2))
        await until(lambda: said(running, "Progressing", "no second node can take VMs"), True)
        await until(lambda: condition(running, "Progressing"), ("False", "ProgressDeadlineExceeded"))
        assert await runs(running) == before
        assert await status(running, "updatedReplicas") == 0
    await complete(running)
    assert await runs(running) == before
    await running.change(template=sized(1))
    await until(lambda: said(running, "Progressing", "removes no CPU sockets from a running VM"), True)
    assert await runs(running) == before


async def test_require_waits_for_the_workload_update_method_live_migrate(simulated: StackPaths, guests: Place) -> None:
    async with controller(simulated.kubeconfig):
        await guests.pool(2, template=sized(1), updateStrategy=choice("Require"))
        await complete(guests)
    before = await runs(guests)
    methods = ({"spec": {"workloadUpdateStrategy": {"workloadUpdateMethods": each}}} for each in ([], ["LiveMigrate"]))
    # A controller that starts knows the KubeVirt object before it plans.
    async with changed(guests, KUBEVIRTS, (NAMESPACE, "kubevirt"), *methods), controller(simulated.kubeconfig):
        await guests.change(template=sized(2))
        await until(lambda: said(guests, "Progressing", "lacks LiveMigrate"), True)
    async with controller(simulated.kubeconfig):
        await complete(guests)
    assert await runs(guests) == before


async def test_a_reboot_of_the_guest_takes_an_opportunistic_update(running: Place) -> None:
    """KubeVirt ends a VMI with `rebootPolicy: Terminate` when its guest reboots, and starts the VM with its spec."""
    await running.pool(2, template=with_reboot_policy("64Mi"), updateStrategy={"opportunistic": {}})
    await complete(running)
    before = await runs(running)
    await running.change(template=with_reboot_policy("96Mi"))
    await until(lambda: memory(running), {"96Mi"})
    assert await runs(running) == before, "the pool restarts no VM"
    await reboot(running, "web-1")
    await until(lambda: status(running, "updatedReplicas"), 1)
    await reboot(running, "web-2")
    await complete(running)
    assert {each["spec"]["domain"]["memory"]["guest"] for each in await vmis(running)} == {"96Mi"}


def with_reboot_policy(guest: str) -> Json:
    found = sized(guest=guest)
    found["spec"]["template"]["spec"]["domain"]["rebootPolicy"] = "Terminate"
    return found


async def memory(place: Place) -> set[str]:
    """In the specs of the VMs."""
    found = (await place.vms()).values()
    return {vm["spec"]["template"]["spec"]["domain"]["memory"]["guest"] for vm in found}


async def reboot(place: Place, name: str) -> None:
    """The guest reboots until its VMI is another one."""
    before = (await runs(place))[name]
    annotation = f"{SIM_PREFIX}reboot-seconds"
    await place.meta(name, annotations={annotation: "0"})
    await until(lambda: is_another(place, name, before), True)
    await place.meta(name, annotations={annotation: None})


async def is_another(place: Place, name: str, before: str) -> bool:
    return (await runs(place)).get(name, before) != before
