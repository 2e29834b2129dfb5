"""What the writes of a plan do if the objects have changed since the plan was made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from controllers.pool.actions import (
    Adopt,
    DeleteDisks,
    ForgetRestore,
    Heal,
    Hold,
    ReleaseDisks,
    Restart,
    Restore,
    RetainDisks,
    ReturnDisk,
    SetInService,
    Update,
)
from controllers.pool.data_volumes import PRE_POPULATED, has_held_data
from controllers.pool.pools import POOLS
from controllers.pool.vm_snapshots import VM_RESTORES
from controllers.pool.writes.context import Templates, Writing
from controllers.pool.writes.disks import release_disks, retain_replaced_disks
from controllers.pool.writes.existing_disks import existing_disk
from controllers.pool.writes.hooks import hold, set_in_service
from controllers.pool.writes.retained_disks import delete_disks, return_disk
from controllers.pool.writes.snapshots import forget_restore, restore
from controllers.pool.writes.updates import update
from controllers.pool.writes.vms import adopt, heal, restart, unready_version
from controllers.shared.data_sources import DATA_SOURCES
from controllers.shared.sources import DATA_VOLUMES
from controllers.shared.subresources import Subresources
from controllers.shared.vm import disk_names
from poolhouse.api.apimachinery.owner_references import controller_of, controller_reference
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Conflict, Forbidden, Invalid, NotFound
from poolhouse.runtime.resource import PVCS, VMIS, VMS
from tests.controllers.pool.builders import a_pool, snapshot, template
from tests.histories.client import Failpoint
from tests.histories.world import HERE, World
from tests.virtual_loop import VirtualLoop

Json = dict[str, Any]
Scene = Callable[[World, Api], Awaitable[None]]

POOL_UID = "pool-uid"
POOL = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachinePool", "metadata": {"name": "web", "uid": POOL_UID}}
COLLECTED_SECONDS = 10.0


def writing(api: Api) -> Writing:
    subresources = Subresources(api, api.monotonic)
    owner = SimpleNamespace(namespace=HERE, name="web", uid=POOL_UID)
    return SimpleNamespace(api=api, namespace=HERE, owner=owner, subresources=subresources)


def play(scene: Scene) -> None:
    """Runs the scene with an API server in memory and a client of it."""

    async def played() -> None:
        world = World(Random(1))
        await scene(world, world.api("users"))

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(moment_seconds=0)) as runner:
        runner.run(played())


async def create(api: Api, resource: Any, name: str, owner: Json | None = None, **metadata: Any) -> Json:
    references: Json = {}
    if owner:
        uid = owner["metadata"]["uid"]
        reference = controller_reference(owner["apiVersion"], owner["kind"], owner["metadata"]["name"], uid)
        references = {"ownerReferences": [reference]}
    document = {"metadata": {"name": name, "namespace": HERE, **references, **metadata}, "kind": resource.kind}
    return dict(await api.create(resource, {"apiVersion": resource.api_version, **document}))


async def create_member(api: Api, replaced: str) -> Json:
    """A VM of a pool that exists, with this annotation of its replaced disks."""
    pool = await create(api, POOLS, "web")
    return await create(api, VMS, "web-1", pool, annotations={meta.REPLACED_DISKS: replaced})


def retaining(vm: Json, created_from: str) -> RetainDisks:
    owner = controller_of(vm) or {"uid": POOL_UID}
    disks = (("root-1", created_from),)
    return RetainDisks("web-1", vm["metadata"]["uid"], disks, owner["uid"], "an update has replaced the disk")


async def create_vmi(api: Api, *, ready: bool, **more: Any) -> Json:
    status = {**more, "phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
    metadata = {"name": "web-1", "namespace": HERE}
    return dict(await api.create(VMIS, {"metadata": metadata, "status": status}))


async def create_disk(api: Api, vm: Json) -> None:
    volume = await create(api, DATA_VOLUMES, "root-1", vm)
    await create(api, PVCS, "root-1", volume)


async def exists(api: Api, resource: Any, name: str) -> bool:
    return name in {each["metadata"]["name"] for each in (await api.list(resource, HERE))[0]}


HELD = {"labels": {meta.TRANSITION: "Restarting"}}


def owned_by(pool_uid: str) -> list[Json]:
    return [controller_reference("kubevirt.io/v1", "VirtualMachinePool", "web", pool_uid)] if pool_uid else []


async def create_vm(api: Api, *, ready: bool, owner: str = POOL_UID, **metadata: Any) -> Json:
    """A VM of the pool that should run."""
    metadata = {"name": "web-1", "namespace": HERE, "ownerReferences": owned_by(owner), **metadata}
    document = {"metadata": metadata, "spec": {"runStrategy": "Always"}}
    await api.create(VMS, document)
    status = {"status": {"ready": ready, "created": True}}
    return dict(await api.patch(VMS, HERE, "web-1", status, subresource="status"))


@pytest.mark.parametrize(
    ("vm_ready", "vmi", "refused"),
    [
        pytest.param(True, "starting", False, id="the VM before the VMI was ready"),
        pytest.param(True, "ready", True, id="ready since the plan"),
        pytest.param(False, "ready", True, id="ready a moment ago, so that the VM does not say so yet"),
        pytest.param(True, "deleting", False, id="ready until it is gone"),
        pytest.param(True, "held", False, id="held, so that it is not available"),
    ],
)
@pytest.mark.sentence("1.9")
def test_a_vm_that_has_become_available_is_not_taken(vm_ready: bool, vmi: str, refused: bool) -> None:
    async def scene(world: World, api: Api) -> None:
        uid = (await create_vmi(api, ready=vmi != "starting"))["metadata"]["uid"]
        if vmi == "deleting":
            await api.patch(VMIS, HERE, "web-1", {"metadata": {"finalizers": ["example.com/grace"]}})
            await api.delete(VMIS, HERE, "web-1")
        marks = {**HELD, "annotations": {meta.TRANSITION_VMI: uid}} if vmi == "held" else {}
        before = await create_vm(api, ready=vm_ready, **marks)
        version = (await api.get(VMIS, HERE, "web-1"))["metadata"]["resourceVersion"]
        hold_ = Hold(
            "web-1", before["metadata"]["uid"], "", "Terminating", uid, "now", (), (), "", spares_available=True
        )
        if refused:
            for taken in (unready_version(api, HERE, "web-1"), hold(api, HERE, hold_)):
                with pytest.raises(Conflict, match="web-1 has become available"):
                    await taken
            assert await api.get(VMS, HERE, "web-1") == before
        else:
            assert await unready_version(api, HERE, "web-1") == version

    play(scene)


MIGRATING = {"migrationState": {"startTimestamp": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize(
    ("status", "refusal"),
    [
        pytest.param({}, "", id="the VMI of the plan"),
        pytest.param({"evacuationNodeName": "node-1"}, "leaves its node now", id="evicted since the plan"),
        pytest.param(MIGRATING, "leaves its node now", id="it has begun to migrate"),
        pytest.param({"evacuationNodeName": "node-0"}, "", id="it has left that node"),
    ],
)
def test_a_vm_that_leaves_its_node_is_not_restarted(status: Json, refusal: str) -> None:
    async def scene(world: World, api: Api) -> None:
        uid = (await create_vmi(api, ready=True, nodeName="node-1", **status))["metadata"]["uid"]
        await create_vm(api, ready=True)
        restarting = restart(writing(api), Restart("web-1", uid, False, "the plan"))
        if refusal:
            with pytest.raises(Conflict, match=f"web-1 {refusal}"):
                await restarting
            assert (await api.get(VMIS, HERE, "web-1"))["metadata"]["uid"] == uid
        else:
            await restarting

    play(scene)


def test_a_restart_takes_only_the_vmi_of_the_plan() -> None:
    async def scene(world: World, api: Api) -> None:
        await create_vm(api, ready=True)
        await create_vmi(api, ready=True)
        with pytest.raises(Conflict, match="web-1 has another VMI now"):
            await restart(writing(api), Restart("web-1", "former", True, "the plan"))

    play(scene)


def heal_it(to: Writing, vm_uid: str, vmi_uid: str) -> Awaitable[None]:
    return heal(to, Heal("web-1", vm_uid, "the plan"))


def restart_it(to: Writing, vm_uid: str, vmi_uid: str) -> Awaitable[None]:
    return restart(to, Restart("web-1", vmi_uid, False, "the plan"))


def update_it(to: Writing, vm_uid: str, vmi_uid: str) -> Awaitable[None]:
    return update(to, Update("web-1", vm_uid, 1, "r1", "r2", "the plan"))


REQUEST = "web-r1=2026-01-01T00:00:00Z"


def restore_it(to: Writing, vm_uid: str, vmi_uid: str) -> Awaitable[None]:
    return restore(to, Restore("web-1", vm_uid, "restore", "snapshot", REQUEST, "Always", "the plan"))


def adopt_it(to: Writing, vm_uid: str, vmi_uid: str) -> Awaitable[None]:
    return adopt(to, Adopt("web-1", vm_uid, "the plan"))


@pytest.mark.parametrize("write", [heal_it, restart_it, update_it, restore_it, adopt_it])
@pytest.mark.parametrize("owner", ["another-pool", ""])
def test_a_vm_that_has_left_the_pool_since_the_plan_is_left_alone(owner: str, write: Any) -> None:
    async def scene(world: World, api: Api) -> None:
        vm = await create_vm(api, ready=False, owner=owner)
        vmi = await create_vmi(api, ready=True)
        failed = {"status": {"startFailure": {"consecutiveFailCount": 3}}}
        before = await api.patch(VMS, HERE, "web-1", failed, subresource="status")
        with pytest.raises(Conflict, match=r"web-1 has (left the pool|a controller now)"):
            await write(writing(api), vm["metadata"]["uid"], vmi["metadata"]["uid"])
        assert await api.get(VMS, HERE, "web-1") == before
        assert await api.get(VMIS, HERE, "web-1") == vmi
        assert (await api.list(VM_RESTORES, HERE))[0] == []

    play(scene)


def test_a_vm_notes_its_run_strategy_before_its_restore_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(world: World, api: Api) -> None:
        vm = await create_vm(api, ready=True)
        with monkeypatch.context() as patched:

            async def create(*given: Any, **options: Any) -> Json:
                raise NotFound("not served", status=404)

            patched.setattr(api, "create", create)
            with pytest.raises(NotFound):
                await restore_it(writing(api), vm["metadata"]["uid"], "")
        noted = await api.get(VMS, HERE, "web-1")
        assert noted["metadata"]["annotations"] == {meta.RESTORE: REQUEST, meta.RUN_STRATEGY: "Always"}
        await restore_it(writing(api), vm["metadata"]["uid"], "")
        assert await api.get(VMS, HERE, "web-1") == noted
        assert [each["metadata"]["name"] for each in (await api.list(VM_RESTORES, HERE))[0]] == ["restore"]
        await forget_restore(writing(api), ForgetRestore("web-1", vm["metadata"]["uid"], REQUEST, "the plan"))
        assert (await api.get(VMS, HERE, "web-1"))["metadata"]["annotations"] == {meta.RESTORED: REQUEST}

    play(scene)


def test_a_vm_of_the_pool_that_fails_is_replaced() -> None:
    async def scene(world: World, api: Api) -> None:
        vm = await create_vm(api, ready=False)
        failed = {"status": {"startFailure": {"consecutiveFailCount": 3}}}
        await api.patch(VMS, HERE, "web-1", failed, subresource="status")
        await heal_it(writing(api), vm["metadata"]["uid"], "")
        assert "deletionTimestamp" in (await api.get(VMS, HERE, "web-1"))["metadata"]

    play(scene)


@pytest.mark.parametrize("in_service", [True, False])
def test_a_hold_that_has_changed_since_the_plan_stops_the_label(in_service: bool) -> None:
    async def scene(world: World, api: Api) -> None:
        vmi = (await create_vmi(api, ready=True))["metadata"]
        marks = {**HELD, "annotations": {meta.TRANSITION_VMI: vmi["uid"]}} if in_service else {}
        await create(api, VMS, "web-1", POOL, **marks)
        with pytest.raises(Conflict, match="held now"):
            await set_in_service(writing(api), SetInService("web-1", vmi["uid"], in_service, "the plan"))
        assert (await api.get(VMIS, HERE, "web-1"))["metadata"]["resourceVersion"] == vmi["resourceVersion"]

    play(scene)


def test_a_vm_that_has_left_the_pool_keeps_its_services_and_its_replaced_disk() -> None:
    async def scene(world: World, api: Api) -> None:
        vmi = (await create_vmi(api, ready=True))["metadata"]
        vm = await create(api, VMS, "web-1", annotations={meta.REPLACED_DISKS: "root-1=hash"})
        await create_disk(api, vm)
        with pytest.raises(Conflict, match="has left the pool"):
            await set_in_service(writing(api), SetInService("web-1", vmi["uid"], True, "the plan"))
        assert (await api.get(VMIS, HERE, "web-1"))["metadata"]["resourceVersion"] == vmi["resourceVersion"]
        action = retaining(vm, "hash")
        with pytest.raises(Conflict, match="has left the pool"):
            await retain_replaced_disks(api, HERE, action)
        disk = (await api.get(PVCS, HERE, "root-1"))["metadata"]
        assert meta.KEPT_BY not in disk.get("labels", {})
        assert disk["ownerReferences"]

    play(scene)


def test_a_vm_that_has_left_the_pool_gets_the_disk_back_that_it_uses() -> None:
    """Retention would delete the disk under it."""

    async def scene(world: World, api: Api) -> None:
        vm = await create(api, VMS, "web-1")
        spec = {"dataVolumeTemplates": [{"metadata": {"name": "root-1"}}]}
        await api.patch(VMS, HERE, "web-1", {"spec": spec})
        await create(api, PVCS, "root-1", labels={meta.KEPT_BY: POOL_UID, meta.KEPT_FOR: "web-1"})
        await return_disk(api, HERE, ReturnDisk("web-1", vm["metadata"]["uid"], "root-1", "web-1 exists again"))
        disk = (await api.get(PVCS, HERE, "root-1"))["metadata"]
        assert meta.KEPT_BY not in (disk.get("labels") or {})
        assert [each["uid"] for each in disk["ownerReferences"]] == [vm["metadata"]["uid"]]

    play(scene)


@pytest.mark.parametrize(("deleted", "why"), [(True, "is being deleted"), (False, "web-1 has no disk root-1 now")])
def test_a_retained_disk_is_not_returned_to_a_vm_that_is_being_deleted_or_has_another_disk(
    deleted: bool, why: str
) -> None:
    async def scene(world: World, api: Api) -> None:
        vm = await create(api, VMS, "web-1", finalizers=["example.com/stuck"])
        kept = {meta.KEPT_BY: POOL_UID, meta.KEPT_FOR: "web-1"}
        await create(api, PVCS, "root-1", labels=kept)
        if deleted:
            await api.delete(VMS, HERE, "web-1")
        with pytest.raises(Conflict, match=why):
            await return_disk(api, HERE, ReturnDisk("web-1", vm["metadata"]["uid"], "root-1", "web-1 exists again"))
        assert (await api.get(PVCS, HERE, "root-1"))["metadata"]["labels"] == kept

    play(scene)


async def crash_while_retaining(world: World, vm: Json, write: int) -> RetainDisks:
    """Retains the disk root-1 in a process that crashes after its write with this number."""
    action = retaining(vm, "hash")
    transport = world.transport("controllers")
    transport.failpoint = Failpoint(write, after=True)
    working = asyncio.create_task(retain_replaced_disks(Api(transport, "controllers"), HERE, action))
    transport.on_crash = working.cancel
    await asyncio.gather(working, return_exceptions=True)
    return action


@pytest.mark.parametrize("write", [1, 2])
def test_a_crash_while_a_replaced_disk_is_retained_leaves_work_that_can_be_repeated(write: int) -> None:
    async def scene(world: World, api: Api) -> None:
        vm = await create_member(api, "root-1=hash")
        await create_disk(api, vm)
        await retain_replaced_disks(api, HERE, await crash_while_retaining(world, vm, write))
        for resource in (PVCS, DATA_VOLUMES):
            labels = (await api.get(resource, HERE, "root-1"))["metadata"]["labels"]
            assert labels[meta.KEPT_FOR] == "web-1"
        await api.delete(VMS, HERE, "web-1")
        await asyncio.sleep(COLLECTED_SECONDS)
        assert await exists(api, PVCS, "root-1")

    play(scene)


@pytest.mark.parametrize(("write", "stays"), [(1, False), (2, True)])
def test_a_disk_stays_with_the_label_by_which_the_pool_finds_it_or_goes_with_its_vm(write: int, stays: bool) -> None:
    """A user deletes the VM before the work is repeated."""

    async def scene(world: World, api: Api) -> None:
        vm = await create_member(api, "root-1=hash")
        await create_disk(api, vm)
        await crash_while_retaining(world, vm, write)
        await api.delete(VMS, HERE, "web-1")
        await asyncio.sleep(COLLECTED_SECONDS)
        found = (await api.list(PVCS, HERE, label_selector=meta.KEPT_BY))[0]
        assert [each["metadata"]["name"] for each in found] == ["root-1"] * stays
        assert await exists(api, PVCS, "root-1") == stays
        assert await exists(api, DATA_VOLUMES, "root-1") == stays

    play(scene)


def test_a_disk_that_the_vm_got_back_is_not_retained_as_a_replaced_one() -> None:
    """A rollback gave the VM its former disk, and the labels of its retention were not removed yet."""

    async def scene(world: World, api: Api) -> None:
        vm = await create(api, VMS, "web-1", finalizers=[meta.KEEP_DISKS])
        uid = vm["metadata"]["uid"]
        kept = {meta.KEPT_BY: POOL_UID, meta.KEPT_FOR: "web-1"}
        await create(api, PVCS, "root-1", labels={**kept, meta.REPLACED: "true"})
        await release_disks(
            api,
            HERE,
            ReleaseDisks("web-1", uid, ("root-1",), "", persists_state=False, retained_by=POOL_UID, reason=""),
        )
        assert (await api.get(PVCS, HERE, "root-1"))["metadata"]["labels"] == kept

    play(scene)


async def create_volume(api: Api, vm: Json, phase: str, source: str = "pvc") -> None:
    spec = {"source": {source: {"namespace": "images", "name": "golden"}}}
    volume = await create(api, DATA_VOLUMES, "root-1", vm)
    await api.patch(DATA_VOLUMES, HERE, "root-1", {"spec": spec})
    await api.patch(DATA_VOLUMES, HERE, "root-1", {"status": {"phase": phase}}, subresource="status")
    await create(api, PVCS, "root-1", volume)


@pytest.mark.parametrize(
    ("source", "annotated"), [pytest.param("pvc", True, id="a clone"), pytest.param("http", False, id="an import")]
)
def test_a_retained_clone_says_that_it_has_its_data(source: str, annotated: bool) -> None:
    """CDI refuses each other change of a clone by an account that may not clone from the source's namespace."""

    async def scene(world: World, api: Api) -> None:
        vm = await create_member(api, "root-1=hash")
        await create_volume(api, vm, "Succeeded", source)
        await retain_replaced_disks(api, HERE, retaining(vm, "hash"))
        volume = (await api.get(DATA_VOLUMES, HERE, "root-1"))["metadata"]
        assert not volume.get("ownerReferences")
        assert volume["annotations"].get(PRE_POPULATED) == ("root-1" if annotated else None)

    play(scene)


def test_a_disk_without_a_valid_hash_is_retained_without_the_label() -> None:
    async def scene(world: World, api: Api) -> None:
        vm = await create_member(api, "root-1=no label!")
        await create_volume(api, vm, "Succeeded", "http")
        action = retaining(vm, "")
        await retain_replaced_disks(api, HERE, action)
        labels = (await api.get(DATA_VOLUMES, HERE, "root-1"))["metadata"]["labels"]
        assert labels[meta.KEPT_BY] == action.retained_by
        assert meta.DISK_TEMPLATE not in labels
        annotations = (await api.get(VMS, HERE, "web-1"))["metadata"].get("annotations") or {}
        assert meta.REPLACED_DISKS not in annotations

    play(scene)


@pytest.mark.parametrize("phase", ["ImportInProgress", "CloneScheduled", "Pending", "WaitForFirstConsumer"])
def test_a_disk_without_data_is_not_retained(phase: str) -> None:
    async def scene(world: World, api: Api) -> None:
        vm = await create_member(api, "root-1=hash")
        await create_volume(api, vm, phase)
        await retain_replaced_disks(api, HERE, retaining(vm, "hash"))
        await asyncio.sleep(COLLECTED_SECONDS)
        assert not await exists(api, DATA_VOLUMES, "root-1")
        assert not await exists(api, PVCS, "root-1")
        annotations = (await api.get(VMS, HERE, "web-1"))["metadata"].get("annotations") or {}
        assert meta.REPLACED_DISKS not in annotations

    play(scene)


@pytest.mark.parametrize(
    ("phase", "annotations", "held"),
    [
        pytest.param("Succeeded", {}, True, id="imported"),
        pytest.param("Paused", {}, True, id="the first stage is imported"),
        pytest.param("Failed", {}, True, id="it may have had data"),
        pytest.param(None, {}, True, id="restored from a backup, and CDI has not looked yet"),
        pytest.param("ImportInProgress", {}, False, id="importing"),
        pytest.param("Pending", {PRE_POPULATED: "root-1"}, True, id="its claim came with data"),
    ],
)
def test_whether_a_disk_has_held_data(phase: str | None, annotations: Json, held: bool) -> None:
    assert has_held_data({"metadata": {"annotations": annotations}, "status": {"phase": phase}}) is held


def test_the_claim_of_a_retained_disk_belongs_to_its_data_volume() -> None:
    """CDI makes the DataVolume the owner of its claim. A VM may take such a disk again."""

    async def scene(world: World, api: Api) -> None:
        document = {"metadata": {"name": "web-1", "namespace": HERE}, "spec": {**template()["spec"]}}
        document["spec"]["dataVolumeTemplates"] = [{"metadata": {"name": "root-1"}, "spec": {}}]
        document["spec"]["template"]["spec"]["volumes"] = [{"name": "root", "dataVolume": {"name": "root-1"}}]
        volume = await create(api, DATA_VOLUMES, "root-1")
        await create(api, PVCS, "root-1", volume)
        assert await existing_disk(api, snapshot(a_pool()), document, ["root-1"]) == ""
        await api.delete(PVCS, HERE, "root-1")
        await create(api, PVCS, "root-1", await create(api, DATA_VOLUMES, "other"))
        assert await existing_disk(api, snapshot(a_pool()), document, ["root-1"]) == "PersistentVolumeClaim root-1", (
            "another owner"
        )

    play(scene)


@pytest.mark.parametrize(("by", "found"), [("u-web", ""), ("u-other", "PersistentVolumeClaim root-1")])
def test_a_disk_that_another_pool_retains_is_left_to_it(by: str, found: str) -> None:
    async def scene(world: World, api: Api) -> None:
        document = {"metadata": {"name": "web-1", "namespace": HERE}, "spec": {**template()["spec"]}}
        document["spec"]["dataVolumeTemplates"] = [{"metadata": {"name": "root-1"}, "spec": {}}]
        await create(api, PVCS, "root-1", labels={meta.KEPT_BY: by})
        assert await existing_disk(api, snapshot(a_pool()), document, ["root-1"]) == found

    play(scene)


@pytest.mark.parametrize(
    ("owned", "labels", "found"),
    [
        pytest.param(True, {}, True, id="it belongs to a VM"),
        pytest.param(False, {meta.KUBEVIRT_CREATED_BY: "u"}, True, id="a VM has left it"),
        pytest.param(False, {}, False, id="it was provided for this VM"),
        pytest.param(None, {}, False, id="there is none"),
    ],
)
def test_a_claim_says_whose_a_disk_is_without_the_right_to_get_data_volumes(
    owned: bool | None, labels: Json, found: bool
) -> None:
    async def scene(world: World, api: Api) -> None:
        class Refusing:
            async def get(self, resource: Any, namespace: str, name: str) -> Json:
                if resource is DATA_VOLUMES:
                    raise Forbidden("not you", status=403)
                return dict(await api.get(resource, namespace, name))

        document = {"metadata": {"name": "web-1", "namespace": HERE}, "spec": {**template()["spec"]}}
        document["spec"]["dataVolumeTemplates"] = [{"metadata": {"name": "root-1"}, "spec": {}}]
        owner = await create(api, VMS, "db") if owned else None
        if owned is not None:
            await create(api, PVCS, "root-1", owner, labels=labels)
        old = await existing_disk(Refusing(), snapshot(a_pool()), document, ["root-1"])
        assert old == ("PersistentVolumeClaim root-1" if found else "")

    play(scene)


IMAGE = {"source": {"pvc": {"name": "root-1", "namespace": HERE}}}


@pytest.mark.parametrize(
    ("namespace", "data_source", "stays"),
    [
        pytest.param("images", {"spec": IMAGE}, True, id="of another namespace"),
        pytest.param(HERE, {"spec": {"source": {"pvc": {"name": "root-1"}}}}, True, id="of this namespace"),
        pytest.param(
            "images",
            {"spec": {"source": {"dataSource": {"name": "golden", "namespace": HERE}}}, "status": IMAGE},
            True,
            id="by way of another DataSource",
        ),
        pytest.param("images", {"spec": {"source": {"pvc": {"name": "root-1"}}}}, False, id="at a claim of its own"),
        pytest.param(HERE, {"spec": {"source": {"snapshot": {"name": "root-1"}}}}, False, id="at a snapshot"),
    ],
)
def test_a_retained_disk_stays_while_a_data_source_points_at_it(namespace: str, data_source: Json, stays: bool) -> None:
    """It is an image, from which others clone disks."""

    async def scene(world: World, api: Api) -> None:
        claim = await create(api, PVCS, "root-1", labels={meta.KEPT_BY: POOL_UID})
        document = {"kind": DATA_SOURCES.kind, "metadata": {"name": "image", "namespace": namespace}, **data_source}
        await api.create(DATA_SOURCES, document)
        if "status" in data_source:
            await api.patch(DATA_SOURCES, namespace, "image", data_source, subresource="status")
        action = DeleteDisks("web-1", (("root-1", claim["metadata"]["uid"]),), POOL_UID, "it is old")
        with pytest.raises(Conflict, match="in use by DataSource image") if stays else nullcontext():
            await delete_disks(api, HERE, {}, action)
        assert await exists(api, PVCS, "root-1") == stays

    play(scene)


ADDED = "data-1"


@pytest.mark.parametrize(
    ("resource", "owner", "labels", "given"),
    [
        pytest.param(DATA_VOLUMES, "db", {}, False, id="another VM owns it"),
        pytest.param(PVCS, "db", {}, False, id="another VM owns it, and CDI has collected its DataVolume"),
        pytest.param(PVCS, "", {meta.KEPT_BY: "u-other"}, False, id="another pool retains it"),
        pytest.param(PVCS, "", {meta.KEPT_BY: "u-web", meta.REPLACED: "true"}, False, id="an update has replaced it"),
        pytest.param(DATA_VOLUMES, "web-1", {}, True, id="the VM owns it, because its template had it before"),
        pytest.param(PVCS, "", {meta.KEPT_BY: "u-web"}, True, id="it was retained for this VM"),
        pytest.param(PVCS, "", {}, True, id="it was provided for this VM"),
        pytest.param(None, "", {}, True, id="there is none"),
    ],
)
def test_an_update_gives_a_vm_no_disk_of_another_owner(resource: Any, owner: str, labels: Json, given: bool) -> None:
    """The plan did not see the disk: the stores may be behind."""

    async def scene(world: World, api: Api) -> None:
        spec = template()["spec"]
        spec["dataVolumeTemplates"].append({"metadata": {"name": "data"}, "spec": {}})
        spec["template"]["spec"]["volumes"].append({"name": "data", "dataVolume": {"name": "data"}})
        pool = replace(a_pool(template={"spec": spec}), namespace=HERE)
        vm = await create_vm(api, ready=True, owner=pool.uid)
        owners = {"web-1": {"apiVersion": VMS.api_version, "kind": VMS.kind, **vm}, "db": await create(api, VMS, "db")}
        if resource is not None:
            await create(api, resource, ADDED, owners.get(owner), labels=labels)
        facts: Json = {"owner": pool, "snapshot": snapshot(pool), "templates": Templates(api)}
        to = SimpleNamespace(**{**vars(writing(api)), **facts})
        with nullcontext() if given else pytest.raises(Invalid, match=f"{resource.kind} {ADDED}"):
            await update(to, Update("web-1", vm["metadata"]["uid"], 1, "", "r1", "the plan"))
        assert (ADDED in disk_names(await api.get(VMS, HERE, "web-1"))) == given

    play(scene)
