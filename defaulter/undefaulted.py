"""What a document still leaves to chance, found by looking at it alone.

Asks the same rules that fill it, so that what is waited for and what is filled cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterator

from defaulter.json_paths import DocumentEditor, Json, Path, format_path, get, is_unset, objects
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
    where = locate(document)
    if where is None or opted_out(document) or not isinstance(get(document, where.spec), dict):
        return []
    draft = DocumentEditor(document)
    set_kubevirt_defaults(draft, where, CLUSTER_INDEPENDENT)
    found = [path for path, _ in draft.filled]
    found += fields_left_to_libvirt(draft.document, where, macs)
    return [format_path(path) for path in found]


def fields_left_to_libvirt(document: Json, where: VMLocation, macs: MACPolicy) -> Iterator[Path]:
    """What is open once KubeVirt's own rules have been applied: the machine, the VM's identity, its addresses."""
    spec = get(document, where.spec)
    domain = (*where.spec, "domain")
    machine = get(spec, ("domain", "machine", "type"))
    if (is_unset(machine) and not where.preferred) or (
        isinstance(machine, str) and machine and not is_canonical(machine)
    ):
        yield (*domain, "machine", "type")
    if not where.shared:
        yield from (p for k in ("uuid", "serial") if is_unset(get(document, p := (*domain, "firmware", k))))
    yield from interfaces_without_mac(document, where, macs)
    panics = (*domain, "devices", "panicDevices")
    yield from ((*panics, i, "model") for i, panic in objects(get(document, panics)) if is_unset(panic.get("model")))
    if holds_addresses(spec, where):
        yield from devices_without_pci_address(document, where)


def interfaces_without_mac(document: Json, where: VMLocation, macs: MACPolicy) -> Iterator[Path]:
    """NICs that need a MAC address."""
    if where.shared or macs == "leave":
        return
    interfaces = (*where.spec, "domain", "devices", "interfaces")
    for index, interface in objects(get(document, interfaces)):
        if is_emulated(interface) and is_unset(interface.get("macAddress")):
            yield (*interfaces, index, "macAddress")


def devices_without_pci_address(document: Json, where: VMLocation) -> Iterator[Path]:
    """Virtio disks and NICs, the only devices whose PCI address a spec can hold, that have none."""
    devices = (*where.spec, "domain", "devices")
    for index, disk in objects(get(document, (*devices, "disks"))):
        target = disk.get("disk") if device_kind(disk) == "disk" else None
        if isinstance(target, dict) and target.get("bus") == "virtio" and is_unset(target.get("pciAddress")):
            yield (*devices, "disks", index, "disk", "pciAddress")
    for index, interface in objects(get(document, (*devices, "interfaces"))):
        if is_emulated(interface) and not is_unset(interface.get("model")) and is_unset(interface.get("pciAddress")):
            yield (*devices, "interfaces", index, "pciAddress")
