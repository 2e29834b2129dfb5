"""Writes of disks that a pool retains: their return to a VM, their deletion, and the label of a restored one."""

from contextlib import suppress

from controllers.pool.actions import DateDisk, DeleteDisks, LabelState, ReturnDisk
from controllers.pool.claim_users import claim_users
from controllers.pool.vm_snapshots import RESTORE_NAME
from controllers.pool.writes.retain import populated
from controllers.shared.sources import DATA_VOLUMES
from controllers.shared.vm import PERSISTENT_STATE, disk_names, is_persistent_state
from poolhouse.api.apimachinery.owner_references import controller_reference
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Conflict, NotFound
from poolhouse.runtime.resource import PVCS, VMS


async def return_disk(api: Api, namespace: str, a: ReturnDisk) -> None:
    """Makes the VM the owner of the disk again. Raises Conflict or NotFound if the VM is being deleted, is gone or does
    not use the disk, because the disk would be deleted with its owner. A VM that has left the pool gets its disk, which
    it uses, because the pool would delete it as a retained one.

    Another leader may have deleted the VM or replaced the disk, and the informers do not have the events yet."""
    vm = await api.get(VMS, namespace, a.name)
    metadata = vm["metadata"]
    if metadata["uid"] != a.uid or "deletionTimestamp" in metadata:
        raise Conflict(f"{a.name} is being deleted or is another VM", status=409)
    if a.disk not in disk_names(vm) and not is_persistent_state((await api.get(PVCS, namespace, a.disk))["metadata"]):
        raise Conflict(f"{a.name} has no disk {a.disk} now", status=409)
    owner = controller_reference(VMS.api_version, VMS.kind, a.name, a.uid)
    # The PersistentVolumeClaim comes last: the pool finds the disk by its label, and so repeats unfinished work.
    for resource in (DATA_VOLUMES, PVCS):
        try:
            document = await api.get(resource, namespace, a.disk)
        except NotFound:
            continue
        metadata = document["metadata"]
        if meta.KEPT_BY not in (metadata.get("labels") or {}) and metadata.get("ownerReferences"):
            continue  # an earlier attempt has returned it
        change: Json = {
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "labels": dict.fromkeys((meta.KEPT_BY, meta.KEPT_FOR, meta.DISK_TEMPLATE, meta.REPLACED)),
            "annotations": {meta.RETAINED_AT: None, meta.USED_AT: None, **populated(document)},
        }
        if not metadata.get("ownerReferences"):
            change["ownerReferences"] = [owner]
        await api.patch(resource, namespace, a.disk, {"metadata": change})


async def date_disk(api: Api, namespace: str, a: DateDisk) -> None:
    metadata = {"uid": a.disk_uid, "annotations": {meta.RETAINED_AT: a.time}}
    await api.patch(PVCS, namespace, a.disk, {"metadata": metadata})


async def delete_disks(api: Api, namespace: str, users: dict[str, str], a: DeleteDisks) -> None:
    """Deletes the disks if the pool still retains all of them. `users` caches what uses claims of the namespace."""
    for disk, uid in a.disks:
        await _check_retained(api, namespace, disk, uid, a.retained_by)
    if not users:
        users |= {"": "", **await claim_users(api, namespace)}
    if used := [disk for disk, _ in a.disks if disk in users]:
        seen = {meta.USED_AT: format_time(api.now())}
        for disk, uid in a.disks:
            await api.patch(PVCS, namespace, disk, {"metadata": {"uid": uid, "annotations": seen}})
        raise Conflict(f"{used[0]} is in use by {users[used[0]]}", status=409)
    for disk, uid in a.disks:
        # The DataVolume comes first, because it would create its claim again.
        with suppress(NotFound):
            volume = (await api.get(DATA_VOLUMES, namespace, disk))["metadata"]
            if (volume.get("labels") or {}).get(meta.KEPT_BY) == a.retained_by:
                await api.delete(DATA_VOLUMES, namespace, disk, uid=volume["uid"])
        with suppress(NotFound):
            await api.delete(PVCS, namespace, disk, uid=uid)


async def _check_retained(api: Api, namespace: str, disk: str, uid: str, pool_uid: str) -> None:
    """Raises Conflict if the pool does not retain the disk any more."""
    metadata = (await api.get(PVCS, namespace, disk))["metadata"]
    owned = [each for each in metadata.get("ownerReferences") or () if each.get("kind") != DATA_VOLUMES.kind]
    if owned or metadata["uid"] != uid or (metadata.get("labels") or {}).get(meta.KEPT_BY) != pool_uid:
        raise Conflict(f"{disk} is not retained any more", status=409)


async def label_state(api: Api, namespace: str, a: LabelState) -> None:
    """Raises Conflict if the restore has not created the claim yet."""
    metadata = (await api.get(PVCS, namespace, a.claim))["metadata"]
    if (metadata.get("annotations") or {}).get(RESTORE_NAME) != a.restore:
        raise Conflict(f"{a.claim} is not restored by {a.restore} yet", status=409)
    change = {"resourceVersion": metadata["resourceVersion"], "labels": {PERSISTENT_STATE: a.name}}
    await api.patch(PVCS, namespace, a.claim, {"metadata": change})
