"""Looks for disks that exist already under names that a VM is about to get.

KubeVirt would give the VM such a disk with its data. The stores may not show the disk yet, or not say whose it is.
"""

from collections.abc import Collection
from contextlib import suppress

from controllers.pool.data_volumes import is_left
from controllers.pool.disk_templates import entry_of, parse_hashes, same_origin
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.sources import DATA_VOLUMES
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Forbidden, NotFound
from poolhouse.runtime.resource import PVCS


async def existing_disk(api: Api, snapshot: PoolSnapshot, vm: Json, disks: Collection[str]) -> str:
    """One of these disks that exists and is not for the VM to have, or "". The VM need not exist yet."""
    metadata = vm["metadata"]
    namespace, annotations = metadata["namespace"], metadata.get("annotations") or {}
    hashes = parse_hashes(annotations.get(meta.DISK_TEMPLATES, ""))
    for disk in sorted(disks):
        makers = {metadata["uid"]} if "uid" in metadata else set()
        # Without the right to get DataVolumes, the claims say enough: each owned one is somebody's.
        for resource, unknown in ((DATA_VOLUMES, (NotFound, Forbidden)), (PVCS, (NotFound,))):
            with suppress(*unknown):
                found = (await api.get(resource, namespace, disk))["metadata"]
                labels, wanted = found.get("labels") or {}, hashes.get(entry_of(disk, hashes), "")
                created = snapshot.entry_hash(labels.get(meta.DISK_TEMPLATE, wanted))
                other = meta.REPLACED in labels or not same_origin(created, wanted)
                other |= labels.get(meta.KEPT_BY, snapshot.pool.uid) != snapshot.pool.uid
                # A disk without an owner was provided for this VM, or retained from the same entry. The DataVolume
                # of the disk owns the claim that CDI has made from it. A VM owns a disk that an update took from it.
                owners = {each.get("uid") for each in found.get("ownerReferences") or ()}
                if owners - makers or "deletionTimestamp" in found or other or is_left(found):
                    return f"{resource.kind} {disk}"
                makers.add(found["uid"])
    return ""
