"""What a document still leaves to chance, found by looking at it alone.

Asks the same rules that fill it, so that what is waited for and what is filled cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterator

from apimachinery.unstructured import Json, at, entries
from defaulter.json_paths import DocumentEditor, Path, format_path, is_unset
from defaulter.kubevirt_defaults import (
    ClusterConfig,
    MACPolicy,
    device_kind,
    holds_addresses,
    is_emulated,
    set_kubevirt_defaults,
)
from defaulter.machine_types import is_canonical
from defaulter.vm_paths import VMLocation, locate, opted_out

CLUSTER_INDEPENDENT = ClusterConfig(binding="leave", video="leave")
"""what holds whatever a cluster is set to"""


def undefaulted_fields(document: Json, *, macs: MACPolicy = "deterministic") -> list[str]:
    """Paths in the document that defaulting would fill. Empty: complete, opted out, or of a kind with no VM in it."""
    location = locate(document)
    if location is None or opted_out(document) or not isinstance(at(document, *location.spec), dict):
        return []
    editor = DocumentEditor(document)
    set_kubevirt_defaults(editor, location, CLUSTER_INDEPENDENT)
    found = [path for path, _ in editor.filled]
    found += fields_left_to_libvirt(editor.document, location, macs)
    return [format_path(path) for path in found]


def fields_left_to_libvirt(document: Json, location: VMLocation, macs: MACPolicy) -> Iterator[Path]:
    """What is open once KubeVirt's own rules have been applied: the machine, the VM's identity, its addresses."""
    spec = at(document, *location.spec)
    domain = (*location.spec, "domain")
    machine = at(spec, "domain", "machine", "type")
    if (is_unset(machine) and not location.has_preference) or (
        isinstance(machine, str) and machine and not is_canonical(machine)
    ):
        yield (*domain, "machine", "type")
    if not location.is_template:
        paths = [(*domain, "firmware", name) for name in ("uuid", "serial")]
        yield from (path for path in paths if is_unset(at(document, *path)))
    yield from interfaces_without_mac(document, location, macs)
    panics = (*domain, "devices", "panicDevices")
    yield from ((*panics, i, "model") for i, panic in entries(document, *panics) if is_unset(panic.get("model")))
    if holds_addresses(spec, location):
        yield from devices_without_pci_address(document, location)


def interfaces_without_mac(document: Json, location: VMLocation, macs: MACPolicy) -> Iterator[Path]:
    """NICs that need a MAC address."""
    if location.is_template or macs == "leave":
        return
    interfaces = (*location.spec, "domain", "devices", "interfaces")
    for index, interface in entries(document, *interfaces):
        if is_emulated(interface) and is_unset(interface.get("macAddress")):
            yield (*interfaces, index, "macAddress")


def devices_without_pci_address(document: Json, location: VMLocation) -> Iterator[Path]:
    """Virtio disks and NICs, the only devices whose PCI address a spec can hold, that have none."""
    devices = (*location.spec, "domain", "devices")
    for index, disk in entries(document, *devices, "disks"):
        target = disk.get("disk") if device_kind(disk) == "disk" else None
        if isinstance(target, dict) and target.get("bus") == "virtio" and is_unset(target.get("pciAddress")):
            yield (*devices, "disks", index, "disk", "pciAddress")
    for index, interface in entries(document, *devices, "interfaces"):
        if is_emulated(interface) and not is_unset(interface.get("model")) and is_unset(interface.get("pciAddress")):
            yield (*devices, "interfaces", index, "pciAddress")
