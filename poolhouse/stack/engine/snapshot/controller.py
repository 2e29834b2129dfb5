"""Reconciles VirtualMachineSnapshots, and the contents that hold the copies of their disks."""

import asyncio
import logging
from datetime import timedelta

from poolhouse.api.apimachinery.merge_patch import merge_patch
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.resource import PVCS, VMS, Key, Resource
from poolhouse.stack.engine.disk_objects import PVC, Snapshot, SnapshotContent, read_snapshot_content
from poolhouse.stack.engine.informers import Informers
from poolhouse.stack.engine.objects import VM, VMI, either, seconds_until
from poolhouse.stack.engine.resources import (
    SNAPSHOT_CONTENT_FINALIZER,
    SNAPSHOT_CONTENTS,
    SNAPSHOT_FINALIZER,
    SNAPSHOT_SOURCE_FINALIZER,
    SNAPSHOTS,
)
from poolhouse.stack.engine.snapshot import plan
from poolhouse.stack.engine.snapshot.storage import SnapshotRefused, SnapshotStorage
from poolhouse.stack.engine.writes import create_absent, delete_present, patch_present

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
REFUSED = "the storage refuses snapshots (simulated)"


class SnapshotController:
    def __init__(self, api: Api, informers: Informers, storage: SnapshotStorage) -> None:
        self._api, self._informers, self._storage = api, informers, storage
        self._deleted: asyncio.Queue[SnapshotContent] = asyncio.Queue()
        self.controller: Controller[Key] = Controller("vmsnapshots", self.reconcile, workers=8)
        self.contents: Controller[Key] = Controller(
            "vmsnapshotcontents", self.reconcile_content, workers=8, deadline_seconds=None
        )
        informers.snapshots.subscribe(self._changed)
        informers.snapshot_contents.subscribe(self._content_changed)
        informers.vms.subscribe(self._vm_changed)
        informers.pvcs.subscribe(self._pvc_changed)

    def _changed(self, old: Snapshot | None, new: Snapshot | None) -> None:
        snapshot = either(old, new)
        self.controller.enqueue(snapshot.key)
        self.contents.enqueue((snapshot.namespace, snapshot.content))

    def _content_changed(self, old: SnapshotContent | None, new: SnapshotContent | None) -> None:
        content = either(old, new)
        self.contents.enqueue(content.key)
        self.controller.enqueue((content.namespace, content.snapshot))
        if new is None:
            self._deleted.put_nowait(content)

    def _vm_changed(self, old: VM | None, new: VM | None) -> None:
        self._enqueue_of_vm(either(old, new).key)

    def _pvc_changed(self, old: PVC | None, new: PVC | None) -> None:
        for vm in self._informers.vms.store.by("pvc", either(old, new).key):
            self._enqueue_of_vm(vm.key)

    def _enqueue_of_vm(self, key: Key) -> None:
        for snapshot in self._informers.snapshots.store.by("vm", key):
            if not snapshot.final or snapshot.deleted is not None:
                self.controller.enqueue(snapshot.key)

    async def delete_copies(self) -> None:
        """Deletes the copies of contents that no longer exist, in a loop."""
        contents = self._informers.snapshot_contents.store.all()
        await self._storage.delete_others([each.snapshot for content in contents for each in content.backups])
        while True:
            content = await self._deleted.get()
            await self._storage.delete([each.snapshot for each in content.backups])

    async def reconcile(self, key: Key) -> float | None:
        snapshot = self._informers.snapshots.store.get(key)
        if snapshot is None:
            return None
        vm = self._informers.vms.store.get((snapshot.namespace, snapshot.vm))
        vmi = self._vmi_of(vm)
        content = self._informers.snapshot_contents.store.get((snapshot.namespace, snapshot.content))
        wanted = plan.plan_snapshot(snapshot, vm, vmi, content, self._missing(vm), self._informers.now())
        for action in wanted.actions:
            await self._apply(action, snapshot, vm)
        if patch := merge_patch(snapshot.status, wanted.status):
            await patch_present(self._api, SNAPSHOTS, snapshot.key, {"status": patch}, "status")
        return wanted.requeue_seconds

    def _vmi_of(self, vm: VM | None) -> VMI | None:
        vmi = self._informers.vmis.store.get(vm.key) if vm is not None else None
        return vmi if vm is not None and vmi is not None and vmi.controller_uid == vm.uid else None

    def _missing(self, vm: VM | None) -> str:
        """Which volume of the VM is not ready, in KubeVirt's words; "" if all are."""
        for volume in vm.volumes if vm is not None else ():
            pvc = self._informers.pvcs.store.get((vm.namespace, volume.pvc)) if vm is not None else None
            if pvc is None:
                return f"source volume doesnt exist: {volume.pvc}"
            if pvc.deleted is not None:
                return f"source volume is being deleted: {volume.pvc}"
            if pvc.phase != "Bound":
                return f"source volume not bound: {volume.pvc}"
        return ""

    async def _apply(self, action: plan.Action, snapshot: Snapshot, vm: VM | None) -> None:
        match action:
            case plan.Action.ADD_FINALIZER:
                await self._finalizers(SNAPSHOTS, snapshot, (*snapshot.finalizers, SNAPSHOT_FINALIZER))
            case plan.Action.REMOVE_FINALIZER:
                left = tuple(each for each in snapshot.finalizers if each != SNAPSHOT_FINALIZER)
                await self._finalizers(SNAPSHOTS, snapshot, left)
            case plan.Action.LOCK_VM:
                assert vm is not None
                version = {"resourceVersion": vm.resource_version}
                body = {"metadata": version, "status": {"snapshotInProgress": snapshot.name}}
                locked = await self._api.patch(VMS, *vm.key, body, subresource="status")
                version = {"resourceVersion": locked["metadata"]["resourceVersion"]}
                finalizers = list(dict.fromkeys((*vm.finalizers, SNAPSHOT_SOURCE_FINALIZER)))
                await self._api.patch(VMS, *vm.key, {"metadata": {**version, "finalizers": finalizers}})
            case plan.Action.UNLOCK_VM:
                assert vm is not None
                await unlock(self._api, vm)
            case plan.Action.CREATE_CONTENT:
                assert vm is not None
                await self._create_content(snapshot, vm)
            case plan.Action.DELETE_CONTENT:
                await delete_present(self._api, SNAPSHOT_CONTENTS, (snapshot.namespace, snapshot.content))

    async def _create_content(self, snapshot: Snapshot, vm: VM) -> None:
        document = await self._api.get(VMS, *vm.key)
        if document["metadata"]["uid"] != vm.uid:
            return
        backups = [await self._backup(snapshot, volume.name, volume.pvc) for volume in vm.volumes if volume.name]
        metadata = {
            key: value
            for key, value in document["metadata"].items()
            if key in ("name", "namespace", "uid", "labels", "annotations")
        }
        content = {
            "apiVersion": SNAPSHOT_CONTENTS.api_version,
            "kind": SNAPSHOT_CONTENTS.kind,
            "metadata": {
                "name": snapshot.content,
                "namespace": snapshot.namespace,
                "finalizers": [SNAPSHOT_CONTENT_FINALIZER],
            },
            "spec": {
                "virtualMachineSnapshotName": snapshot.name,
                "source": {"virtualMachine": {"metadata": metadata, "spec": document["spec"], "status": {}}},
                "volumeBackups": backups,
            },
        }
        await create_absent(self._api, SNAPSHOT_CONTENTS, content)

    async def _backup(self, snapshot: Snapshot, volume: str, pvc: str) -> Json:
        document = await self._api.get(PVCS, snapshot.namespace, pvc)
        metadata = {
            key: value
            for key, value in document["metadata"].items()
            if key in ("name", "namespace", "uid", "labels", "annotations", "ownerReferences")
        }
        return {
            "volumeName": volume,
            "persistentVolumeClaim": {"metadata": metadata, "spec": document["spec"]},
            "volumeSnapshotName": f"vmsnapshot-{snapshot.uid}-volume-{volume}",
        }

    async def reconcile_content(self, key: Key) -> float | None:
        content = self._informers.snapshot_contents.store.get(key)
        if content is None:
            return None
        snapshot = self._informers.snapshots.store.get((content.namespace, content.snapshot))
        if snapshot is None or snapshot.deleted is not None or snapshot.phase == "Failed":
            if SNAPSHOT_CONTENT_FINALIZER in content.finalizers:
                left = tuple(each for each in content.finalizers if each != SNAPSHOT_CONTENT_FINALIZER)
                await self._finalizers(SNAPSHOT_CONTENTS, content, left)
            return None
        if content.created_at or content.deleted is not None:
            return None
        # The informer may lag behind a snapshot that was just taken. A second one would contain later writes.
        if read_snapshot_content(await self._api.get(SNAPSHOT_CONTENTS, *key)).created_at:
            return None
        problem = await self._take(snapshot, content)
        if problem:
            error = {"message": problem, "time": format_time(self._informers.now())}
            status: Json = {"readyToUse": False, "error": error}
        else:
            copies = [{"volumeSnapshotName": each.snapshot, "readyToUse": True} for each in content.backups]
            status = {
                "creationTime": format_time(self._informers.now()),
                "readyToUse": True,
                "error": None,
                "volumeSnapshotStatus": copies,
            }
        if (content.status.get("error") or {}).get("message") != problem or not problem:
            await patch_present(self._api, SNAPSHOT_CONTENTS, content.key, {"status": status}, "status")
        return RETRY_SECONDS if problem else None

    async def _take(self, snapshot: Snapshot, content: SnapshotContent) -> str:
        """Copies the disks. Returns why they cannot be copied, or ""."""
        vm = self._informers.vms.store.get((content.namespace, content.vm))
        faults, _ = self._informers.faults(vm.faults if vm is not None else ())
        if faults.snapshot_fails:
            return REFUSED
        present = {}
        for each in content.backups:
            pvc = self._informers.pvcs.store.get((content.namespace, each.pvc))
            if pvc is None:
                return f"PVC {content.namespace}/{each.pvc} is gone"
            present[each.snapshot] = pvc
        end = snapshot.created + timedelta(seconds=snapshot.deadline_seconds)
        try:
            async with asyncio.timeout(seconds_until(end, self._informers.now())):
                await self._storage.take(present, self._vmi_of(vm), faults)
        except SnapshotRefused as refused:
            log.warning("%s/%s: the disks are not copied: %s", *snapshot.key, refused)
            return str(refused)
        except TimeoutError:
            return "the disks were not copied within failureDeadline"
        return ""

    async def _finalizers(
        self, resource: Resource, found: Snapshot | SnapshotContent, finalizers: tuple[str, ...]
    ) -> None:
        metadata = {"resourceVersion": found.resource_version, "finalizers": list(finalizers)}
        await patch_present(self._api, resource, found.key, {"metadata": metadata})


async def unlock(api: Api, vm: VM) -> None:
    """Lets the VM of a snapshot go. Raises `Conflict` if the VM has changed; the next attempt does what is left."""
    # The status last: it says that there is something to unlock, also after a conflict between the two writes.
    metadata = {
        "resourceVersion": vm.resource_version,
        "finalizers": [each for each in vm.finalizers if each != SNAPSHOT_SOURCE_FINALIZER],
    }
    try:
        unlocked = await api.patch(VMS, *vm.key, {"metadata": metadata})
        version = {"resourceVersion": unlocked["metadata"]["resourceVersion"]}
        body: Json = {"metadata": version, "status": {"snapshotInProgress": None}}
        await api.patch(VMS, *vm.key, body, subresource="status")
    except NotFound:
        log.debug("%s/%s: the VM is deleted", *vm.key)
