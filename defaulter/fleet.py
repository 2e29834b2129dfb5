"""Decides what the next restart of a VM changes for its guest, from the VM and the VMI of the running guest.

KubeVirt chooses what a spec leaves open at each start. A VMI shows the MAC addresses, machine type and hotplugged
volumes of its guest, but no PCI addresses. What neither object shows is listed as unknown and never guessed.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from defaulter.codecs import normalize_address
from defaulter.field_record import read_record
from defaulter.inventory import NOT_SET, Difference, devices_of_spec, differences, is_pci_address
from defaulter.json_paths import DocumentEditor, is_unset
from defaulter.machine_types import is_canonical
from defaulter.running_guest import guest_addresses, guest_macs
from defaulter.undefaulted import open_addresses, undefaulted_fields
from defaulter.vm_paths import HOOK, OPT_OUT, SIDECARS, VMLocation, locate, opted_out
from defaulter.vmi_spec import addresses, is_emulated
from poolhouse.api.apimachinery.unstructured import Json, at, entries

Defaulted = Literal["Poolhouse", "Author", "Partly", "No", "OptedOut"]
TOPOLOGY = "kubevirt.io/pci-topology-version"
PLACED = "KubeVirt places the devices of the spec, in which somebody added or removed devices"
LATEST_TOPOLOGY = "v3"
EDITED = "the spec has changed since the guest started"
OTHER_VERSIONS = "other versions: "
NOT_COMPARED = OTHER_VERSIONS + "{why}, so its hardware under another defaulter was not compared"


_OPEN_ADDRESSES = "PCI addresses: libvirt chooses"
_READ_DOMAINS = "with controllers.readDomains of the chart, it does"


@dataclass(frozen=True)
class Guest:
    """What the VMI shows of a guest."""

    macs: Mapping[str, str] = field(default_factory=dict)
    """MAC addresses of NICs whose address KubeVirt chooses if it is not set, by the name of the NIC"""
    machine: str | None = None
    hotplugged: tuple[str, ...] = ()
    """volumes that were attached while the guest ran"""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """PCI addresses that the spec had when the guest started, by the names of `inventory`"""
    hooked: bool = False
    """whether KubeVirt runs Poolhouse's hook beside it, which restores its hardware record"""
    topology: str | None = None
    """version of KubeVirt's rules for PCI ports; None for a guest that a KubeVirt without such versions started"""
    read: frozenset[str] = frozenset()
    """devices whose PCI address was read in the domain, so that Poolhouse writes it when the VM stops"""


@dataclass(frozen=True)
class Change:
    device: str
    field: str
    from_: str
    to: str | None
    """None: KubeVirt chooses anew"""
    reason: str


@dataclass(frozen=True)
class Report:
    namespace: str
    name: str
    defaulted: Defaulted
    changes: tuple[Change, ...]
    unknown: tuple[str, ...]
    held: bool | None
    """whether devices that a spec cannot hold keep their addresses; None if it is not known"""

    def as_json(self) -> Json:
        changes = [{key.rstrip("_"): value for key, value in asdict(each).items()} for each in self.changes]
        return {**asdict(self), "changes": changes, "unknown": list(self.unknown)}


def read_guest(vmi: Json) -> Guest:
    emulated = {
        each.get("name") for _, each in entries(vmi, "spec", "domain", "devices", "interfaces") if is_emulated(each)
    }
    machine = at(vmi, "status", "machine", "type")
    topology = at(vmi, "metadata", "annotations", TOPOLOGY)
    volumes = [each for _, each in entries(vmi, "status", "volumeStatus") if each.get("hotplugVolume") is not None]
    return Guest(
        {name: mac for name, mac in guest_macs(vmi) if name in emulated},
        machine if isinstance(machine, str) and machine else None,
        tuple(str(each.get("name")) for each in volumes),
        {each.name: each.address for each in devices_of_spec(vmi) if is_pci_address(each.address)},
        HOOK in str(at(vmi, "metadata", "annotations", SIDECARS) or ""),
        topology if isinstance(topology, str) and topology else None,
        frozenset(f"{'disk' if kind == 'disk' else 'nic'} {name}" for kind, name in guest_addresses(vmi)),
    )


def report(
    vm: Json, guest: Guest | None, *, opted_out_namespace: bool = False, plugin: bool | None = False
) -> Report | None:
    """The report of a VM. `guest` is None without a VMI. `plugin` is whether the cluster has Poolhouse's plugin, None
    if it is not known. Returns None for an object that is no VM."""
    location = locate(vm)
    if location is None or not location.is_vm:
        return None
    is_out = opted_out_namespace or opted_out(vm)
    vm = without_opt_out(vm)
    return Report(
        location.namespace,
        location.name,
        "OptedOut" if is_out else _defaulted(vm, location),
        tuple(_changes(vm, location, guest)) if guest is not None else (),
        tuple(_unknown(vm, location, guest)),
        _held(vm, location, guest, plugin),
    )


def _held(vm: Json, location: VMLocation, guest: Guest | None, plugin: bool | None) -> bool | None:
    """A VM is held by its hardware record and a hook that restores it: a plugin, or a sidecar that its own template or
    the webhook names."""
    if at(vm, *location.record) is None:
        return False
    if plugin or HOOK in str(at(vm, *location.spec[:-1], "metadata", "annotations", SIDECARS) or ""):
        return True
    return guest.hooked if guest is not None and (guest.hooked or plugin is False) else None


def without_opt_out(vm: Json) -> Json:
    """The VM without the label, with which no field counts as open."""
    if not opted_out(vm):
        return vm
    labels = {key: value for key, value in vm["metadata"]["labels"].items() if key != OPT_OUT}
    return {**vm, "metadata": {**vm["metadata"], "labels": labels}}


def _defaulted(vm: Json, location: VMLocation) -> Defaulted:
    by_poolhouse = bool(read_record(vm, location))
    if not undefaulted_fields(vm):
        return "Poolhouse" if by_poolhouse else "Author"
    has_address = not all(is_unset(value) for _, value in addresses(at(vm, *location.spec)))
    return "Partly" if by_poolhouse or has_address else "No"


def _changes(vm: Json, location: VMLocation, guest: Guest) -> Iterator[Change]:
    machine = at(vm, *location.spec, "domain", "machine", "type")
    if isinstance(machine, str) and is_canonical(machine) and guest.machine and machine != guest.machine:
        yield Change("machine", "type", guest.machine, machine, EDITED)
    now = {device.name: device for device in devices_of_spec(vm)}
    for name, address in guest.addresses.items():
        device = now.get(name)
        if device is not None and device.unset is not None:
            yield Change(name, "pciAddress", address, None, NOT_SET)
        elif device is not None and device.address and device.address != address:
            yield Change(name, "pciAddress", address, device.address, EDITED)
    listed = {each.get("name"): each for _, each in entries(vm, *location.spec, "domain", "devices", "interfaces")}
    for name, mac in guest.macs.items():
        wanted = at(listed.get(name), "macAddress")
        if is_unset(wanted):
            yield Change(f"nic {name}", "macAddress", mac, None, NOT_SET)
        elif normalize_address(wanted) != normalize_address(mac):
            yield Change(f"nic {name}", "macAddress", mac, str(wanted), EDITED)


def _unknown(vm: Json, location: VMLocation, guest: Guest | None) -> Iterator[str]:
    machine = at(vm, *location.spec, "domain", "machine", "type")
    if is_unset(machine) or not (isinstance(machine, str) and is_canonical(machine)):
        had = f"; the guest has {guest.machine}" if guest is not None and guest.machine else ""
        given = "not set" if is_unset(machine) else f"the alias {machine}"
        yield f"machine type: {given}, so QEMU chooses the version at each start{had}"
    missing = undefaulted_fields(vm)
    if guest is None:
        if missing:
            yield "no VMI: the hardware of the last guest is not known"
        return
    if (addresses := len(open_addresses(vm)) - _adopted(vm, location, guest)) > 0:
        yield f"{_OPEN_ADDRESSES} {addresses} at each start, and the VMI does not show them; {_READ_DOMAINS}"
        if guest.topology is None:
            yield f"PCI ports: the VMI has no annotation {TOPOLOGY}, so KubeVirt 1.8 or newer may number them otherwise"
    for name in guest.hotplugged:
        if f"disk {name}" not in guest.read:
            yield f"PCI address of volume {name}: it was hotplugged, and the VMI does not show it; {_READ_DOMAINS}"


def _adopted(vm: Json, location: VMLocation, guest: Guest) -> int:
    """How many open addresses of the VM were read in the domain, also of devices that the VM does not list."""
    listed = {device.name: device for device in devices_of_spec(vm)}
    volumes = {f"disk {each.get('name')}" for _, each in entries(vm, *location.spec, "volumes")}
    nics = any(name.startswith("nic ") for name in listed)
    unlisted = {name for name in guest.read - listed.keys() if name in volumes or (not nics and name[:4] == "nic ")}
    return len(unlisted) + sum(listed[name].unset is not None for name in guest.read & listed.keys())


def at_start(vmi: Json) -> Json | None:
    """The VMI as its guest started, from which the defaulter can compute the guest's domain: without the volumes that
    were hotplugged. None if a newer KubeVirt places the devices of such a VMI otherwise."""
    if at(vmi, "metadata", "annotations", TOPOLOGY) != LATEST_TOPOLOGY:
        return None
    hotplugged = set(read_guest(vmi).hotplugged)
    editor = DocumentEditor({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", **vmi})
    for path in (("spec", "volumes"), ("spec", "domain", "devices", "disks")):
        if at(vmi, *path) is not None:
            editor.replace(path, [each for _, each in entries(vmi, *path) if each.get("name") not in hotplugged])
    return editor.document


def foreseeable(vm: Json) -> bool:
    """Whether the defaulter can compute the domain of the next start: it knows no instance types and preferences."""
    location = locate(vm)
    return location is not None and not location.has_instancetype and not location.has_preference


def with_moves(found: Report, guest: Guest, before: Json, after: Json) -> Report:
    """The report with the PCI addresses that change between two hardware records, of the guest's start and of the next
    start. The address of a hotplugged volume is not known."""
    changes = [
        Change(device, "pciAddress", each.before, each.after, PLACED)
        for each in differences(before, after)
        if each.before and each.after and each.device != "machine"
        if (device := _spec_name(each.device)) not in {f"disk {name}" for name in guest.hotplugged}
    ]
    unknown = tuple(text for text in found.unknown if not text.startswith(_OPEN_ADDRESSES))
    # KubeVirt chooses an open address anew, and now it is known which.
    others = [each for each in found.changes if each.field != "pciAddress" or each.to is not None]
    return replace(found, changes=(*others, *changes), unknown=unknown)


def with_versions(found: Report, before: Json, after: Json) -> Report:
    """The report with what moves under another defaulter: between its hardware records of one VM, by the present
    defaulter and by the other."""
    old, new = (f"libvirt {each['libvirt']}, QEMU {each['qemu']}" for each in (before, after))
    changes = tuple(
        Change(_spec_name(each.device), _field_of(each), each.before, each.after, f"{new} instead of {old}")
        for each in differences(before, after)
        if each.before and each.after
    )
    return replace(found, changes=(*found.changes, *changes))


def _field_of(found: Difference) -> str:
    if found.device == "machine":
        return "type"
    return "pciAddress" if is_pci_address(found.before or "") else "address"


def _spec_name(device: str) -> str:
    kind, _, name = device.partition(" ")
    return f"nic {name}" if kind == "interface" else device


def shape(document: Json) -> str:
    """A text that is equal for documents whose devices libvirt places alike: without names, identities and status."""
    location = locate(document)
    spec = at(document, *location.spec) if location is not None else None
    domain = at(spec, "domain")
    if location is None or not isinstance(spec, dict) or not isinstance(domain, dict):
        return json.dumps(document, sort_keys=True, default=str)
    nics = [{**each, "macAddress": ""} for _, each in entries(domain, "devices", "interfaces")]
    firmware = {key: value for key, value in (at(domain, "firmware") or {}).items() if key not in ("uuid", "serial")}
    devices = {**(at(domain, "devices") or {}), "interfaces": nics}
    placed = {**spec, "domain": {**domain, "devices": devices, "firmware": firmware}}
    return json.dumps([document.get("kind"), location.annotations, placed], sort_keys=True, default=str)
