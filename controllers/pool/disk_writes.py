"""Disks that outlive their VM.

The order is what makes it safe against a crash between any two steps: our finalizer goes on the VM only as part of our
own delete; then the VM is deleted; while it waits for us, its disks are made nobody's; only then the finalizer goes,
and with it the VM. A step that is repeated finds nothing left to do.

A DataVolume belongs to its VM, and its claim to the DataVolume or to the VM. Only what belongs to the VM is touched: a
disk of the same name that somebody brought is his.
"""

from __future__ import annotations

from typing import Any

from controllers.pool.actions import Delete, ReleaseDisks, RemoveFinalizer, ReturnDisk
from controllers.pool.stores import DATA_VOLUMES, PVCS, VMS
from kinds import meta
from runtime.api import Api
from runtime.errors import NotFound
from runtime.resource import Resource

Json = dict[str, Any]


async def delete_keeping(api: Api, namespace: str, pool_uid: str, a: Delete) -> None:
    """Raises Conflict when the VM is not what it was when that was decided."""
    document = await api.get(VMS, namespace, a.name)
    finalizers = document["metadata"].get("finalizers") or []
    change: Json = {
        "uid": a.uid,
        "resourceVersion": a.resource_version,
        "finalizers": [*(each for each in finalizers if each != meta.KEEP_DISKS), meta.KEEP_DISKS],
        # So that it can be released by whoever finds it waiting, its pool gone or its owner reference removed.
        "annotations": {meta.KEPT_BY: pool_uid},
    }
    marked = await api.patch(VMS, namespace, a.name, {"metadata": change})
    version = marked["metadata"]["resourceVersion"]
    await api.delete(VMS, namespace, a.name, uid=a.uid, resource_version=version, propagation="Background")


async def release(api: Api, namespace: str, a: ReleaseDisks) -> None:
    labels = {meta.KEPT_BY: a.kept_by, meta.KEPT_FOR: a.name}
    for disk in a.disks:
        volume = await _keep(api, DATA_VOLUMES, namespace, disk, {a.uid}, labels)
        await _keep(api, PVCS, namespace, disk, {a.uid, volume}, labels)
    await _drop_finalizer(api, namespace, a.name, a.uid, None)


async def unmark(api: Api, namespace: str, a: RemoveFinalizer) -> None:
    await _drop_finalizer(api, namespace, a.name, a.uid, a.resource_version)


async def give_back(api: Api, namespace: str, a: ReturnDisk) -> None:
    owner = {
        "apiVersion": VMS.api_version,
        "kind": VMS.kind,
        "name": a.name,
        "uid": a.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    # The claim last: its label is what the pool looks for, so until it is gone all of this is tried again.
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


async def _keep(
    api: Api, resource: Resource, namespace: str, name: str, owners: set[str], labels: dict[str, str]
) -> str:
    """Makes a disk nobody's if it is the VM's (or its DataVolume's: that one goes on owning it, and is kept as well).
    Returns its UID if it is kept by now."""
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


async def _drop_finalizer(api: Api, namespace: str, name: str, uid: str, version: str | None) -> None:
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
