"""Finds disks whose DataVolume CDI has collected, so that an update does not wait for the DataVolume.

CDI deletes a completed DataVolume after `dataVolumeTTLSeconds`. It first removes the DataVolume from the owners of the
claim (detachPvcDeleteDv in CDI's garbagecollect.go). A claim with the name of a missing DataVolume is therefore
complete, unless a DataVolume still owns it. KubeVirt starts a VM with such a claim too.

The watch of claims does not show all of them: it sees those with KubeVirt's label. A claim that a user has provided for
the VM does not have it, nor one that CDI before 1.57 cloned by a snapshot (newPvcFromSnapshot in CDI's
smart-clone-controller.go).
"""

from collections.abc import Iterable
from contextlib import suppress

from controllers.shared.sources import DATA_VOLUMES
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import PVCS, Key


async def find_collected(api: Api, disks: Iterable[Key]) -> set[Key]:
    """Those of the disks without a DataVolume that have their data. A disk stays unknown if its claim cannot be
    read."""
    found = set[Key]()
    for namespace, name in disks:
        with suppress(ApiError):
            if is_complete(await api.get(PVCS, namespace, name)):
                found.add((namespace, name))
    return found


def is_complete(claim: Json) -> bool:
    """Whether a claim whose DataVolume is missing has its data."""
    metadata = claim["metadata"]
    owners = metadata.get("ownerReferences") or ()
    return "deletionTimestamp" not in metadata and all(each.get("kind") != DATA_VOLUMES.kind for each in owners)
