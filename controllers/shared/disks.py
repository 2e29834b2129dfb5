"""Names of the disks that a VM, or the template of a VM, declares in dataVolumeTemplates."""

from __future__ import annotations

from apimachinery.unstructured import Json


def disk_names(vm: Json) -> tuple[str, ...]:
    """Names of the DataVolumes and of their PersistentVolumeClaims, in the order of dataVolumeTemplates."""
    templates = (vm.get("spec") or {}).get("dataVolumeTemplates") or ()
    return tuple(name for each in templates if (name := (each.get("metadata") or {}).get("name")))
