"""Writes of ControllerRevisions, and of the labels by which VMIs tell their revision."""

from contextlib import suppress

from controllers.pool import template
from controllers.pool.actions import AdoptRevision, LabelVMI, PinMachineType, PruneRevision, SaveRevision
from controllers.pool.writes.context import Writing
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.runtime.errors import AlreadyExists, NotFound
from poolhouse.runtime.resource import CONTROLLER_REVISIONS, VMIS


async def save(to: Writing, a: SaveRevision) -> None:
    with suppress(AlreadyExists):  # the name depends on the content, so an earlier write created this revision
        await to.api.create(CONTROLLER_REVISIONS, template.build_revision(to.owner, to.snapshot.revision))


async def adopt(to: Writing, a: AdoptRevision) -> None:
    change = {"uid": a.uid, "ownerReferences": [template.owner_reference(to.owner)]}
    await to.api.patch(CONTROLLER_REVISIONS, to.namespace, a.name, {"metadata": change})


async def pin_machine_type(to: Writing, a: PinMachineType) -> None:
    change = {"uid": a.uid, "annotations": {meta.MACHINE_TYPE: a.machine_type}}
    await to.api.patch(CONTROLLER_REVISIONS, to.namespace, a.name, {"metadata": change})


async def prune(to: Writing, a: PruneRevision) -> None:
    with suppress(NotFound):
        await to.api.delete(CONTROLLER_REVISIONS, to.namespace, a.name)


async def label_vmi(to: Writing, a: LabelVMI) -> None:
    old = await to.templates.pool_with_revision(to.snapshot, a.before)
    was = template.vmi_metadata(old, a.ordinal, to.snapshot.revisions_by_label[a.before]) if old else {}
    now = template.vmi_metadata(to.owner, a.ordinal, to.snapshot.revision)
    changes: Json = {
        part: dict.fromkeys(was.get(part) or {}) | (now.get(part) or {}) for part in ("labels", "annotations")
    }
    await to.api.patch(VMIS, to.namespace, a.name, {"metadata": {"uid": a.vmi_uid, **changes}})
