"""Creates VMs."""

from collections.abc import Sequence

from controllers.pool import template
from controllers.pool.actions import Create
from controllers.pool.writes.context import Writing
from controllers.pool.writes.existing_disks import existing_disk
from controllers.sets import writes
from controllers.sets.write_batches import Outcome
from controllers.shared.vm import disk_names
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.errors import Conflict


async def create(to: Writing, creations: Sequence[Create]) -> Outcome:
    """Creates the VMs with the hardware that the defaulter gives them all at once."""
    # Only the first VM has a dry run, so a VM that was refused before must not come first.
    creations = sorted(creations, key=lambda a: a.name in to.snapshot.refused)
    documents = [await _build(to, action) for action in creations]

    async def check_disks(action: Create, document: Json) -> None:
        if action.after_deletion and (disk := await existing_disk(to.api, to.snapshot, document, disk_names(document))):
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
