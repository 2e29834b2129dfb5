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

from controllers.pool.actions import Delete, ReleaseDisks, RemoveFinalizer, RetainDisks
from controllers.pool.disk_templates import entry_of, format_hashes, parse_hashes, parse_replaced
from controllers.pool.writes.context import read_member
from controllers.pool.writes.retain import Labels, retain
from controllers.shared.vm import PERSISTENT_STATE
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.resource import PVCS, VMS


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
        await retain(api, namespace, disk, a.uid, described)
    if a.persists_state:
        claims, _ = await api.list(PVCS, namespace, label_selector=f"{PERSISTENT_STATE}={a.name}")
        for name in {f"{PERSISTENT_STATE}-{a.name}", *(each["metadata"]["name"] for each in claims)}:
            await retain(api, namespace, name, a.uid, labels)
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
        await retain(api, namespace, disk, a.uid, labels)
    metadata = (await api.get(VMS, namespace, a.name))["metadata"]
    listed = parse_replaced((metadata.get("annotations") or {}).get(meta.REPLACED_DISKS, ""))
    left = tuple(each for each in listed.items() if each not in a.disks)
    change: Json = {
        "uid": a.uid,
        "resourceVersion": metadata["resourceVersion"],
        "annotations": {meta.REPLACED_DISKS: format_hashes(left) or None},
    }
    await api.patch(VMS, namespace, a.name, {"metadata": change})


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
