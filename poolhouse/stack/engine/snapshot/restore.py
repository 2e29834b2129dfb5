"""Reconciles VirtualMachineRestores by the rules of KubeVirt's restore controller."""

import copy
from datetime import datetime, timedelta

from poolhouse.api.apimachinery.merge_patch import merge_patch
from poolhouse.api.apimachinery.owner_references import controller_reference
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.vm_documents import run_strategy
from poolhouse.runtime.api import Api
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.resource import PVCS, VMS, Key
from poolhouse.stack.engine.disk_objects import PVC, DataVolume, Restore, Snapshot, VolumeBackup
from poolhouse.stack.engine.informers import Informers
from poolhouse.stack.engine.objects import VM, VMI, either, seconds_until
from poolhouse.stack.engine.resources import (
    CONTENT_ANNOTATION,
    DATA_VOLUMES,
    LAST_RESTORE_ANNOTATION,
    RESTORE_ANNOTATION,
    RESTORE_FINALIZER,
    RESTORES,
    SNAPSHOT_CONTENTS,
    condition,
    merge_conditions,
    new_data_volume,
)
from poolhouse.stack.engine.snapshot.storage import SnapshotRefused, SnapshotStorage
from poolhouse.stack.engine.vm.subresources import QueueStateChanges, SetRunning, StatusError, plan_request, vm_patch
from poolhouse.stack.engine.writes import create_absent, patch_present

GRACE = timedelta(minutes=5)
RETRY_SECONDS = 2.0
STOPPING = "Automatically stopping restore target for restore operation"
WAITING = "Waiting for target VM to be powered off. Please stop the restore target to proceed with restore"
WAITING_FOR_GRACE = f"{WAITING}, or the operation will fail after 5m0s"
NOT_POWERED_OFF = "Restore target VMI must be powered off before restore operation"
GRACE_EXCEEDED = (
    "Restore target failed to be ready within 5m0s. Please power off the target VM before attempting restore"
)
OTHER_TARGET = "restore source and restore target are different but restore target already exists"


class RestoreError(Exception):
    """The restore cannot go on now."""


def volume_name(restore: Restore, backup: VolumeBackup) -> str:
    """The name of the restored PVC and DataVolume of a volume."""
    match restore.volume_policy:
        case "InPlace":
            return backup.pvc
        case "PrefixTargetName":
            return f"{restore.vm}-{backup.volume}"
        case _:
            return f"restore-{restore.uid}-{backup.volume}"


def restored_vm(live: Json, source: Json, names: dict[str, str], restore: Restore) -> Json:
    """The VM with the spec of the snapshot. `names` are the names of the restored disks, by their names in the
    snapshot. The run strategy stays as it is, except that `running` becomes false."""
    found, spec = copy.deepcopy(live), copy.deepcopy(source["spec"])
    spec.pop("running", None)
    spec.pop("runStrategy", None)
    if live["spec"].get("running") is not None:
        spec["running"] = False
    else:
        spec["runStrategy"] = run_strategy(live["spec"])
    for each in spec.get("dataVolumeTemplates") or ():
        each["metadata"]["name"] = names.get(each["metadata"]["name"], each["metadata"]["name"])
    for volume in spec["template"]["spec"].get("volumes") or ():
        for kind, key in (("dataVolume", "name"), ("persistentVolumeClaim", "claimName")):
            if volume.get(kind) is not None:
                volume[kind][key] = names.get(volume[kind][key], volume[kind][key])
    found["spec"] = spec
    found["metadata"]["annotations"] = {
        **(found["metadata"].get("annotations") or {}),
        LAST_RESTORE_ANNOTATION: _marker(restore),
    }
    return found


def not_ready(restore: Restore, at: datetime) -> tuple[str, bool]:
    """Why the restore waits for the end of the VMI, and whether it has failed for this reason."""
    match restore.readiness_policy:
        case "StopTarget":
            return STOPPING, False
        case "WaitEventually":
            return WAITING, False
        case "FailImmediate":
            return NOT_POWERED_OFF, True
        case _:
            exceeded = at >= restore.created + GRACE
            return (GRACE_EXCEEDED, True) if exceeded else (WAITING_FOR_GRACE, False)


class RestoreController:
    def __init__(self, api: Api, informers: Informers, storage: SnapshotStorage) -> None:
        self._api, self._informers, self._storage = api, informers, storage
        self.controller: Controller[Key] = Controller("vmrestores", self.reconcile, workers=8, deadline_seconds=None)
        informers.restores.subscribe(self._changed)
        informers.vms.subscribe(self._of_vm_changed)
        informers.vmis.subscribe(self._of_vm_changed)
        informers.pvcs.subscribe(self._volume_changed)
        informers.data_volumes.subscribe(self._volume_changed)
        informers.snapshots.subscribe(self._snapshot_changed)

    def _changed(self, old: Restore | None, new: Restore | None) -> None:
        self.controller.enqueue(either(old, new).key)

    def _of_vm_changed(self, old: VM | VMI | None, new: VM | VMI | None) -> None:
        for restore in self._informers.restores.store.by("vm", either(old, new).key):
            self.controller.enqueue(restore.key)

    def _volume_changed(self, old: PVC | DataVolume | None, new: PVC | DataVolume | None) -> None:
        namespace = either(old, new).namespace
        for restore in self._informers.restores.store.all():
            if restore.namespace == namespace and not restore.complete:
                self.controller.enqueue(restore.key)

    def _snapshot_changed(self, old: Snapshot | None, new: Snapshot | None) -> None:
        snapshot = either(old, new)
        for restore in self._informers.restores.store.all():
            if (restore.namespace, restore.snapshot) == snapshot.key and not restore.complete:
                self.controller.enqueue(restore.key)

    async def reconcile(self, key: Key) -> float | None:
        restore = self._informers.restores.store.get(key)
        if restore is None:
            return None
        vm = self._informers.vms.store.get((restore.namespace, restore.vm))
        if restore.deleted is not None:
            await self._release(restore, vm)
            return None
        if restore.complete or restore.failed:
            return None
        if not restore.status:
            await self._report(restore, "Initializing VirtualMachineRestore")
            return None
        if RESTORE_FINALIZER not in restore.finalizers:
            await self._own(restore, vm)
            return None
        try:
            return await self._restore(restore, vm)
        except (RestoreError, SnapshotRefused, StatusError) as error:
            await self._report(restore, str(error), progressing=False)
            return RETRY_SECONDS

    async def _restore(self, restore: Restore, vm: VM | None) -> float | None:
        if vm is None:
            raise RestoreError(f"VM {restore.vm} does not exist; the engine restores into existing VMs only")
        vmi = self._informers.vmis.store.get(vm.key)
        if vmi is not None:
            return await self._wait_for_end(restore, vm, vmi)
        snapshot = self._usable_snapshot(restore, vm)
        document = await self._api.get(VMS, *vm.key)
        updated = (document["metadata"].get("annotations") or {}).get(LAST_RESTORE_ANNOTATION) == _marker(restore)
        if not updated:
            await self._begin(restore, document)
        content = await self._api.get(SNAPSHOT_CONTENTS, snapshot.namespace, snapshot.content)
        documents = {each["volumeName"]: each for each in content["spec"].get("volumeBackups") or ()}
        known = self._informers.snapshot_contents.store.get((snapshot.namespace, snapshot.content))
        if known is None:
            raise RestoreError(f"VMSnapshotContent {snapshot.content} does not exist")
        restored = [await self._restore_volume(restore, vm, each, documents[each.volume]) for each in known.backups]
        if not all(restored):
            await self._report(restore, "Creating new PVCs")
            return RETRY_SECONDS
        names = {each.pvc: volume_name(restore, each) for each in known.backups}
        if not updated:
            return await self._update_vm(restore, vm, content["spec"]["source"]["virtualMachine"], names)
        await self._complete(restore, document, names)
        return None

    def _usable_snapshot(self, restore: Restore, vm: VM) -> Snapshot:
        """The snapshot to restore. Raises RestoreError with the text of KubeVirt if the snapshot cannot be used."""
        snapshot = self._informers.snapshots.store.get((restore.namespace, restore.snapshot))
        if snapshot is None:
            raise RestoreError(f"VMSnapshot {restore.namespace}/{restore.snapshot} does not exist")
        if snapshot.phase == "Failed":
            raise RestoreError(f"VMSnapshot {restore.namespace}/{restore.snapshot} failed and is invalid to use")
        if not snapshot.ready:
            raise RestoreError(f"VMSnapshot {restore.namespace}/{restore.snapshot} not ready")
        if snapshot.status.get("sourceUID") != vm.uid:
            raise RestoreError(OTHER_TARGET)
        return snapshot

    async def _begin(self, restore: Restore, vm: Json) -> None:
        """Marks the VM, so that only this restore changes the VM."""
        other = (vm.get("status") or {}).get("restoreInProgress")
        if other not in (None, restore.name):
            raise RestoreError(f"vm restore {other} in progress")
        if other is None:
            await self._mark(vm, restore.name)

    async def _complete(self, restore: Restore, vm: Json, names: dict[str, str]) -> None:
        """Deletes the DataVolumes of replaced disks, and removes the mark of the VM."""
        kept = set(names.values())
        for name in names:
            if name not in kept and self._informers.data_volumes.store.get((restore.namespace, name)) is not None:
                await self._api.delete(DATA_VOLUMES, restore.namespace, name)
        if (vm.get("status") or {}).get("restoreInProgress") == restore.name:
            await self._mark(vm, None)
        await self._report(restore, "Operation complete", progressing=False, complete=True)

    async def _wait_for_end(self, restore: Restore, vm: VM, vmi: VMI) -> float | None:
        reason, failed = not_ready(restore, self._informers.now())
        if restore.readiness_policy == "StopTarget" and vmi.deleted is None and vm.run_strategy != "Halted":
            document = await self._api.get(VMS, *vm.key)
            for change in plan_request("stop", "virtualmachines", vm.name, vm, vmi, {}):
                assert isinstance(change, SetRunning | QueueStateChanges)
                subresource, patch = vm_patch(document, change)
                document = await self._api.patch(VMS, *vm.key, patch, subresource=subresource)
        await self._report(restore, reason, progressing=False, failed=failed)
        return None if failed else max(RETRY_SECONDS, seconds_until(restore.created + GRACE, self._informers.now()))

    async def _restore_volume(self, restore: Restore, vm: VM, backup: VolumeBackup, document: Json) -> bool:
        """Takes the next step of the restore of a volume. Returns whether the volume is restored."""
        name = volume_name(restore, backup)
        pvc = self._informers.pvcs.store.get((restore.namespace, name))
        if pvc is None:
            await self._create_pvc(restore, vm, backup, document["persistentVolumeClaim"], name)
            return False
        if pvc.restored_by != _marker(restore):
            if pvc.deleted is None:
                await self._api.delete(PVCS, *pvc.key, uid=pvc.uid)
            return False
        if pvc.phase == "Bound":
            return True
        await self._storage.restore(backup.snapshot, pvc)
        status = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": pvc.size}}
        await self._api.patch(PVCS, *pvc.key, {"metadata": {"uid": pvc.uid}, "status": status}, subresource="status")
        return True

    async def _create_pvc(self, restore: Restore, vm: VM, backup: VolumeBackup, source: Json, name: str) -> None:
        metadata, spec = source["metadata"], dict(source["spec"])
        spec["volumeName"] = f"restore-{restore.uid}-{backup.volume}"
        content = (metadata.get("annotations") or {}).get(CONTENT_ANNOTATION)
        annotations = {LAST_RESTORE_ANNOTATION: _marker(restore), **({CONTENT_ANNOTATION: content} if content else {})}
        data_volume = self._informers.data_volumes.store.get((restore.namespace, name))
        if data_volume is not None:
            owner = controller_reference(DATA_VOLUMES.api_version, DATA_VOLUMES.kind, name, data_volume.uid)
        else:
            owner = controller_reference(VMS.api_version, VMS.kind, vm.name, vm.uid)
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name,
                "namespace": restore.namespace,
                "labels": metadata.get("labels") or {},
                "annotations": annotations,
                "ownerReferences": [owner],
            },
            "spec": spec,
        }
        await create_absent(self._api, PVCS, body)

    async def _update_vm(self, restore: Restore, vm: VM, source: Json, names: dict[str, str]) -> float | None:
        document = restored_vm(await self._api.get(VMS, *vm.key), source, names, restore)
        templates = {each["metadata"]["name"] for each in document["spec"].get("dataVolumeTemplates") or ()}
        for name in sorted(templates & set(names.values())):
            if self._informers.data_volumes.store.get((restore.namespace, name)) is None:
                body = new_data_volume(document, name)
                assert body is not None
                # The PVC exists and is bound, so the import of the new DataVolume is complete at once.
                body["metadata"]["annotations"] |= {
                    RESTORE_ANNOTATION: restore.name,
                    "cdi.kubevirt.io/storage.prePopulated": "true",
                }
                await self._api.create(DATA_VOLUMES, body)
        await self._api.replace(VMS, document)
        await self._report(restore, "Updating target spec", deleted=[each for each in names if names[each] != each])
        return RETRY_SECONDS

    async def _own(self, restore: Restore, vm: VM | None) -> None:
        metadata: Json = {
            "resourceVersion": restore.resource_version,
            "finalizers": [*restore.finalizers, RESTORE_FINALIZER],
        }
        if vm is not None and not restore.controller_uid:
            metadata["ownerReferences"] = [controller_reference(VMS.api_version, VMS.kind, vm.name, vm.uid)]
        await self._api.patch(RESTORES, *restore.key, {"metadata": metadata})

    async def _release(self, restore: Restore, vm: VM | None) -> None:
        if vm is not None and vm.status.get("restoreInProgress") == restore.name:
            await self._mark(await self._api.get(VMS, *vm.key), None)
        left = [each for each in restore.finalizers if each != RESTORE_FINALIZER]
        if len(left) < len(restore.finalizers):
            metadata = {"resourceVersion": restore.resource_version, "finalizers": left}
            await patch_present(self._api, RESTORES, restore.key, {"metadata": metadata})

    async def _mark(self, vm: Json, restore: str | None) -> None:
        metadata = vm["metadata"]
        body = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "status": {"restoreInProgress": restore},
        }
        await self._api.patch(VMS, metadata["namespace"], metadata["name"], body, subresource="status")

    async def _report(
        self,
        restore: Restore,
        reason: str,
        *,
        progressing: bool = True,
        failed: bool = False,
        complete: bool = False,
        deleted: list[str] | None = None,
    ) -> None:
        fresh = [condition("Progressing", progressing, reason), condition("Ready", complete, reason)]
        fresh += [condition("Failure", True, reason)] if failed else []
        status: Json = {"complete": complete, **restore.status}
        status |= {"conditions": merge_conditions(restore.status.get("conditions") or (), fresh, self._informers.now())}
        if complete:
            status |= {"complete": True, "restoreTime": format_time(self._informers.now())}
        if deleted:
            status["deletedDataVolumes"] = deleted
        if patch := merge_patch(restore.status, status):
            await patch_present(self._api, RESTORES, restore.key, {"status": patch}, "status")


def _marker(restore: Restore) -> str:
    return f"{restore.name}-{restore.uid}"
