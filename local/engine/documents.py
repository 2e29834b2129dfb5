"""The documents that the engine makes of others, and the difference between two."""

from __future__ import annotations

from typing import Any

from local.engine.reading import template_hash
from local.engine.resources import GENERATION_ANNOTATION, TEMPLATE_HASH_ANNOTATION, VMI_FINALIZER

Json = dict[str, Any]


def vmi_for(vm: Json, *, paused: bool = False) -> Json:
    """The VMI that a VM is started with: its name, its template, and the VM as controller."""
    metadata, template = vm["metadata"], vm["spec"]["template"]
    inner, spec = template.get("metadata") or {}, dict(template.get("spec") or {})
    if paused:
        spec["startStrategy"] = "Paused"
    annotations = {
        **(inner.get("annotations") or {}),
        GENERATION_ANNOTATION: str(metadata.get("generation") or 1),
        TEMPLATE_HASH_ANNOTATION: template_hash(template.get("spec") or {}),
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": inner.get("labels") or {},
            "annotations": annotations,
            "finalizers": [VMI_FINALIZER],
            "ownerReferences": [_controller(vm)],
        },
        "spec": spec,
    }


def data_volume_for(vm: Json, name: str) -> Json | None:
    """The DataVolume of one of the VM's dataVolumeTemplates; None where there is no template of that name any more."""
    metadata = vm["metadata"]
    for template in vm["spec"].get("dataVolumeTemplates") or ():
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
                    "ownerReferences": [_controller(vm)],
                },
                "spec": template.get("spec") or {},
            }
    return None


def pvc_for(disk: Json) -> Json:
    """The pvc of a DataVolume, bound as soon as its status says so."""
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


def merge_patch(old: Json, new: Json) -> Json:
    """The merge patch that makes the one into the other."""
    patch: Json = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if before == value:
            continue
        patch[key] = merge_patch(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
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
