"""What KubeVirt does with the volumes of a VMI: from which the guest boots, and from which cloud-init reads."""

from collections.abc import Mapping
from math import inf
from typing import Any

from poolhouse.api.apimachinery.unstructured import Json, entries, typed

CLOUD_INIT_METHODS: Mapping[str, str] = {"cloudInitNoCloud": "noCloud", "cloudInitConfigDrive": "configDrive"}
"""The propagation method of an access credential that cloud-init applies, by the source of the volume that it needs."""
BOOT_SOURCES = frozenset({"containerDisk", "dataVolume", "persistentVolumeClaim", "ephemeral", "hostDisk"})
"""Sources of volumes that may hold an operating system."""


def boot_volume(vmi: Json | None) -> Json:
    """The volume of the first disk in boot order, by the spec of a VMI. CD-ROMs without a boot order come last, because
    they hold drivers or installers. Empty if no volume can be booted."""
    order: dict[Any, tuple[float, bool, int]] = {}
    for number, disk in entries(vmi, "domain", "devices", "disks"):
        boot_order = typed(int, disk, "bootOrder")
        order[disk.get("name")] = (inf if boot_order is None else boot_order, disk.get("cdrom") is not None, number)
    last = (inf, False, len(order))  # KubeVirt appends a disk for a volume that has none
    volumes = [volume for _, volume in entries(vmi, "volumes")]
    bootable = [volume for volume in volumes if any(volume.get(source) is not None for source in BOOT_SOURCES)]
    return min(bootable, key=lambda volume: order.get(volume.get("name"), last), default={})
