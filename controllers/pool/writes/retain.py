"""Takes a disk from its VM, so that it stays when the VM is deleted."""

from contextlib import suppress

from controllers.pool.data_volumes import PRE_POPULATED, has_held_data, is_clone
from controllers.shared.sources import DATA_VOLUMES
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.tracking_marks import without_tracking_marks
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.resource import PVCS, Resource

Labels = dict[str, str | None]
"""Labels of a retained disk. None stands for a label that the disk must not have."""


async def retain(api: Api, namespace: str, disk: str, vm_uid: str, labels: Labels) -> None:
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
                **populated(document),
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


def populated(document: Json) -> Labels:
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
