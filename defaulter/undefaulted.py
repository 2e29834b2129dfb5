"""Finds the fields of a document that still need a default, without libvirt.

The functions use the rules of defaulting, so `undefaulted_fields` is empty exactly if defaulting would fill nothing.
Only libvirt can tell which addresses a VM with a bridge may have, so that addresses of such a VM are never reported.
"""

from collections.abc import Iterator
from dataclasses import replace

from defaulter.json_paths import DocumentEditor, Path, is_unset
from defaulter.kubevirt_defaults import ClusterConfig, MACPolicy, set_kubevirt_defaults
from defaulter.machine_types import is_canonical
from defaulter.vm_paths import VMLocation, locate, opted_out, places_on_root_complex
from defaulter.vmi_spec import disk_kind, holds_addresses, is_emulated, may_have_bridge
from poolhouse.api.apimachinery.counting import join_first
from poolhouse.api.apimachinery.problem import format_path
from poolhouse.api.apimachinery.unstructured import Json, at, entries

ACPI: Path = ("domain", "features", "acpi", "enabled")
CLUSTER_INDEPENDENT = ClusterConfig(binding="leave", video="leave")
"""a configuration with which defaulting fills only the fields that are the same in every cluster"""


def undefaulted_fields(document: Json, *, macs: MACPolicy = "deterministic") -> list[str]:
    """Unset paths that defaulting would fill. Empty for a document that is complete, opted out, or has no VM. A machine
    type alias is set: the alias of a VM that may have run stays."""
    found = list(_open_fields(document, macs))
    spec = at(document, *location.spec) if (location := locate(document)) is not None else None
    has_bridge = isinstance(spec, dict) and may_have_bridge(spec)
    return [format_path(path) for path in found if not (has_bridge and path[-1] == "pciAddress")]


def open_addresses(document: Json) -> list[str]:
    """Paths of unset PCI addresses, also of a VM with a bridge."""
    return [format_path(path) for path in _open_fields(document, "leave") if path[-1] == "pciAddress"]


def _open_fields(document: Json, macs: MACPolicy) -> Iterator[Path]:
    location = locate(document)
    if location is None or opted_out(document) or not isinstance(at(document, *location.spec), dict):
        return
    editor = DocumentEditor(document)
    # A preference that is known decides these fields too, except one that it overrides at each start.
    overridden = (*location.spec, *ACPI) if location.has_preference else None
    location = replace(location, has_preference=False)
    set_kubevirt_defaults(editor, location, CLUSTER_INDEPENDENT)
    paths = [path for path, _ in editor.filled if path != overridden]
    paths += fields_left_to_libvirt(editor.document, location, macs)
    yield from (path for path in paths if is_unset(at(document, *path)))


def fields_left_to_libvirt(document: Json, location: VMLocation, macs: MACPolicy) -> Iterator[Path]:
    """Unset fields after KubeVirt's defaults: the machine type, MAC addresses, firmware UUID and PCI addresses."""
    spec = at(document, *location.spec)
    domain = (*location.spec, "domain")
    machine = at(spec, "domain", "machine", "type")
    is_alias = isinstance(machine, str) and machine and not is_canonical(machine)
    if is_alias or (is_unset(machine) and not location.has_preference):
        yield (*domain, "machine", "type")
    if not location.is_template:
        paths = [(*domain, "firmware", name) for name in ("uuid", "serial")]
        yield from (path for path in paths if is_unset(at(document, *path)))
    yield from interfaces_without_mac(document, location, macs)
    panics = (*domain, "devices", "panicDevices")
    if not location.has_preference:
        yield from ((*panics, i, "model") for i, panic in entries(document, *panics) if is_unset(panic.get("model")))
    if holds_addresses(spec, location):
        yield from devices_without_pci_address(document, location)


def interfaces_without_mac(document: Json, location: VMLocation, macs: MACPolicy) -> Iterator[Path]:
    if location.is_template or macs == "leave":
        return
    interfaces = (*location.spec, "domain", "devices", "interfaces")
    for index, interface in entries(document, *interfaces):
        if is_emulated(interface) and is_unset(interface.get("macAddress")):
            yield (*interfaces, index, "macAddress")


def devices_without_pci_address(document: Json, location: VMLocation) -> Iterator[Path]:
    """Paths of unset PCI addresses of virtio disks and interfaces, the only ones that a spec can hold."""
    return (path for path in addressable_devices(document, location) if is_unset(at(document, *path)))


def pci_address_warnings(document: Json, location: VMLocation) -> Iterator[str]:
    """A warning if a defaulted VM has devices without a PCI address. A VM on s390x has none."""
    spec = at(document, *location.spec)
    if not holds_addresses(spec, location) and spec.get("architecture") != "s390x":
        reason = (
            "KubeVirt places devices on the root complex itself"
            if places_on_root_complex(location)
            else "a device of this VM is conventional PCI"
        )
        yield f"PCI addresses are not set: {reason}"
    elif not location.has_preference and (left := list(devices_without_pci_address(document, location))):
        devices = join_first([format_path(path[:-1]) for path in left], 3)
        reason = "with one, KubeVirt would move conventional PCI devices such as the watchdog, sound or SATA controller"
        yield f"no PCI address is set for {devices}: {reason}"


def addressable_devices(document: Json, location: VMLocation) -> Iterator[Path]:
    """Paths of the PCI addresses of virtio disks and interfaces, whether they are set or not."""
    devices = (*location.spec, "domain", "devices")
    for index, disk in entries(document, *devices, "disks"):
        target = disk.get("disk") if disk_kind(disk) == "disk" else None
        if isinstance(target, dict) and target.get("bus") == "virtio":
            yield (*devices, "disks", index, "disk", "pciAddress")
    for index, interface in entries(document, *devices, "interfaces"):
        if is_emulated(interface) and not is_unset(interface.get("model")):
            yield (*devices, "interfaces", index, "pciAddress")
