"""Disks that outlive their VM.

The order is what makes it safe against a crash between any two steps: our finalizer goes on the VM only as part of our
own delete; then the VM is deleted; while it waits for us, its disks are made nobody's; only then the finalizer goes,
and with it the VM. A step that is repeated finds nothing left to do.
"""

from __future__ import annotations

from typing import Any

from controllers.pool.observe import MACHINES
from kinds import meta
from runtime.api import Api, Resource
from runtime.errors import NotFound

Json = dict[str, Any]

DATA_VOLUMES = Resource("cdi.kubevirt.io", "v1beta1", "datavolumes", "DataVolume")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")


async def delete_keeping(api: Api, namespace: str, name: str, uid: str, resource_version: str) -> None:
    """Raises Conflict when the VM is not what it was when that was decided."""
    document = await api.get(MACHINES, namespace, name)
    finalizers = [*(document["metadata"].get("finalizers") or ()), meta.KEEP_DISKS]
    change = {"metadata": {"uid": uid, "resourceVersion": resource_version, "finalizers": finalizers}}
    marked = await api.patch(MACHINES, namespace, name, change)
    await api.delete(
        MACHINES,
        namespace,
        name,
        uid=uid,
        resource_version=marked["metadata"]["resourceVersion"],
        propagation="Background",
    )


async def release(api: Api, namespace: str, name: str, uid: str, disks: tuple[str, ...], pool_uid: str) -> None:
    for disk in disks:
        for resource in (DATA_VOLUMES, CLAIMS):
            await _disown(api, resource, namespace, disk, uid, {meta.KEPT_BY: pool_uid, meta.KEPT_FOR: name})
    try:
        document = await api.get(MACHINES, namespace, name)
    except NotFound:
        return
    metadata = document["metadata"]
    finalizers = metadata.get("finalizers") or []
    if metadata["uid"] != uid or meta.KEEP_DISKS not in finalizers:
        return
    left = [each for each in finalizers if each != meta.KEEP_DISKS]
    version = metadata["resourceVersion"]
    change = {"metadata": {"uid": uid, "resourceVersion": version, "finalizers": left}}
    await api.patch(MACHINES, namespace, name, change)


async def _disown(api: Api, resource: Resource, namespace: str, name: str, owner: str, labels: dict[str, str]) -> None:
    try:
        metadata = (await api.get(resource, namespace, name))["metadata"]
    except NotFound:
        return
    owners = metadata.get("ownerReferences") or []
    left = [each for each in owners if each.get("uid") != owner]
    kept = {**(metadata.get("labels") or {}), **labels} == metadata.get("labels")
    if len(left) == len(owners) and kept:
        return
    change: Json = {"resourceVersion": metadata["resourceVersion"], "ownerReferences": left, "labels": labels}
    await api.patch(resource, namespace, name, {"metadata": change})
