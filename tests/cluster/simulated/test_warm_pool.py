"""Warm pools on a real API server with simulated guests."""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter as Tally
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from time import monotonic
from typing import Any

import pytest
import pytest_asyncio

from controllers.claim.snapshot import CLAIMS
from controllers.shared.creation import DefaultingCreator
from controllers.shared.data_sources import DATA_SOURCES
from controllers.shared.subresources import Subresources
from controllers.warmpool.actions import CreateVM
from controllers.warmpool.apply import create_request
from controllers.warmpool.backends import Change, WriteConflict
from controllers.warmpool.orphaning import FINALIZER
from controllers.warmpool.vm_backend import VMBackend
from controllers.warmpool.warm_pool import WARM_POOLS, WarmPool, parse_warm_pool
from controllers.warmpool.warm_vm import Owner, WarmVM, seconds_since
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.tracking_marks import without_tracking_marks
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import AlreadyExists, ApiError
from poolhouse.runtime.resource import NODES, VMIS, VMS
from poolhouse.stack.paths import StackPaths
from tests.cluster.faulty import Faulty
from tests.cluster.pooling import until
from tests.cluster.resting import rests
from tests.cluster.warm_pools import QUICK_CHECKS, PoolNamespace, controllers, namespace, template
from tests.resources import QUOTAS

Json = dict[str, Any]


@pytest_asyncio.fixture
async def place(simulated: StackPaths) -> AsyncIterator[PoolNamespace]:
    async with namespace(simulated.kubeconfig) as found:
        yield found


@pytest.mark.sentence("5.7", "5.8")
async def test_a_pool_scales_and_comes_to_rest(simulated: StackPaths, place: PoolNamespace, ours: Any) -> None:
    await place.pool(4)
    async with controllers(ours) as running:
        await until(place.available, 4)
        await until(lambda: place.condition("Progressing"), ("True", "Complete"))
        status = await place.status()
        assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (4, 4, 4)
        assert {c["type"]: c["status"] for c in status["conditions"]} == {
            "Valid": "True",
            "Available": "True",
            "Progressing": "True",
            "RolloutComplete": "True",
            "Default": "False",
            "Ready": "True",
        }
        scale(simulated, place, 2)
        await until(place.available, 2)
        scale(simulated, place, 6)
        await until(place.available, 6)
        await until(lambda: place.condition("Progressing"), ("True", "Complete"))
        await rests(running.written, 3)
        assert running.violations() == 0
        await place.hears("SuccessfulCreate", "VMReady", "SuccessfulDelete")


def scale(paths: StackPaths, place: PoolNamespace, replicas: int) -> None:
    command = ["kubectl", "--kubeconfig", str(paths.kubeconfig), "-n", place.namespace, "scale", "vmwp/web"]
    done = subprocess.run([*command, f"--replicas={replicas}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.sentence("5.1")
async def test_no_vm_is_created_without_a_pool(place: PoolNamespace, ours: Any) -> None:
    await until(lambda: _anywhere(place), [])  # VMs of earlier tests
    async with controllers(ours) as running:
        await asyncio.sleep(1)
        assert running.writes() == 0
    assert await place.documents() == []


async def _anywhere(place: PoolNamespace) -> list[str]:
    """Pools and VMs in all namespaces."""
    found = [each for resource in (WARM_POOLS, VMS) for each in (await place.api.list(resource))[0]]
    return [f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in found]


@pytest.mark.sentence("5.2", "5.56")
async def test_four_pools_create_eleven_vms_and_come_to_rest(place: PoolNamespace, ours: Any) -> None:
    """Two pools have the same template. A pool that counted VMs of the other would create and delete VMs for ever."""
    for name, replicas, memory in (("a", 2, "64Mi"), ("b", 5, "96Mi"), ("c", 3, "128Mi"), ("d", 1, "64Mi")):
        await place.pool(replicas, name, template=template(memory), default=name == "a")
    async with controllers(ours) as running:
        await until(place.states, {"Ready": 11})
        there, before = await place.uids(), running.value("vm_terminations_total")
        await asyncio.sleep(2)
        assert await place.uids() == there
        assert running.value("vm_terminations_total") == before
        await until(lambda: place.condition("Default", "a"), ("True", "DefaultPool"))


async def test_the_older_of_two_default_pools_is_the_default(place: PoolNamespace, ours: Any) -> None:
    await place.pool(0, "a", default=True)
    await asyncio.sleep(1.1)  # creation times are whole seconds
    await place.pool(0, "b", default=True)
    async with controllers(ours):
        await until(lambda: place.condition("Default", "b"), ("False", "DefaultConflict"))
        await until(lambda: place.condition("Default", "a"), ("True", "DefaultPool"))
        await place.api.delete(WARM_POOLS, place.namespace, "a")
        await until(lambda: place.condition("Default", "b"), ("True", "DefaultPool"))


async def test_a_failing_template_opens_the_circuit_breaker_which_closes_after_a_repair(
    place: PoolNamespace, ours: Any
) -> None:
    broken = template(fail="ErrImagePull")
    await place.pool(20, template=broken, refill={"maxConcurrent": 6, "breakerThreshold": 3, "backoffSeconds": 1})
    async with controllers(ours) as running:
        await until(lambda: place.condition("Degraded"), ("True", "CircuitBreakerOpen"))
        await asyncio.sleep(2)
        assert len(await place.documents()) <= 10, "the controller creates one VM at a time to test"
        assert running.value("breaker_open", namespace=place.namespace, warmpool="web") == 1
        # The image appears in the registry. A changed annotation does not change the template hash.
        await place.change(template={"metadata": {"annotations": {meta.SIM_PREFIX + "fail": None}}})
        await until(place.observed, True)

        async def repaired() -> int:
            """Repairs VMs that were created before the change as well."""
            for vm in await place.vms():
                if vm.state is not WarmState.READY:
                    await place.annotate(vm, fail="", fail_rate="0")
            return await place.available()

        await until(repaired, 20)
        await until(lambda: place.condition("Degraded"), ("False", "AsExpected"))
        await place.hears("CircuitBreakerOpen", "CircuitBreakerClosed")


@pytest.mark.sentence("5.38")
async def test_a_used_up_quota_is_reported_and_retried(place: PoolNamespace, ours: Any) -> None:
    quota = {"metadata": {"namespace": place.namespace, "name": "q"}}
    quota["spec"] = {"hard": {"count/virtualmachines.kubevirt.io": "2"}}  # type: ignore[assignment]
    await place.api.create(QUOTAS, quota)
    await place.pool(4, refill={"backoffSeconds": 1, "maxBackoffSeconds": 2})
    async with controllers(ours):
        # The quota controller of a new control plane learns of our kinds late, and refuses VMs until then.
        await until(place.available, 2)
        await until(lambda: place.condition("Available"), ("False", "InsufficientCapacity"))
        await place.api.patch(
            QUOTAS, place.namespace, "q", {"spec": {"hard": {"count/virtualmachines.kubevirt.io": "9"}}}
        )
        await until(place.available, 4)
        await place.hears("InsufficientCapacity")


@pytest.mark.sentence("5.58")
async def test_an_unhealthy_vm_is_deleted_and_replaced(place: PoolNamespace, ours: Any) -> None:
    slow = {**QUICK_CHECKS, "terminateThreshold": 10_000}
    await place.pool(2, template=template(agent="true"), readiness={"guestAgent": True}, health=slow)
    async with controllers(ours) as running:
        await until(place.available, 2)
        failing = (await place.vms())[0]
        await place.annotate(failing, agent="false")
        await until(place.states, {"Ready": 2, "Unhealthy": 1})
        await place.change(health=QUICK_CHECKS)
        await until(lambda: _has(place, failing.uid), False)
        await until(place.states, {"Ready": 2})
        labels = {"namespace": place.namespace, "warmpool": "web", "reason": "Unhealthy"}
        await until(lambda: asyncio.sleep(0, running.value("vm_terminations_total", **labels)), 1)


async def _has(place: PoolNamespace, uid: str) -> bool:
    return uid in await place.uids()


async def test_vms_leave_a_cordoned_node(place: PoolNamespace, ours: Any) -> None:
    await place.pool(4)
    async with controllers(ours):
        await until(place.available, 4)
        guests, _ = await place.api.list(VMIS, place.namespace)
        node = guests[0]["status"]["nodeName"]
        try:
            await place.api.patch(NODES, None, node, {"spec": {"unschedulable": True}})
            await until(lambda: _nodes(place), {"node-1", "node-2"} - {node})
            await until(place.states, {"Ready": 4})
        finally:
            await place.api.patch(NODES, None, node, {"spec": {"unschedulable": None}})


async def _nodes(place: PoolNamespace) -> set[str]:
    guests, _ = await place.api.list(VMIS, place.namespace)
    return {each.get("status", {}).get("nodeName", "") for each in guests}


async def test_vms_on_a_lost_node_become_unknown_and_stay(place: PoolNamespace, ours: Any) -> None:
    await place.pool(4)
    async with controllers(ours):
        await until(place.available, 4)
        before = await place.uids()
        guests, _ = await place.api.list(VMIS, place.namespace)
        node = guests[0]["status"]["nodeName"]  # while VMs of other tests go, all VMs may be on one node
        for vm in await place.vms():
            await place.annotate(vm, node_lost_seconds="3600")
        try:
            await place.api.patch(NODES, None, node, {"metadata": {"annotations": {meta.NODE_LOST: "true"}}})
            await until(lambda: _any_unknown(place), True)
            await asyncio.sleep(2)
            assert await place.uids() == before, "no VM is deleted or replaced"
        finally:
            await place.api.patch(NODES, None, node, {"metadata": {"annotations": {meta.NODE_LOST: None}}})
        await until(place.states, {"Ready": 4})
        assert await place.uids() == before


async def _any_unknown(place: PoolNamespace) -> bool:
    return "Unknown" in await place.states()


async def test_a_template_is_rolled_out_and_back(place: PoolNamespace, ours: Any) -> None:
    await place.pool(4)
    async with controllers(ours):
        await until(place.available, 4)
        first = await place.uids()
        observer = asyncio.create_task(_record_fewest_ready(place))
        # A rollout that completes between two status writes causes no event.
        await place.change(template=template("96Mi", start_seconds="1"))
        await until(lambda: _updated(place), (4, 4))
        await until(lambda: place.condition("RolloutComplete"), ("True", "Complete"))
        assert not observer.done(), "the observer has stopped"
        observer.cancel()
        assert not first & await place.uids()
        await place.change(template=template("64Mi", start_seconds="1"))
        await until(lambda: _updated(place), (4, 4))
        assert _LEAST[place.namespace] >= 3, "a quarter may be missing"
        await place.hears("RolloutStarted", "RolloutComplete")


async def test_a_new_image_of_a_data_source_refreshes_the_pool(place: PoolNamespace, ours: Any) -> None:
    def source(image: str) -> Json:
        return {"spec": {"source": {"pvc": {"name": image}}}}

    async def images() -> Tally[str]:
        vms, _ = await place.api.list(VMS, place.namespace)
        disks = (
            vm["spec"]["dataVolumeTemplates"][0]["spec"] for vm in vms if not vm["metadata"].get("deletionTimestamp")
        )
        return Tally(disk.get("source", {}).get("pvc", {}).get("name") for disk in disks)

    disk = {
        "metadata": {"name": "root"},
        "spec": {
            "sourceRef": {"kind": "DataSource", "name": "debian"},
            "storage": {"resources": {"requests": {"storage": "1Gi"}}},
        },
    }
    with_disk = template()
    with_disk["spec"]["dataVolumeTemplates"] = [disk]
    vmi = with_disk["spec"]["template"]["spec"]
    vmi["volumes"] = [{"name": "root", "dataVolume": {"name": "root"}}]
    vmi["domain"]["devices"] = {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}
    kind = {"apiVersion": DATA_SOURCES.api_version, "kind": DATA_SOURCES.kind}
    metadata = {"namespace": place.namespace, "name": "debian"}
    await place.api.create(DATA_SOURCES, {**kind, "metadata": metadata, **source("debian-1")})
    await place.pool(4, template=with_disk, updateStrategy={"trackDataSources": True})
    async with controllers(ours):
        await until(place.available, 4)
        assert await images() == {"debian-1": 4}
        first = await place.uids()
        observer = asyncio.create_task(_record_fewest_ready(place))
        await place.api.patch(DATA_SOURCES, place.namespace, "debian", source("debian-2"))
        await until(images, {"debian-2": 4})
        await until(lambda: place.condition("RolloutComplete"), ("True", "Complete"))
        assert not observer.done(), "the observer has stopped"
        observer.cancel()
        assert _LEAST[place.namespace] >= 3, "a quarter may be missing"
        assert not first & await place.uids()
        await place.hears("ImageChanged")

        async def is_told() -> bool:
            decisions = (await place.status())["decisions"]
            return any("or an image that it tracks" in each["message"] for each in decisions)

        await until(is_told, True)


async def test_a_failing_template_stalls_the_rollout_and_old_vms_stay(place: PoolNamespace, ours: Any) -> None:
    await place.pool(4, updateStrategy={"progressDeadlineSeconds": 600})
    async with controllers(ours):
        await until(place.available, 4)
        first = await place.uids()
        await place.change(template=template("96Mi", fail="CrashLoopBackOff"))
        await until(place.available, 3)
        await place.change(updateStrategy={"progressDeadlineSeconds": 1})
        await until(lambda: place.condition("RolloutComplete"), ("False", "ProgressDeadlineExceeded"))
        assert await place.available() == 3
        await place.change(template={**template(), "metadata": {"annotations": {meta.SIM_PREFIX + "fail": None}}})
        await until(place.available, 4)
        assert len(first & await place.uids()) == 3, "they are of this template"
        await place.hears("RolloutStalled")


async def test_unschedulable_vms_are_not_replaced(place: PoolNamespace, ours: Any) -> None:
    await place.pool(3, template=template(fail="ErrorUnschedulable"), readiness={"timeoutSeconds": 600})
    async with controllers(ours):
        await until(lambda: place.condition("Available"), ("False", "InsufficientCapacity"))
        await until(place.words, ["ErrorUnschedulable"] * 3)
        before = await place.uids()
        await place.change(readiness={"timeoutSeconds": 1})
        await until(place.observed, True)
        await asyncio.sleep(3)
        assert await place.uids() == before
        await place.change(readiness={"timeoutSeconds": 600})
        await until(place.observed, True)
        for vm in await place.vms():  # the cluster has capacity again
            await place.annotate(vm, fail="", fail_rate="0")
        await until(place.available, 3)
        assert await place.uids() == before
        await place.hears("InsufficientCapacity")


_LEAST: dict[str, int] = {}


async def _record_fewest_ready(place: PoolNamespace) -> None:
    while True:
        ready = (await place.states()).get("Ready", 0)
        _LEAST[place.namespace] = min(ready, _LEAST.get(place.namespace, ready))
        await asyncio.sleep(0.05)


async def _updated(place: PoolNamespace) -> tuple[int, int]:
    if not await place.observed():
        return -1, -1
    status = await place.status()
    return status.get("updatedReplicas", 0), status.get("availableReplicas", 0)


@pytest.mark.parametrize("mode", ["Paused", "Stopped"])
async def test_vms_wait_in_the_standby_mode_of_the_pool(place: PoolNamespace, ours: Any, mode: str) -> None:
    await place.pool(3, standby={"mode": mode, "hotReplicas": 1})
    async with controllers(ours):
        await until(place.available, 3)
        standby = sorted(vm.standby for vm in await place.vms())
        assert standby == sorted(["Running", mode, mode])
        await until(place.words, sorted(["Running", mode, mode]))
        await place.change(standby={"mode": "Running"})
        await until(lambda: _standbys(place), ["Running"] * 3)
        await until(place.states, {"Ready": 3})
        await until(place.words, ["Running"] * 3)


async def _standbys(place: PoolNamespace) -> list[str]:
    return sorted(vm.standby for vm in await place.vms())


async def test_vms_of_a_deleted_pool_become_orphans(place: PoolNamespace, ours: Any) -> None:
    await place.pool(2, deletionPolicy="Orphan")
    async with controllers(ours):
        await until(place.available, 2)
        before = await place.uids()
        await until(lambda: _finalizers(place), [FINALIZER])
        for vm in (await place.api.list(VMS, place.namespace))[0]:
            marked = {"metadata": {"annotations": {"argocd.argoproj.io/tracking-id": "shop"}}}
            await place.api.patch(VMS, place.namespace, vm["metadata"]["name"], marked)
        await place.api.delete(WARM_POOLS, place.namespace, "web")
        await until(lambda: _orphans(place), {"PoolDeleted"})
        await asyncio.sleep(1)
        assert await place.uids() == before
        assert not any(map(without_tracking_marks, await _metadata(place)))
        await place.pool(1)  # another pool of the same name
        await until(place.available, 1)
        assert before < await place.uids(), "the new pool does not adopt orphans"
        await until(lambda: _unowned(place), "True")


async def _metadata(place: PoolNamespace) -> list[Any]:
    return [vm["metadata"] for vm in (await place.api.list(VMS, place.namespace))[0]]


async def _unowned(place: PoolNamespace) -> str:
    status = (await place.api.get(WARM_POOLS, place.namespace, "web"))["status"]
    return next((each["status"] for each in status["conditions"] if each["type"] == "UnownedVMs"), "")


async def _finalizers(place: PoolNamespace) -> list[str]:
    return list((await place.api.get(WARM_POOLS, place.namespace, "web"))["metadata"].get("finalizers") or ())


async def _orphans(place: PoolNamespace) -> set[str]:
    pools, _ = await place.api.list(WARM_POOLS, place.namespace)
    return {vm.orphaned for vm in await place.vms()} if not pools else {"the pool is still there"}


async def test_an_unavailable_api_server_costs_no_vm(place: PoolNamespace, ours: Any, tmp_path: Any) -> None:
    await place.pool(4, health=QUICK_CHECKS)
    faulty = Faulty(ours, Random(1))
    async with faulty.serve(tmp_path / "kubeconfig"), controllers(tmp_path / "kubeconfig") as running:
        await until(place.available, 4)
        before = await place.uids()
        faulty.away = True
        await asyncio.sleep(6)  # longer than it takes to delete an unhealthy VM
        faulty.away = False
        await place.change(replicas=5)
        await until(place.available, 5)
        assert before < await place.uids()
        assert running.violations() == 0


async def test_conflicts_and_lost_answers_of_the_vm_backend(place: PoolNamespace, ours: Any) -> None:
    document = await place.pool(0)
    view = parse_warm_pool(document)
    assert isinstance(view, WarmPool)
    async with await Api.connect(ours, user_agent="tests", timeout_seconds=60) as api:
        creator, subresources = DefaultingCreator(api, VMS, None, "", monotonic), Subresources(api, monotonic)
        vms = VMBackend(api, creator, subresources, lambda: datetime.now(UTC))
        wanted = create_request(view, CreateVM("web-a", "default", "Running", "x"))
        made = await vms.create(wanted)
        assert (await vms.create(wanted)).uid == made.uid, "the answer to the first call may have been lost"
        with pytest.raises(AlreadyExists):
            await vms.create(replace(wanted, pool_uid="another"))
        began = datetime.now(UTC)
        taken = await change_with_retries(vms, made, Change(WarmState.READY))
        assert taken.state is WarmState.READY
        assert seconds_since(taken.state_since, began) <= 1, "state_since has whole seconds"
        with pytest.raises(WriteConflict):
            await vms.change(made, Change(WarmState.UNHEALTHY))
        assert await vms.terminate(made, "too late") is False, "the VM has changed since"
        assert await vms.read(replace(taken, uid="another")) is None
        # The garbage collector deletes VMs whose owner does not exist.
        body = {"apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind, "spec": {"poolName": view.name}}
        metadata = {"namespace": place.namespace, "name": "mine"}
        uid = (await place.api.create(CLAIMS, {**body, "metadata": metadata}))["metadata"]["uid"]
        claim = Owner("VirtualMachineClaim", "mine", uid)
        claimed = await change_with_retries(vms, taken, Change(WarmState.ALLOCATING, claim_uid=uid, owner=claim))
        assert (claimed.owner.uid, claimed.claim_uid, claimed.unclaimed) == (uid, uid, False)
        assert [vm.uid for vm in await vms.find(place.namespace, uid)] == [made.uid]


async def change_with_retries(vms: VMBackend, vm: WarmVM, wanted: Change) -> WarmVM:
    """Retries conflicts with KubeVirt's writes of the VM's status."""
    for _ in range(50):
        if (seen := await vms.read(vm)) is not None:
            with suppress(WriteConflict):
                return await vms.change(seen, wanted)
        await asyncio.sleep(0.1)
    raise AssertionError(f"{vm.name} never kept changing")


async def test_users_cannot_write_the_labels_of_warm_vms(place: PoolNamespace, ours: Any) -> None:
    await place.pool(1)
    async with controllers(ours):
        await until(place.available, 1)
        (vm,) = await place.vms()
        for labels in ({meta.WARM_STATE: "InUse"}, {meta.CLAIM_UID: "mine"}, {meta.POOL_UID: None}):
            with pytest.raises(ApiError, match="written by Poolhouse only"):
                await place.api.patch(VMS, vm.namespace, vm.name, {"metadata": {"labels": labels}})
