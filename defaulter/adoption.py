"""Writes what a guest has into the spec of its VM, before the VM starts again.

KubeVirt chooses what a VM's spec leaves open at each start: a new MAC address for each NIC, and devices for volumes and
for the pod network. The VMI of the running guest has these choices. A VM that was never defaulted gets them when it
stops, so that its next start is like the last one. Values of the author stay, and what the VMI does not show is left to
KubeVirt. PCI addresses are in a VMI only if the controllers read its domain. Otherwise defaulting computes them later,
as KubeVirt did for the devices of the start.
"""

from defaulter.json_paths import DocumentEditor, Path, is_unset
from defaulter.kubevirt_defaults import MACPolicy
from defaulter.running_guest import addressable, guest_addresses, guest_macs
from defaulter.stored_values import with_machine_type
from defaulter.vm_paths import VMLocation, locate, opted_out
from defaulter.vmi_spec import disk_kind, holds_addresses, is_emulated, may_have_bridge
from poolhouse.api.apimachinery.unstructured import Json, at, entries, typed

_FIRMWARE = ("uuid", "serial")
_TOPOLOGY = ("sockets", "cores", "threads")


def adopt(document: Json, vmi: Json | None, macs: MACPolicy = "deterministic") -> Json:
    """The VM with the machine type, firmware IDs, devices, MAC addresses, CPU topology and memory of its guest. With
    `macs: leave`, another component assigns MAC addresses, and they stay open."""
    location, guest = locate(document), typed(dict, vmi, "spec")
    if location is None or not location.is_vm or opted_out(document) or guest is None or vmi is None:
        return with_machine_type(document, vmi)
    editor = DocumentEditor(with_machine_type(document, vmi))
    domain = (*location.spec, "domain")
    for name in _FIRMWARE:
        editor.fill((*domain, "firmware", name), at(guest, "domain", "firmware", name))
    if not location.has_instancetype:
        _adopt_resources(editor, domain, guest, vmi)
    _list_devices(editor, location, guest)
    _adopt_disks(editor, domain, guest)
    _adopt_interfaces(editor, domain, guest, dict(guest_macs(vmi)) if macs != "leave" else {})
    _adopt_addresses(editor, location, vmi)
    return editor.document


def _adopt_resources(editor: DocumentEditor, domain: Path, guest: Json, vmi: Json) -> None:
    cpu = at(guest, "domain", "cpu")
    if all(is_unset(editor.get((*domain, "cpu", part))) for part in _TOPOLOGY) and not _requests(editor, domain, "cpu"):
        for part in _TOPOLOGY:
            editor.fill((*domain, "cpu", part), at(vmi, "status", "currentCPUTopology", part) or at(cpu, part))
    if not _requests(editor, domain, "memory"):
        memory = at(vmi, "status", "memory", "guestCurrent") or at(guest, "domain", "memory", "guest")
        editor.fill((*domain, "memory", "guest"), memory)


def _requests(editor: DocumentEditor, domain: Path, resource: str) -> bool:
    """Whether the author sizes the VM by requests or limits, which KubeVirt turns into the same size at each start."""
    resources = editor.get((*domain, "resources"))
    return any(not is_unset(at(resources, kind, resource)) for kind in ("requests", "limits"))


def _list_devices(editor: DocumentEditor, location: VMLocation, guest: Json) -> None:
    """Lists the devices that KubeVirt adds at each start: disks of volumes without a disk, and the NIC of a VM that
    lists none. KubeVirt would add such a disk after those that were hotplugged, and the guest would boot from another
    disk: it gets its place in the guest."""
    devices = (*location.spec, "domain", "devices")
    listed = {
        each.get("name") for kind in ("disks", "filesystems") for _, each in entries(editor.get((*devices, kind)))
    }
    volumes = {each.get("name") for _, each in entries(editor.get((*location.spec, "volumes")))}
    later: set[str] = set()
    for _, disk in reversed(list(entries(guest, "domain", "devices", "disks"))):
        kind = disk_kind(disk)
        if kind is not None and disk.get("name") in volumes - listed:
            bus = at(disk, kind, "bus")
            _insert(editor, (*devices, "disks"), {"name": disk["name"], kind: {"bus": bus} if bus else {}}, later)
        later.add(str(disk.get("name")))
    if editor.get((*devices, "interfaces")) or editor.get((*location.spec, "networks")):
        return
    networks = {each.get("name"): each for _, each in entries(guest, "networks") if each.get("pod") is not None}
    for _, interface in entries(guest, "domain", "devices", "interfaces"):
        if interface.get("name") in networks:
            editor.append((*devices, "interfaces"), dict(interface))
            editor.append((*location.spec, "networks"), dict(networks[interface["name"]]))


def _insert(editor: DocumentEditor, disks: Path, disk: Json, later: set[str]) -> None:
    """Adds a disk before the first of those that are `later` in the guest."""
    if not editor.append(disks, disk):
        return
    *listed, added = editor.get(disks)
    index = next((place for place, each in entries(listed) if each.get("name") in later), len(listed))
    editor.replace(disks, [*listed[:index], added, *listed[index:]])


def _adopt_disks(editor: DocumentEditor, domain: Path, guest: Json) -> None:
    known = {each.get("name"): each for _, each in entries(guest, "domain", "devices", "disks")}
    disks = (*domain, "devices", "disks")
    for index, disk in list(entries(editor.get(disks))):
        kind, had = disk_kind(disk), known.get(disk.get("name"))
        if kind is not None and had is not None:
            editor.fill((*disks, index, kind, "bus"), at(had, kind, "bus"))


def _adopt_interfaces(editor: DocumentEditor, domain: Path, guest: Json, macs: dict[str, str]) -> None:
    known = {each.get("name"): each for _, each in entries(guest, "domain", "devices", "interfaces")}
    interfaces = (*domain, "devices", "interfaces")
    for index, interface in list(entries(editor.get(interfaces))):
        name = interface.get("name")
        if is_emulated(interface) and name in known:
            editor.fill((*interfaces, index, "model"), known[name].get("model"))
            editor.fill((*interfaces, index, "macAddress"), macs.get(str(name)))


def _adopt_addresses(editor: DocumentEditor, location: VMLocation, vmi: Json) -> None:
    """Writes the PCI addresses that were read in the domain. An address that the author gave to another device stays
    with that device."""
    spec = editor.get(location.spec)
    if not holds_addresses(spec, location) or may_have_bridge(spec):
        return
    known = guest_addresses(vmi)
    paths = [(device, (*location.spec, *path)) for device, path in addressable(spec)]
    taken = {str(editor.get(path)).lower() for _, path in paths}
    for device, path in paths:
        address = known.get(device)
        if address is not None and address not in taken and editor.fill(path, address):
            taken.add(address)
