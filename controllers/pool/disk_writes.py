"""Writes that let disks outlive their VM.

A crash between any two steps is safe, because each step can be repeated:

1. Our finalizer goes on the VM, as a part of our own deletion only.
2. The VM is deleted, and waits for the finalizer.
3. The disks lose their owner reference to the VM.
4. The finalizer is removed, and the VM goes.

A DataVolume belongs to its VM, and a PersistentVolumeClaim to the DataVolume or to the VM. A disk of the same name that
does not belong to the VM is not touched.
"""

from __future__ import annotations

from apimachinery.owner_references import controller_reference
from apimachinery.unstructured import Json
from controllers.pool.actions import Delete, ReleaseDisks, RemoveFinalizer, ReturnDisk
from controllers.shared.sources import DATA_VOLUMES, PVCS
from kinds import meta
from runtime.api import Api
from runtime.errors import NotFound
from runtime.resource import VMS, Resource


async def delete_retaining_disks(api: Api, namespace: str, pool_uid: str, a: Delete) -> None:
    """Raises Conflict if the VM has changed since the plan."""
    document = await api.get(VMS, namespace, a.name)
    finalizers = document["metadata"].get("finalizers") or []
    change: Json = {
        "uid": a.uid,
        "resourceVersion": a.resource_version,
        "finalizers": [*(each for each in finalizers if each != meta.KEEP_DISKS), meta.KEEP_DISKS],
        # The disks can be released even if the pool or the owner reference is gone by then.
        "annotations": {meta.KEPT_BY: pool_uid},
    }
    marked = await api.patch(VMS, namespace, a.name, {"metadata": change})
    version = marked["metadata"]["resourceVersion"]
    await api.delete(VMS, namespace, a.name, uid=a.uid, resource_version=version, propagation="Background")


async def release_disks(api: Api, namespace: str, a: ReleaseDisks) -> None:
    labels = {meta.KEPT_BY: a.retained_by, meta.KEPT_FOR: a.name}
    for disk in a.disks:
        volume = await _retain(api, DATA_VOLUMES, namespace, disk, {a.uid}, labels)
        await _retain(api, PVCS, namespace, disk, {a.uid, volume}, labels)
    await _remove_finalizer(api, namespace, a.name, a.uid, None)


async def remove_finalizer(api: Api, namespace: str, a: RemoveFinalizer) -> None:
    await _remove_finalizer(api, namespace, a.name, a.uid, a.resource_version)


async def return_disk(api: Api, namespace: str, a: ReturnDisk) -> None:
    owner = controller_reference(VMS.api_version, VMS.kind, a.name, a.uid)
    # The claim comes last: the pool finds the disk by the claim's label, and so repeats all of this until it is done.
    for resource in (DATA_VOLUMES, PVCS):
        try:
            metadata = (await api.get(resource, namespace, a.disk))["metadata"]
        except NotFound:
            continue
        change: Json = {
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "labels": {meta.KEPT_BY: None, meta.KEPT_FOR: None},
        }
        if not metadata.get("ownerReferences"):
            change["ownerReferences"] = [owner]
        await api.patch(resource, namespace, a.disk, {"metadata": change})


async def _retain(
    api: Api, resource: Resource, namespace: str, name: str, owners: set[str], labels: dict[str, str]
) -> str:
    """Removes the VM from the disk's owners. A DataVolume goes on owning its claim, and is retained as well.

    Returns the disk's UID if it is retained."""
    try:
        metadata = (await api.get(resource, namespace, name))["metadata"]
    except NotFound:
        return ""
    has = metadata.get("labels") or {}
    if {**has, **labels} == has:
        return str(metadata["uid"])
    references = metadata.get("ownerReferences") or []
    if not owners & {each.get("uid") for each in references}:
        return ""
    left = [each for each in references if each.get("kind") != VMS.kind or each.get("uid") not in owners]
    change: Json = {"resourceVersion": metadata["resourceVersion"], "ownerReferences": left, "labels": labels}
    await api.patch(resource, namespace, name, {"metadata": change})
    return str(metadata["uid"])


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
