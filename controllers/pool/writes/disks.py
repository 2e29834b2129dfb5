"""Writes of retained disks, and of VMs whose disks are retained.

The deletion of a VM whose disks are retained has four steps. Each step can be repeated after a crash:

1. The controller adds its finalizer to the VM, only for its own deletion.
2. The controller deletes the VM, which waits for the finalizer.
3. The disks lose their owner reference to the VM.
4. The controller removes the finalizer, and the VM is removed.

A VM owns its DataVolumes. A DataVolume or the VM owns a PersistentVolumeClaim. The controller does not change a disk of
the same name with another owner. A DataVolume that has never had its data is not retained: nothing would be lost, and
its import would be tried for ever.
"""

from contextlib import suppress

from controllers.pool.actions import (
    DateDisk,
    Delete,
    DeleteDisks,
    LabelState,
    ReleaseDisks,
    RemoveFinalizer,
    RetainDisks,
    ReturnDisk,
)
from controllers.pool.claim_users import claim_users
from controllers.pool.data_volumes import PRE_POPULATED, has_held_data, is_clone
from controllers.pool.disk_templates import entry_of, format_hashes, parse_hashes, parse_replaced
from controllers.pool.vm_snapshots import RESTORE_NAME
from controllers.pool.writes.context import read_member
from controllers.shared.sources import DATA_VOLUMES
from controllers.shared.vm import PERSISTENT_STATE, disk_names, is_persistent_state
from poolhouse.api.apimachinery.owner_references import controller_reference
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.tracking_marks import without_tracking_marks
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Conflict, NotFound
from poolhouse.runtime.resource import PVCS, VMS, Resource

Labels = dict[str, str | None]
"""Labels of a retained disk. None stands for a label that the disk must not have."""


async def delete_retaining_disks(api: Api, namespace: str, pool_uid: str, a: Delete) -> None:
    """Deletes a VM and retains its disks. Raises Conflict if the VM has changed since the plan."""
    document = await api.get(VMS, namespace, a.name)
    finalizers = document["metadata"].get("finalizers") or []
    change: Json = {
        "uid": a.uid,
        "resourceVersion": a.resource_version,
        "finalizers": [*(each for each in finalizers if each != meta.KEEP_DISKS), meta.KEEP_DISKS],
        # With this annotation, the disks can be released without the pool and the owner reference.
        "annotations": {meta.KEPT_BY: pool_uid},
    }
    marked = await api.patch(VMS, namespace, a.name, {"metadata": change})
    version = marked["metadata"]["resourceVersion"]
    await api.delete(VMS, namespace, a.name, uid=a.uid, resource_version=version, propagation="Background")


async def release_disks(api: Api, namespace: str, a: ReleaseDisks) -> None:
    # A disk that the VM got back by a rollback may still have the label of a replaced one.
    labels: Labels = {meta.KEPT_BY: a.retained_by, meta.KEPT_FOR: a.name, meta.REPLACED: None}
    hashes = parse_hashes(a.disk_templates)
    for disk in a.disks:
        created_from = hashes.get(entry_of(disk, hashes), "")
        described = labels | ({meta.DISK_TEMPLATE: created_from} if created_from else {})
        await _retain(api, namespace, disk, a.uid, described)
    if a.persists_state:
        claims, _ = await api.list(PVCS, namespace, label_selector=f"{PERSISTENT_STATE}={a.name}")
        for name in {f"{PERSISTENT_STATE}-{a.name}", *(each["metadata"]["name"] for each in claims)}:
            await _retain(api, namespace, name, a.uid, labels)
    await _remove_finalizer(api, namespace, a.name, a.uid, None)


async def remove_finalizer(api: Api, namespace: str, a: RemoveFinalizer) -> None:
    await _remove_finalizer(api, namespace, a.name, a.uid, a.resource_version)


async def retain_replaced_disks(api: Api, namespace: str, a: RetainDisks) -> None:
    """Retains disks of a VM that goes on without them. The annotation comes last, so that a crash before it repeats
    everything.

    Raises Conflict where `read_member` does: the disks of a VM that has left the pool stay those of the VM, because the
    pool would delete retained ones after a while."""
    await read_member(api, namespace, a.retained_by, a.name, a.uid)
    for disk, created_from in a.disks:
        labels: Labels = {meta.KEPT_BY: a.retained_by, meta.KEPT_FOR: a.name, meta.REPLACED: "true"}
        labels |= {meta.DISK_TEMPLATE: created_from} if created_from else {}
        await _retain(api, namespace, disk, a.uid, labels)
    metadata = (await api.get(VMS, namespace, a.name))["metadata"]
    listed = parse_replaced((metadata.get("annotations") or {}).get(meta.REPLACED_DISKS, ""))
    left = tuple(each for each in listed.items() if each not in a.disks)
    change: Json = {
        "uid": a.uid,
        "resourceVersion": metadata["resourceVersion"],
        "annotations": {meta.REPLACED_DISKS: format_hashes(left) or None},
    }
    await api.patch(VMS, namespace, a.name, {"metadata": change})


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
            "annotations": {meta.RETAINED_AT: None, meta.USED_AT: None, **_populated(document)},
        }
        if not metadata.get("ownerReferences"):
            change["ownerReferences"] = [owner]
        await api.patch(resource, namespace, a.disk, {"metadata": change})


async def date_disk(api: Api, namespace: str, a: DateDisk) -> None:
    metadata = {"uid": a.disk_uid, "annotations": {meta.RETAINED_AT: a.time}}
    await api.patch(PVCS, namespace, a.disk, {"metadata": metadata})


async def label_state(api: Api, namespace: str, a: LabelState) -> None:
    """Raises Conflict if the restore has not created the claim yet."""
    metadata = (await api.get(PVCS, namespace, a.claim))["metadata"]
    if at(metadata, "annotations", RESTORE_NAME) != a.restore:
        raise Conflict(f"{a.claim} is not restored by {a.restore} yet", status=409)
    change = {"resourceVersion": metadata["resourceVersion"], "labels": {PERSISTENT_STATE: a.name}}
    await api.patch(PVCS, namespace, a.claim, {"metadata": change})


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


async def _retain(api: Api, namespace: str, disk: str, vm_uid: str, labels: Labels) -> None:
    """Removes the VM from the disk's owners. A DataVolume still owns its claim, and is retained too.

    The PersistentVolumeClaim comes first: the pool finds disks by its label. If the VM is deleted after a crash between
    the writes, both are deleted with it. A GitOps tool would delete a disk that has its mark and no owner."""
    volume = await _retainable(api, DATA_VOLUMES, namespace, disk, {vm_uid}, labels)
    if volume and not has_held_data(volume):
        await _delete_volume(api, namespace, disk, volume, labels)
        return
    owners = {vm_uid, volume["metadata"]["uid"]} if volume else {vm_uid}
    claim = await _retainable(api, PVCS, namespace, disk, owners, labels)
    for resource, document in ((PVCS, claim), (DATA_VOLUMES, volume)):
        metadata = document["metadata"] if document else {}
        if not document or all((metadata.get("labels") or {}).get(key) == value for key, value in labels.items()):
            continue
        left = [each for each in metadata.get("ownerReferences") or () if each.get("uid") != vm_uid]
        marks = without_tracking_marks(metadata)
        change: Json = {
            "resourceVersion": metadata["resourceVersion"],
            "ownerReferences": left,
            "labels": {**marks.get("labels", {}), **labels},
            "annotations": {
                **marks.get("annotations", {}),
                meta.RETAINED_AT: format_time(api.now()),
                **_populated(document),
            },
        }
        await api.patch(resource, namespace, disk, {"metadata": change})


async def _delete_volume(api: Api, namespace: str, disk: str, volume: Json, labels: Labels) -> None:
    """Deletes a DataVolume that has no data. The label comes first, because an admission policy lets the controllers
    delete disks with this label only."""
    metadata = volume["metadata"]
    change = {
        "resourceVersion": metadata["resourceVersion"],
        "labels": {meta.KEPT_BY: labels[meta.KEPT_BY]},
        "annotations": {PRE_POPULATED: disk} if is_clone(volume) else {},
    }
    marked = await api.patch(DATA_VOLUMES, namespace, disk, {"metadata": change})
    version = marked["metadata"]["resourceVersion"]
    with suppress(NotFound):
        await api.delete(DATA_VOLUMES, namespace, disk, uid=metadata["uid"], resource_version=version)


def _populated(document: Json) -> Labels:
    """The annotation with which CDI accepts a change of a clone that is complete."""
    is_complete = document.get("kind") == DATA_VOLUMES.kind and at(document, "status", "phase") == "Succeeded"
    return {PRE_POPULATED: document["metadata"]["name"]} if is_complete and is_clone(document) else {}


async def _retainable(
    api: Api, resource: Resource, namespace: str, name: str, owners: set[str], labels: Labels
) -> Json | None:
    """The disk if it has one of the owners, or is retained for the VM already."""
    try:
        document = await api.get(resource, namespace, name)
    except NotFound:
        return None
    metadata = document["metadata"]
    has, references = metadata.get("labels") or {}, metadata.get("ownerReferences") or ()
    retained = all(has.get(key) == labels[key] for key in (meta.KEPT_BY, meta.KEPT_FOR))
    return document if retained or owners & {each.get("uid") for each in references} else None


async def _remove_finalizer(api: Api, namespace: str, name: str, uid: str, version: str | None) -> None:
    try:
        metadata = (await api.get(VMS, namespace, name))["metadata"]
    except NotFound:
        return
    finalizers = metadata.get("finalizers") or []
    if metadata["uid"] != uid or meta.KEEP_DISKS not in finalizers:
        return
    change: Json = {
        "uid": uid,
        "resourceVersion": version or metadata["resourceVersion"],
        "finalizers": [each for each in finalizers if each != meta.KEEP_DISKS],
        "annotations": {meta.KEPT_BY: None},
    }
    await api.patch(VMS, namespace, name, {"metadata": change})
