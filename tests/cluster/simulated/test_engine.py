"""The simulated engine in a real stack: VMs as a KubeVirt user sees them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from poolhouse.api.apimachinery.owner_references import controller_reference
from poolhouse.api.apimachinery.unstructured import at, replaced
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.api.kubevirt.versions import NEWEST
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, NotFound, Throttled, Unavailable
from poolhouse.runtime.resource import CONFIG_MAPS, KUBEVIRTS, NODES, PVCS, UPSTREAM_POLICIES, VMIS, VMS, Resource
from poolhouse.stack.engine.resources import DATA_VOLUMES
from poolhouse.stack.paths import StackPaths
from tests.builders import manifest, vm_spec
from tests.cluster.resting import rests
from tests.resources import VM_REQUESTS
from tests.waiting import eventually

Json = dict[str, Any]


@pytest_asyncio.fixture
async def api(simulated: StackPaths) -> AsyncIterator[Api]:
    async with await Api.connect(simulated.kubeconfig, user_agent="tests", timeout_seconds=60) as api:
        yield api
        await delete_all(api, VMS)
        await eventually(lambda: nothing_left(api))


async def delete_all(api: Api, *resources: Resource) -> None:
    for resource in resources:
        for each in (await api.list(resource, "default"))[0]:
            with suppress(NotFound):  # it went with its owner
                await api.delete(resource, "default", each["metadata"]["name"])


async def nothing_left(api: Api) -> bool:
    lists = [await api.list(resource, "default") for resource in (VMS, VMIS, DATA_VOLUMES, PVCS)]
    return not any(items for items, _ in lists)


async def no_data_volumes(api: Api) -> bool:
    return not (await api.list(DATA_VOLUMES, "default"))[0]


def vm(name: str, *, annotations: Json | None = None, **spec: Any) -> Json:
    vmi = {"domain": {"memory": {"guest": "128Mi"}, "devices": {}}, "terminationGracePeriodSeconds": 1}
    return manifest(VMS, name, vm_spec(vmi, **spec), "default", annotations=annotations)


def with_disk(document: Json, source: Json) -> Json:
    name = document["metadata"]["name"] + "-disk"
    pvc = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}
    document["spec"]["dataVolumeTemplates"] = [{"metadata": {"name": name}, "spec": {"pvc": pvc, "source": source}}]
    spec = document["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "root", "dataVolume": {"name": name}}]
    spec["domain"]["devices"]["disks"] = [{"name": "root", "disk": {"bus": "virtio"}}]
    return document


async def says(api: Api, name: str, word: str) -> Json:
    async def said() -> Json | None:
        document = await api.get(VMS, "default", name)
        return document if (document.get("status") or {}).get("printableStatus") == word else None

    found = await eventually(said)
    assert isinstance(found, dict)
    return found


async def asked(api: Api, name: str, verb: str) -> bool:
    """Whether the engine, which may be restarting, has accepted the request."""
    try:
        await api.put_subresource(VM_REQUESTS, "default", name, verb)
    except (Unavailable, Throttled):
        return False
    return True


async def kill(paths: StackPaths, part: str) -> None:
    """Kills a process of the stack, once it runs: an earlier test may have killed it as well."""

    async def killed() -> bool:
        parts = json.loads(paths.status.read_text())["parts"]
        found = next(each for each in parts if each["name"] == part)
        if not (found["ready"] and found["pid"]):
            return False
        with suppress(ProcessLookupError):
            os.kill(found["pid"], signal.SIGKILL)
            return True
        return False

    await eventually(killed)


async def test_the_engine_says_as_which_kubevirt_it_behaves(api: Api) -> None:
    (found,) = (await api.list(KUBEVIRTS))[0]
    settings = ClusterSettings.of(found)
    assert (settings.release, settings.architecture, found["status"]["phase"]) == (NEWEST, "amd64", "Deployed")


async def test_a_vm_runs_with_its_disk_and_is_deleted_completely(api: Api) -> None:
    await api.create(VMS, with_disk(vm("a"), {"blank": {}}))
    machine = await says(api, "a", "Running")
    assert machine["status"]["ready"] is True
    instance = await api.get(VMIS, "default", "a")
    assert instance["metadata"]["ownerReferences"][0]["uid"] == machine["metadata"]["uid"]
    assert instance["metadata"]["labels"]["kubevirt.io/nodeName"] == instance["status"]["nodeName"]
    assert instance["status"]["machine"] == {"type": "pc-q35-7.2"}
    assert (await api.get(PVCS, "default", "a-disk"))["status"]["phase"] == "Bound"
    await api.delete(VMS, "default", "a")
    await eventually(lambda: nothing_left(api))


@pytest.mark.parametrize(
    "owner", [pytest.param(True, id="by CDI"), pytest.param(False, id="and the disk has no owner")]
)
async def test_a_vm_goes_on_with_a_disk_whose_datavolume_is_gone(api: Api, owner: bool) -> None:
    await api.create(VMS, with_disk(vm("a"), {"blank": {}}))
    machine = await says(api, "a", "Running")
    claim = await api.get(PVCS, "default", "a-disk")
    reference = controller_reference(VMS.api_version, VMS.kind, "a", machine["metadata"]["uid"])
    await api.patch(PVCS, "default", "a-disk", {"metadata": {"ownerReferences": [reference] if owner else []}})
    await api.delete(DATA_VOLUMES, "default", "a-disk")
    await eventually(lambda: no_data_volumes(api))
    await api.patch(VMS, "default", "a", {"spec": {"runStrategy": "Halted"}})
    await says(api, "a", "Stopped")
    await api.patch(VMS, "default", "a", {"spec": {"runStrategy": "Always"}})
    await says(api, "a", "Running")
    assert (await api.get(PVCS, "default", "a-disk"))["metadata"]["uid"] == claim["metadata"]["uid"]
    assert await no_data_volumes(api)
    # With the PVC, the disk is gone too, and the VM gets a new one.
    await api.patch(VMS, "default", "a", {"spec": {"runStrategy": "Halted"}})
    await says(api, "a", "Stopped")
    await api.delete(PVCS, "default", "a-disk")

    async def created_again() -> bool:
        return [at(each, "status", "phase") for each in (await api.list(DATA_VOLUMES, "default"))[0]] == ["Succeeded"]

    await eventually(created_again)


async def test_a_malformed_vm_is_refused_with_the_path(api: Api) -> None:
    path = "spec.template.spec.domain.memory.guest"
    with pytest.raises(ApiError, match=f"{path} in body must be") as refused:
        await api.create(VMS, replaced(vm("a"), "AAA", *path.split(".")), dry_run=True)
    assert refused.value.status == 422


@pytest.mark.parametrize("kind", ["ErrImagePull", "ErrorUnschedulable", "DataVolumeError", "CrashLoopBackOff"])
async def test_injected_faults_look_like_kubevirts(api: Api, kind: str) -> None:
    asked = vm("a", annotations={"sim.poolhouse.dev/fail": kind})
    await api.create(VMS, with_disk(asked, {"http": {"url": "http://nowhere.invalid/x"}}))
    machine = await says(api, "a", kind)
    if kind == "CrashLoopBackOff":
        assert machine["status"]["startFailure"]["consecutiveFailCount"] >= 1


async def test_a_vm_that_fails_twice_runs_at_the_third_try(api: Api) -> None:
    faults = {"fail": "CrashLoopBackOff", "fail-times": "2", "retry-seconds": "0.2", "start-seconds": "0.1"}
    await api.create(VMS, vm("a", annotations={f"sim.poolhouse.dev/{key}": text for key, text in faults.items()}))
    machine = await says(api, "a", "Running")
    assert "startFailure" not in machine["status"]


async def test_the_config_map_is_read_while_the_engine_runs(api: Api) -> None:
    settings = {"metadata": {"name": "simulation", "namespace": "poolhouse-system"}, "data": {"fail": "Stuck"}}
    await api.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", **settings})
    try:
        await eventually(lambda: is_stuck(api))
    finally:
        await api.delete(CONFIG_MAPS, "poolhouse-system", "simulation")
    await says(api, "a", "Running")


async def is_stuck(api: Api) -> bool:
    """Whether a new VM obeys the ConfigMap. The engine's watch of VMs may be ahead of its watch of ConfigMaps."""
    await api.create(VMS, vm("a"))

    async def status() -> str:
        found = (await api.get(VMS, "default", "a")).get("status") or {}
        return found.get("printableStatus", "") if found.get("printableStatus") in ("Starting", "Running") else ""

    if await eventually(status) == "Starting":
        return True
    await api.delete(VMS, "default", "a")
    await eventually(lambda: nothing_left(api))
    return False


async def test_cordoned_and_lost_nodes_get_no_vmis(api: Api) -> None:
    await api.patch(NODES, None, "node-1", {"spec": {"unschedulable": True}})
    try:
        await eventually(lambda: on_node_2(api))
        await api.patch(NODES, None, "node-1", {"spec": {"unschedulable": None}})
        await api.patch(NODES, None, "node-2", {"metadata": {"annotations": {"sim.poolhouse.dev/lost": "true"}}})

        async def moved() -> bool:
            try:
                found = await api.get(VMIS, "default", "a")
            except NotFound:
                return False
            status = found.get("status") or {}
            return (status.get("nodeName"), status.get("phase")) == ("node-1", "Running")

        await eventually(moved)
    finally:
        await api.patch(NODES, None, "node-1", {"spec": {"unschedulable": None}})
        await api.patch(NODES, None, "node-2", {"metadata": {"annotations": {"sim.poolhouse.dev/lost": None}}})


async def on_node_2(api: Api) -> bool:
    """Whether the engine places a new VM on node-2. Its watch of VMs may be ahead of its watch of nodes."""
    await api.create(VMS, vm("a", annotations={"sim.poolhouse.dev/node-lost-seconds": "1"}))
    await says(api, "a", "Running")
    if (await placed(api))[1] == "node-2":
        return True
    await api.delete(VMS, "default", "a")
    await eventually(lambda: nothing_left(api))
    return False


async def test_a_disk_is_changed_only_by_who_may_clone_its_source(api: Api, ours: Path) -> None:
    document = with_disk(vm("a"), {"pvc": {"namespace": "kube-public", "name": "golden"}})
    spec = document["spec"]["dataVolumeTemplates"][0]["spec"]
    await api.create(DATA_VOLUMES, manifest(DATA_VOLUMES, "clone", spec, "default"))
    async with await Api.connect(ours, user_agent="tests", timeout_seconds=60) as controllers:
        with pytest.raises(ApiError, match="insufficient permissions in clone source namespace"):
            await controllers.patch(DATA_VOLUMES, "default", "clone", {"metadata": {"labels": {"a": "b"}}})
    await delete_all(api, DATA_VOLUMES)


async def test_a_migration_fails_if_the_engine_is_killed(api: Api, simulated: StackPaths) -> None:
    selectors = {"namespaceSelector": {"kubernetes.io/metadata.name": "default"}}
    crawl = {"bandwidthPerMigration": "1Mi", "selectors": selectors}
    await api.create(UPSTREAM_POLICIES, manifest(UPSTREAM_POLICIES, "crawl", crawl))
    try:
        await api.create(VMS, vm("a"))
        await says(api, "a", "Running")
        before = await placed(api)
        await eventually(lambda: asked(api, "a", "migrate"))
        await says(api, "a", "Migrating")
        await kill(simulated, "engine")
        await says(api, "a", "Running")
        assert await placed(api) == before
        state = (await api.get(VMIS, "default", "a"))["status"]["migrationState"]
        assert (state["failed"], "engine was restarted" in state["failureReason"]) == (True, True)
    finally:
        await api.delete(UPSTREAM_POLICIES, None, "crawl")


async def test_a_vmi_that_dirties_too_much_memory_stays_or_migrates_by_post_copy(api: Api) -> None:
    hurried: Json = {"bandwidthPerMigration": "16Mi", "completionTimeoutPerGiB": 1}
    hurried["selectors"] = {"namespaceSelector": {"kubernetes.io/metadata.name": "default"}}
    await api.create(UPSTREAM_POLICIES, manifest(UPSTREAM_POLICIES, "hurried", hurried))

    async def over(failed: bool) -> Json | None:
        state: Json = (await api.get(VMIS, "default", "a"))["status"].get("migrationState") or {}
        return state if state.get("completed") and state.get("failed", False) == failed else None

    try:
        await api.create(VMS, vm("a", annotations={"sim.poolhouse.dev/dirty-memory": "64Mi"}))
        await says(api, "a", "Running")
        before = await placed(api)
        await eventually(lambda: asked(api, "a", "migrate"))
        state = await eventually(lambda: over(failed=True))
        assert (state["mode"], state["abortStatus"], await placed(api)) == ("PreCopy", "Succeeded", before)
        await api.patch(UPSTREAM_POLICIES, None, "hurried", {"spec": {"allowPostCopy": True}})
        await eventually(lambda: asked(api, "a", "migrate"))
        state = await eventually(lambda: over(failed=False))
        assert (state["mode"], "abortStatus" in state, (await placed(api))[1]) == (
            "PostCopy",
            False,
            state["targetNode"],
        )
    finally:
        await api.delete(UPSTREAM_POLICIES, None, "hurried")


async def placed(api: Api) -> tuple[str, str]:
    found = await api.get(VMIS, "default", "a")
    return found["metadata"]["uid"], found["status"]["nodeName"]


async def on_another(api: Api, node: str) -> bool:
    found = await api.get(VMIS, "default", "a")
    state = found["status"].get("migrationState") or {}
    return bool(state.get("completed") and found["status"]["nodeName"] != node)


async def test_a_killed_engine_neither_duplicates_nor_loses_objects(api: Api, simulated: StackPaths) -> None:
    names = [f"vm-{number}" for number in range(15)]
    await asyncio.gather(*(api.create(VMS, vm(name)) for name in names))
    await asyncio.sleep(0.5)
    await kill(simulated, "engine")
    await asyncio.gather(*(says(api, name, "Running") for name in names))
    instances, _ = await api.list(VMIS, "default")
    assert sorted(each["metadata"]["name"] for each in instances) == sorted(names)


async def test_an_idle_engine_writes_nothing(api: Api) -> None:
    await api.create(VMS, vm("a"))
    await says(api, "a", "Running")

    async def versions() -> list[str]:
        kinds = (VMS, VMIS, NODES)
        return [each["metadata"]["resourceVersion"] for kind in kinds for each in (await api.list(kind))[0]]

    await rests(versions, 5)
