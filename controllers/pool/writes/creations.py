"""Creates VMs."""

from collections.abc import Sequence
from contextlib import suppress

from controllers.pool import template
from controllers.pool.actions import Create
from controllers.pool.data_volumes import is_left
from controllers.pool.disk_templates import entry_of, parse_hashes, same_origin
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.writes.context import Writing
from controllers.sets import writes
from controllers.sets.write_batches import Outcome
from controllers.shared.sources import DATA_VOLUMES
from controllers.shared.vm import disk_names
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Conflict, Forbidden, NotFound
from poolhouse.runtime.resource import PVCS


async def create(to: Writing, creations: Sequence[Create]) -> Outcome:
    """Creates the VMs with the hardware that the defaulter gives them all at once."""
    # Only the first VM has a dry run, so a VM that was refused before must not come first.
    creations = sorted(creations, key=lambda a: a.name in to.snapshot.refused)
    documents = [await _build(to, action) for action in creations]

    async def check_disks(action: Create, document: Json) -> None:
        if action.after_deletion and (disk := await old_disk(to.api, to.snapshot, document)):
            to.blocked.append(action.name)
            raise Conflict(f"{disk} of the VM before it still exists", status=409)

    return await writes.create(to, creations, documents, check_disks)


async def _build(to: Writing, a: Create) -> Json:
    pool, revision = to.owner, to.snapshot.revision
    if a.revision != revision.name:
        label = a.revision.rpartition("-")[2]
        if earlier := await to.templates.pool_with_revision(to.snapshot, label):
            pool, revision = earlier, to.snapshot.revisions_by_label[label]
    return template.build_vm(pool, a.ordinal, revision, a.retained_disks, dict(a.disks), a.machine_type)


async def old_disk(api: Api, snapshot: PoolSnapshot, vm: Json) -> str:
    """An existing disk of the deleted VM of this name, or ""."""
    metadata = vm["metadata"]
    namespace, annotations = metadata["namespace"], metadata.get("annotations") or {}
    hashes = parse_hashes(annotations.get(meta.DISK_TEMPLATES, ""))
    for disk in sorted(disk_names(vm)):
        makers = set[str]()
        # Without the right to get DataVolumes, the claims say enough: each owned one is somebody's.
        for resource, unknown in ((DATA_VOLUMES, (NotFound, Forbidden)), (PVCS, (NotFound,))):
            with suppress(*unknown):
                found = (await api.get(resource, namespace, disk))["metadata"]
                labels, wanted = found.get("labels") or {}, hashes.get(entry_of(disk, hashes), "")
                created = snapshot.entry_hash(labels.get(meta.DISK_TEMPLATE, wanted))
                other = meta.REPLACED in labels or not same_origin(created, wanted)
                other |= labels.get(meta.KEPT_BY, snapshot.pool.uid) != snapshot.pool.uid
                # A disk without an owner was provided for this VM, or retained from the same entry. The DataVolume
                # of the disk owns the claim that CDI has made from it.
                owners = {each.get("uid") for each in found.get("ownerReferences") or ()}
                if owners - makers or "deletionTimestamp" in found or other or is_left(found):
                    return f"{resource.kind} {disk}"
                makers.add(found["uid"])
    return ""
