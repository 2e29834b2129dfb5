"""Disks of VMs: the names that dataVolumeTemplates declare, and disks that outlive their VM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from apimachinery.unstructured import Json, at
from kinds import meta

DISKS = (
    ("dataVolume", "name"),
    ("persistentVolumeClaim", "claimName"),
    ("ephemeral", "persistentVolumeClaim", "claimName"),
)
"""Paths in a volume to the name of a DataVolume or PersistentVolumeClaim."""


def disk_names(vm: Json) -> tuple[str, ...]:
    """Names of the DataVolumes and PersistentVolumeClaims of a VM, or of a template, in their order."""
    templates = (vm.get("spec") or {}).get("dataVolumeTemplates") or ()
    return tuple(name for each in templates if (name := (each.get("metadata") or {}).get("name")))


def references(volume: Json, paths: Iterable[tuple[str, ...]]) -> Iterator[tuple[Json, str]]:
    """The objects in a volume that hold a name at one of these paths, with the key of the name."""
    for *path, key in paths:
        holder = at(volume, *path)
        if isinstance(at(holder, key), str):
            yield holder, key


@dataclass(frozen=True, slots=True)
class RetainedDisk:
    """A PersistentVolumeClaim that outlived its VM, with the DataVolume of the same name if there is one."""

    namespace: str
    name: str
    retained_by: str
    """UID of the pool"""
    retained_for: str
    """name of the VM that gets the disk back"""


def parse_retained_disk(document: Json) -> RetainedDisk:
    metadata = document["metadata"]
    labels = metadata.get("labels") or {}
    return RetainedDisk(
        metadata.get("namespace", ""), metadata["name"], labels.get(meta.KEPT_BY, ""), labels.get(meta.KEPT_FOR, "")
    )
