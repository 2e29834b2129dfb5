"""Defines API resources, finalizers and annotations of the engine, and builds documents and conditions."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from poolhouse.api.apimachinery.owner_references import controller_reference
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.kubevirt import DATA_SOURCE, DATA_VOLUME, VMI_MIGRATION
from poolhouse.api.kinds.kubevirt_snapshots import VM_RESTORE, VM_SNAPSHOT, VM_SNAPSHOT_CONTENT
from poolhouse.manifests.rbac import service_account_user
from poolhouse.runtime.resource import PVCS, VMIS, Resource

MIGRATIONS = Resource.of(VMI_MIGRATION)
DATA_VOLUMES = Resource.of(DATA_VOLUME)
DATA_SOURCES = Resource.of(DATA_SOURCE)
SNAPSHOTS = Resource.of(VM_SNAPSHOT)
SNAPSHOT_CONTENTS = Resource.of(VM_SNAPSHOT_CONTENT)
RESTORES = Resource.of(VM_RESTORE)

SUBRESOURCE_GROUP = "subresources.kubevirt.io"
KUBEVIRT_USER = service_account_user("engine")
"""the user whose writes count as KubeVirt's own"""
FRONT_PROXY = "poolhouse-front-proxy"
"""common name of the certificate with which the API server calls the engine"""
NODE_NAMES = ("node-1", "node-2")

# Finalizers of KubeVirt.
VM_FINALIZER = "kubevirt.io/virtualMachineControllerFinalize"
VMI_FINALIZER = "kubevirt.io/foregroundDeleteVirtualMachine"
SNAPSHOT_FINALIZER = "snapshot.kubevirt.io/vmsnapshot-protection"
SNAPSHOT_SOURCE_FINALIZER = "snapshot.kubevirt.io/snapshot-source-protection"
SNAPSHOT_CONTENT_FINALIZER = "snapshot.kubevirt.io/vmsnapshotcontent-protection"
RESTORE_FINALIZER = "snapshot.kubevirt.io/vmrestore-protection"
LAST_RESTORE_ANNOTATION = "restore.kubevirt.io/lastRestoreUID"
RESTORE_ANNOTATION = "restore.kubevirt.io/name"
NODE_LABEL = "kubevirt.io/nodeName"
SCHEDULABLE_LABEL = "kubevirt.io/schedulable"
WORKLOAD_UPDATE_ANNOTATION = "kubevirt.io/workloadUpdateMigration"
LAUNCHER_LABEL = "kubevirt.io"
DOMAIN_ANNOTATION = "kubevirt.io/domain"
EVICTION_SOURCE_ANNOTATION = "kubevirt.io/eviction-source"
GENERATION_ANNOTATION = "kubevirt.io/vm-generation"

# Hash of the template from which a VMI was created. If the VM has another hash, it gets the condition RestartRequired.
TEMPLATE_HASH_ANNOTATION = "local.poolhouse.dev/template"
# Annotation of a PVC: the content of its disk.
CONTENT_ANNOTATION = "local.poolhouse.dev/content"
BUILT_IN_GUEST = "tiny"
"""content of a disk whose image was unreachable; its VM boots the built-in Linux"""


def disk_kind(disk: Json) -> str:
    """How the guest sees the disk: as a disk, unless the spec says otherwise."""
    return next((kind for kind in ("disk", "cdrom", "lun") if disk.get(kind) is not None), "disk")


def new_vmi(vm: Json, template_hash: str, *, paused: bool) -> Json:
    """Returns a new VMI that the VM controls, with the VM's name and template."""
    metadata, template = vm["metadata"], vm["spec"]["template"]
    inner, spec = template.get("metadata") or {}, dict(template.get("spec") or {})
    if paused:
        spec["startStrategy"] = "Paused"
    annotations = {
        **(inner.get("annotations") or {}),
        GENERATION_ANNOTATION: str(metadata.get("generation") or 1),
        TEMPLATE_HASH_ANNOTATION: template_hash,
    }
    return _new(VMIS, vm, metadata["name"], inner.get("labels") or {}, annotations, spec)


def new_data_volume(vm: Json, name: str) -> Json | None:
    """Returns a DataVolume from the dataVolumeTemplate with this name; None if the VM has no such template."""
    for template in vm["spec"].get("dataVolumeTemplates") or ():
        metadata = template["metadata"]
        if metadata["name"] == name:
            labels = {**(metadata.get("labels") or {}), "kubevirt.io/created-by": vm["metadata"]["uid"]}
            return _new(DATA_VOLUMES, vm, name, labels, metadata.get("annotations") or {}, template.get("spec") or {})
    return None


def new_pvc(data_volume: Json) -> Json:
    """Returns a new PVC for a DataVolume."""
    metadata, spec = data_volume["metadata"], data_volume["spec"]
    given = spec.get("pvc") or spec.get("storage") or {}
    claim = {name: value for name, value in given.items() if value is not None}
    claim.setdefault("accessModes", ["ReadWriteOnce"])
    # No provisioner serves this storage class, so only the engine binds the PVC.
    claim.setdefault("storageClassName", "poolhouse-local")
    claim.setdefault("volumeName", f"pvc-{metadata['uid']}")
    labels = {**(metadata.get("labels") or {}), "app": "containerized-data-importer"}
    return _new(PVCS, data_volume, metadata["name"], labels, metadata.get("annotations") or {}, claim)


def _new(resource: Resource, owner: Json, name: str, labels: Json, annotations: Json, spec: Json) -> Json:
    metadata = owner["metadata"]
    reference = controller_reference(owner["apiVersion"], owner["kind"], metadata["name"], metadata["uid"])
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": annotations,
            "finalizers": [VMI_FINALIZER] if resource is VMIS else [],
            "ownerReferences": [reference],
        },
        "spec": spec,
    }


def condition(kind: str, status: bool | str, reason: str = "", message: str = "") -> Json:
    """Returns a condition without lastTransitionTime, which `merge_conditions` adds."""
    value = status if isinstance(status, str) else str(status)
    fields = {"type": kind, "status": value, "reason": reason, "message": message}
    return {key: text for key, text in fields.items() if text}


def find_condition(conditions: Iterable[Mapping[str, Any]], kind: str) -> Mapping[str, Any] | None:
    return next((each for each in conditions if each.get("type") == kind), None)


def has_condition(
    conditions: Iterable[Mapping[str, Any]], kind: str, reason: str | None = None, status: str = "True"
) -> bool:
    found = find_condition(conditions, kind)
    return found is not None and found.get("status") == status and reason in (None, found.get("reason"))


def merge_conditions(old: Sequence[Mapping[str, Any]], new: Iterable[Json], now: datetime) -> list[Json]:
    """Returns the new conditions. A condition with unchanged status keeps its lastTransitionTime."""
    merged = []
    for each in new:
        before = find_condition(old, each["type"])
        same = before is not None and before.get("status") == each["status"]
        since = before.get("lastTransitionTime") if before is not None and same else None
        merged.append({**each, "lastTransitionTime": since or format_time(now)})
    return merged
