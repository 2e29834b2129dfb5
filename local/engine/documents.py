"""The documents that the engine makes of others, and the difference between two."""

from __future__ import annotations

from typing import Any

from local.engine.reading import template_hash
from local.engine.resources import GENERATION, INSTANCE_FINALIZER, TEMPLATE

Json = dict[str, Any]


def instance_of(machine: Json, *, paused: bool = False) -> Json:
    """The VMI that a VM is started with: its name, its template, and the VM as controller."""
    metadata, template = machine["metadata"], machine["spec"]["template"]
    inner, spec = template.get("metadata") or {}, dict(template.get("spec") or {})
    if paused:
        spec["startStrategy"] = "Paused"
    annotations = {
        **(inner.get("annotations") or {}),
        GENERATION: str(metadata.get("generation") or 1),
        TEMPLATE: template_hash(template.get("spec") or {}),
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": inner.get("labels") or {},
            "annotations": annotations,
            "finalizers": [INSTANCE_FINALIZER],
            "ownerReferences": [_controller(machine)],
        },
        "spec": spec,
    }


def disk_of(machine: Json, name: str) -> Json | None:
    """The DataVolume of one of the VM's dataVolumeTemplates; None where there is no template of that name any more."""
    metadata = machine["metadata"]
    for template in machine["spec"].get("dataVolumeTemplates") or ():
        if template["metadata"]["name"] == name:
            inner = template["metadata"]
            labels = {**(inner.get("labels") or {}), "kubevirt.io/created-by": metadata["uid"]}
            return {
                "apiVersion": "cdi.kubevirt.io/v1beta1",
                "kind": "DataVolume",
                "metadata": {
                    "name": name,
                    "namespace": metadata["namespace"],
                    "labels": labels,
                    "annotations": inner.get("annotations") or {},
                    "ownerReferences": [_controller(machine)],
                },
                "spec": template.get("spec") or {},
            }
    return None


def claim_of(disk: Json) -> Json:
    """The claim of a DataVolume, bound as soon as its status says so."""
    metadata, spec = disk["metadata"], disk["spec"]
    wanted = dict(spec.get("pvc") or spec.get("storage") or {})
    wanted.setdefault("accessModes", ["ReadWriteOnce"])
    # There is no provisioner: with a class of its own no other controller waits to bind it.
    wanted.setdefault("storageClassName", "poolhouse-local")
    wanted.setdefault("volumeName", f"pvc-{metadata['uid']}")
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": {**(metadata.get("labels") or {}), "app": "containerized-data-importer"},
            "annotations": metadata.get("annotations") or {},
            "ownerReferences": [_controller(disk)],
        },
        "spec": wanted,
    }


def difference(old: Json, new: Json) -> Json:
    """The merge patch that makes the one into the other."""
    patch: Json = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if before == value:
            continue
        patch[key] = difference(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return patch


def _controller(owner: Json) -> Json:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
