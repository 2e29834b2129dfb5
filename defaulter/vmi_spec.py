"""Derives facts from a VMI spec by the rules that KubeVirt uses to build the domain."""

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from defaulter.fields import ARCHITECTURES
from defaulter.vm_paths import VMLocation, places_on_root_complex
from poolhouse.api.apimachinery.quantity import to_int
from poolhouse.api.apimachinery.unstructured import Json, at, entries

DISK_KINDS = ("disk", "cdrom", "lun")
CONVENTIONAL_PCI_MODELS = ("e1000", "rtl8139", "pcnet", "ne2k_pci")
DEFAULT_MEMORY_BYTES = 1024**3
"""memory for a spec whose instance type sets the memory later; no address depends on this value"""

_ALIAS = re.compile(r"[A-Za-z0-9_-]+")


def alias(name: str) -> str:
    """The alias that KubeVirt gives a device: its name, or a hash if libvirt would not keep the characters."""
    return f"ua-{name}" if _ALIAS.fullmatch(name) else f"ua-{sha256(name.encode('utf-8', 'replace')).hexdigest()[:24]}"


def architecture(spec: Json) -> str:
    value = spec.get("architecture")
    return value if isinstance(value, str) and value in ARCHITECTURES else "amd64"


def virtio_model(spec: Json) -> str:
    """The libvirt model of a virtio device."""
    if architecture(spec) == "s390x":
        return "virtio"
    return "virtio-transitional" if turned_on(spec, "useVirtioTransitional") else "virtio-non-transitional"


def default_bus(architecture: str) -> str:
    """The bus that KubeVirt gives a disk without one."""
    return "sata" if architecture == "amd64" else "virtio"


def memory_bytes(spec: Json) -> int:
    return to_int(at(spec, "domain", "memory", "guest")) or DEFAULT_MEMORY_BYTES


def has_efi(spec: Json) -> bool:
    return at(spec, "domain", "firmware", "bootloader", "efi") is not None


def video_type(spec: Json) -> str:
    """The display adapter that KubeVirt gives a VM without one."""
    if architecture(spec) != "amd64":
        return "virtio"
    return "vga" if not has_efi(spec) else "bochs"


def device_field(spec: Json, name: str) -> Any:
    return at(spec, "domain", "devices", name)


def turned_on(spec: Json, name: str) -> bool:
    return device_field(spec, name) is True


def turned_off(spec: Json, name: str) -> bool:
    return device_field(spec, name) is False


def disk_kind(disk: Json) -> str | None:
    return next((kind for kind in DISK_KINDS if isinstance(disk.get(kind), dict)), None)


def is_emulated(interface: Json) -> bool:
    """Whether QEMU emulates the NIC. QEMU emulates neither an SR-IOV function nor an interface in state absent."""
    return interface.get("sriov") is None and interface.get("state") != "absent"


def addresses(spec: Any) -> Iterator[tuple[str, Any]]:
    """The field and the value of each PCI and MAC address of the disks and NICs, also of those that are unset."""
    for _, disk in entries(spec, "domain", "devices", "disks"):
        yield "pciAddress", at(disk, "disk", "pciAddress")
    for _, nic in entries(spec, "domain", "devices", "interfaces"):
        if nic.get("state") != "absent":
            yield from ((field, nic.get(field)) for field in ("pciAddress", "macAddress"))


def has_root_ports(spec: Json) -> bool:
    """Whether KubeVirt adds root ports: it does on all architectures except s390x, which has no PCI Express."""
    machine = at(spec, "domain", "machine", "type")
    express = not isinstance(machine, str) or not machine or "q35" in machine or machine.startswith("virt")
    return express and spec.get("architecture") != "s390x"


def holds_addresses(spec: Json, location: VMLocation) -> bool:
    """Whether the spec may hold PCI addresses. Three kinds of VM may not:

    - VMs on s390x;
    - VMs whose devices KubeVirt places on the root complex, because it may assign an address that is already set;
    - VMs with a device on conventional PCI, such as transitional virtio. libvirt puts the device behind a bridge,
      and the next define does not find the bridge at the same address.
    """
    if spec.get("architecture") == "s390x" or places_on_root_complex(location):
        return False
    return not has_root_ports(spec) or not any(_conventional_pci(spec))


SATA_PORTS, LSI_UNITS = 6, 7
"""disks of the machine's SATA controller, and of the SCSI controllers that libvirt adds for CD-ROM drives"""


def may_have_bridge(spec: Json) -> bool:
    """Whether libvirt may put a device that has no address in the spec behind a bridge, because it is conventional PCI.

    Its bridge has the first bus that is free when libvirt needs it. Not every address of a disk or NIC keeps it there,
    so that defaulting may leave addresses unset (`libvirt_defaults`).
    """
    if not has_root_ports(spec):
        return False
    devices = at(spec, "domain", "devices")
    models = [each.get("model") for _, each in entries(devices, "panicDevices")]
    return (
        turned_on(spec, "useVirtioTransitional")
        or at(devices, "sound", "model") == "ac97"
        or at(devices, "watchdog", "i6300esb") is not None
        or "pvpanic" in models
        or any(_needs_another_controller(spec))
    )


def _needs_another_controller(spec: Json) -> Iterator[bool]:
    """Whether each disk named sda, sdb, ... has a number that its bus's first controller does not have."""
    default = default_bus(architecture(spec))
    kinds = [(disk_kind(disk) or "disk", disk) for _, disk in entries(spec, "domain", "devices", "disks")]
    buses = [(kind, at(disk, kind, "bus") or default) for kind, disk in kinds]
    for index, (kind, bus) in enumerate(each for each in buses if each[1] != "virtio"):
        yield (bus == "sata" and index >= SATA_PORTS) or (bus == "scsi" and kind == "cdrom" and index >= LSI_UNITS)


def _conventional_pci(spec: Json) -> Iterator[bool]:
    transitional = turned_on(spec, "useVirtioTransitional")
    for _, interface in entries(spec, "domain", "devices", "interfaces"):
        if is_emulated(interface):
            model = interface.get("model") or "virtio"
            yield model in CONVENTIONAL_PCI_MODELS or (transitional and model == "virtio")
    for _, disk in entries(spec, "domain", "devices", "disks"):
        yield transitional and at(disk, "disk", "bus") == "virtio"
    for _, panic in entries(spec, "domain", "devices", "panicDevices"):
        yield panic.get("model") == "pvpanic"
