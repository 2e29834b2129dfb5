"""The ControllerRevisions, VMs, VMIs and disks of an imported pool that goes back to KubeVirt."""

from collections.abc import Iterator

from controllers.pool.import_return_check import next_revision, our_revision, stale_revisions
from controllers.pool.import_steps import (
    CannotImport,
    Observed,
    Write,
    change_controller,
    create_revision,
    identity,
    kubevirt_owner,
    vmis,
)
from controllers.pool.kubevirt_pools import FINALIZER, REVISION_LABEL
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.runtime.resource import CONTROLLER_REVISIONS, PVCS, VMIS

_LABELS = (meta.POOL, meta.REVISION)
_ANNOTATIONS = (
    meta.DISK_TEMPLATES,
    meta.KEPT_BY,
    meta.LEFT_FIELDS,
    meta.LIVE_UPDATE_SINCE,
    meta.RESTORE,
    meta.RESTORED,
    meta.RUN_STRATEGY,
    meta.UPDATES,
)
"""what Poolhouse notes on a VM of a pool"""
_DISK_LABELS = (meta.KEPT_BY, meta.KEPT_FOR, meta.DISK_TEMPLATE)
_DISK_ANNOTATIONS = (meta.RETAINED_AT, meta.USED_AT)


def create_revisions(observed: Observed, source: Json, data: Json) -> Iterator[Write]:
    """Deletes what KubeVirt's earlier pool has left, and creates the revisions of the new one."""
    for each in stale_revisions(observed):
        why = "KubeVirt would take it for the template of a later generation"
        yield Write("delete", CONTROLLER_REVISIONS, each["metadata"]["name"], why, {}, each["metadata"]["uid"])
    owner = kubevirt_owner(source)
    known = {each["metadata"]["name"]: each for each in observed.revisions}
    for label, each in sorted(data["revisions"].items(), key=lambda entry: int(entry[1]["revision"])):
        name = each["name"]
        if (found := known.get(name)) is not None:
            if (controller_of(found) or {}).get("uid") == owner["uid"]:
                continue
            yield Write("delete", CONTROLLER_REVISIONS, name, "a way back has left it", {}, found["metadata"]["uid"])
        # KubeVirt compares this template with that of the pool, as the API server has stored it.
        template, why = each["data"] or source["spec"], f"the template of revision {label}"
        yield create_revision(observed, name, template, why, number=each["revision"], owner=owner)


def return_vms(observed: Observed, target: Json, source: Json, data: Json) -> Iterator[Write]:
    """The VMIs first: the revision of a VMI says from which template it was started."""
    names = {label: each["name"] for label, each in data["revisions"].items()}
    ours, theirs = target["metadata"]["uid"], source["metadata"]["uid"]
    none = dict.fromkeys(_LABELS)
    for vmi in (*vmis(observed, ours), *vmis(observed, theirs)):
        if our_revision(vmi):
            labels = {**none, REVISION_LABEL: _named(names, "VMI", vmi)}
            body = {"metadata": {"uid": vmi["metadata"]["uid"], "labels": labels}}
            yield Write("patch", VMIS, vmi["metadata"]["name"], f"revision {labels[REVISION_LABEL]}", body)
    for vm in observed.owned(ours):
        metadata = vm["metadata"]
        if metadata.get("deletionTimestamp"):
            continue  # it can get no finalizer any more
        label = _named(names, "VM", vm)
        started = names.get(next_revision(vm), label)
        others = (each for each in metadata.get("finalizers") or () if each not in (FINALIZER, meta.KEEP_DISKS))
        changes = {
            "finalizers": [*others, FINALIZER],
            "labels": {**none, REVISION_LABEL: label},
            "annotations": dict.fromkeys(_ANNOTATIONS),
        }
        labels = {**none, REVISION_LABEL: started}
        yield change_controller(vm, kubevirt_owner(source), changes, labels, "change its controller to KubeVirt's pool")


def _named(names: dict[str, str], kind: str, document: Json) -> str:
    name = names.get(our_revision(document))
    if name is None:
        raise CannotImport(
            f"{kind} {document['metadata']['name']}: no stored revision belongs to its label {meta.REVISION}; "
            "detach the VM"
        )
    return name


def return_disks(observed: Observed, target: Json, data: Json) -> Iterator[Write]:
    for claim in observed.claims:
        metadata = claim["metadata"]
        if metadata["name"] not in data["disks"] or metadata.get("deletionTimestamp"):
            continue
        if at(metadata, "labels", meta.KEPT_BY) == target["metadata"]["uid"]:
            marks = {"labels": dict.fromkeys(_DISK_LABELS), "annotations": dict.fromkeys(_DISK_ANNOTATIONS)}
            body = {"metadata": {**identity(metadata), **marks}}
            yield Write("patch", PVCS, metadata["name"], "it is KubeVirt's again", body)
