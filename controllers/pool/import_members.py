"""The VMs, VMIs and disks of an import, which change from one pool to the other."""

from collections.abc import Iterator
from typing import Any

from controllers.pool.import_check import revision_of
from controllers.pool.import_steps import CannotImport, Observed, Write, change_controller, identity
from controllers.pool.kubevirt_pools import FINALIZER, REVISION_LABEL, preserves_state
from controllers.shared.names import name_of, ordinal_of
from controllers.shared.vm import disk_names
from poolhouse.api.apimachinery.owner_references import controller_reference
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.pool import POOL
from poolhouse.runtime.resource import PVCS, VMIS


def label_vmis(observed: Observed, members: list[Json], revisions: dict[str, str]) -> Iterator[Write]:
    """The VMIs first: the revision of a VMI says from which template it was started."""
    for vm in members:
        name = vm["metadata"]["name"]
        vmi = observed.vmis_by_name.get(name)
        label = revisions.get(revision_of(vmi)) if vmi is not None else None
        if vmi is None or label is None or at(vmi, "metadata", "labels", meta.REVISION) == label:
            continue
        labels = {meta.POOL: observed.name, meta.REVISION: label}
        body = {"metadata": {"uid": vmi["metadata"]["uid"], "labels": labels}}
        yield Write("patch", VMIS, name, f"revision {label}", body)


def adopt(observed: Observed, target: Json, members: list[Json], revisions: dict[str, str]) -> Iterator[Write]:
    """Gives each VM its new controller in one write. The labels of the VM's template are those of the next VMI.

    Raises `CannotImport` if KubeVirt has to keep the disks of a VM first, which a paused pool does not do."""
    yield from label_vmis(observed, members, revisions)
    pool = target["metadata"]
    for vm in members:
        metadata = vm["metadata"]
        if _loses_disks(observed, metadata):
            raise CannotImport(
                f"VM {metadata['name']}: it is being deleted, and KubeVirt, which keeps its disks by statePreservation,"
                " waits while its pool is paused; take the import back with --back, and begin again when the VM is gone"
            )
        owner = controller_reference(POOL.api_version, POOL.kind, pool["name"], pool["uid"])
        label = revisions.get(revision_of(vm))
        started = revisions.get(str(at(vm, "spec", "template", "metadata", "labels", REVISION_LABEL) or ""), label)
        changes = {
            "finalizers": [each for each in metadata.get("finalizers") or () if each != FINALIZER],
            "labels": {meta.POOL: pool["name"], meta.REVISION: label},
        }
        labels = {meta.POOL: pool["name"], meta.REVISION: started}
        yield change_controller(vm, owner, changes, labels, "change its controller to the new pool")


def _loses_disks(observed: Observed, vm: Json) -> bool:
    """Whether the VM waits only for the finalizer with which KubeVirt keeps its disks."""
    kept = observed.source or at(observed.record, "data")
    strategy = at(kept, "spec", "scaleInStrategy") or {}
    waits = "deletionTimestamp" in vm and FINALIZER in (vm.get("finalizers") or ())
    return waits and preserves_state(strategy)


def retain(observed: Observed, target: Json) -> Iterator[Write]:
    """Disks without VM that KubeVirt has kept: it gives them to the next VM of the number, and so does the new pool."""
    uid = target["metadata"]["uid"]
    names, vms = disk_names(target["spec"]["template"]), {each["metadata"]["name"] for each in observed.vms}
    for claim in observed.claims:
        metadata = claim["metadata"]
        numbers = (ordinal_of(entry, metadata["name"]) for entry in names)
        number = next((each for each in numbers if each is not None), None)
        if number is None or (vm := name_of(observed.name, number)) in vms or _has_other_owner(claim):
            continue
        if metadata.get("deletionTimestamp") or at(metadata, "labels", meta.KEPT_BY):
            continue
        yield retain_disk(metadata, uid, vm)


def retain_disk(claim: Json, pool_uid: str, vm: str) -> Write:
    body = {"metadata": {**identity(claim), "labels": {meta.KEPT_BY: pool_uid, meta.KEPT_FOR: vm}}}
    return Write("patch", PVCS, claim["name"], f"retain it for {vm}", body)


def _has_other_owner(claim: Json) -> bool:
    """A DataVolume of the claim's name is its maker, and not a stranger."""
    metadata = claim["metadata"]
    references: list[Any] = metadata.get("ownerReferences") or []
    return any(each.get("kind") != "DataVolume" or each.get("name") != metadata["name"] for each in references)
