"""Lists the devices of a VM with their addresses, and compares two hardware records.

A spec has the addresses of some devices, a VMI those of the running guest as far as KubeVirt shows them. The hardware
record and the domain have the addresses of all devices.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from defaulter.codecs import PCI, format_pci_address
from defaulter.json_paths import DocumentEditor
from defaulter.running_guest import guest_macs, noted_addresses
from defaulter.vm_paths import locate
from defaulter.vmi_spec import DISK_KINDS, alias, disk_kind, is_emulated
from poolhouse.api.apimachinery.unstructured import Json, at, entries

NOT_SET = "not set; KubeVirt chooses at each start"
NOT_SET_UUID = "not set; KubeVirt computes it from the VM's name"
NO_FIELD = "no field in the spec; libvirt chooses at each start"
NOT_LISTED = "not in the spec; the guest loses it at its next start"


@dataclass(frozen=True)
class Device:
    name: str
    kind: str = ""
    address: str = ""
    field: str = ""
    """path of the address in the spec, as in `defaulted_fields`; empty if a spec cannot hold the address"""
    unset: str | None = None
    """what happens at the next start to an address or value that nothing has decided; None if it is decided"""


@dataclass(frozen=True)
class Difference:
    device: str
    before: str | None
    """the address or value; None if the device did not exist"""
    after: str | None


def devices_of_spec(document: Json) -> list[Device]:
    location = locate(document)
    spec = at(document, *location.spec) if location is not None else None
    return list(_read_devices(spec)) if isinstance(spec, dict) else []


def devices_of_guest(vmi: Json) -> list[Device]:
    """The devices of a running guest. An address that the VMI does not show is empty."""
    location = locate(vmi)
    if location is None:
        return []
    editor = DocumentEditor(vmi)
    if machine := at(vmi, "status", "machine", "type"):
        editor.replace((*location.spec, "domain", "machine", "type"), machine)
    interfaces = (*location.spec, "domain", "devices", "interfaces")
    macs = dict(guest_macs(vmi))
    for index, nic in list(entries(vmi, *interfaces)):
        if mac := macs.get(str(nic.get("name"))):
            editor.replace((*interfaces, index, "macAddress"), mac)
    for path, address in noted_addresses(vmi):
        editor.fill(path, address)
    return devices_of_spec(editor.document)


def with_guest(devices: list[Device], guest: list[Device], vm: Json) -> Iterator[tuple[Device, str | None]]:
    """Yields each device of a VM with the address or value that its running guest has, if known. Devices that only the
    guest has come last: KubeVirt adds them at each start, or somebody hotplugged them."""
    had = {device.name: device for device in guest}
    for device in devices:
        known = had.pop(device.name, None)
        yield device, (known.address or None) if known is not None else None
    location = locate(vm)
    volumes = {str(each.get("name")) for _, each in entries(vm, *location.spec, "volumes")} if location else set()
    for device in had.values():
        if device.address or device.unset or device.field:
            yield replace(device, address="", unset=_unset_in_spec(device, volumes)), device.address or None


def _unset_in_spec(device: Device, volumes: set[str]) -> str | None:
    kind, _, name = device.name.partition(" ")
    if kind in DISK_KINDS and device.field and name not in volumes:
        return NOT_LISTED
    if device.name == "firmware uuid":
        return NOT_SET_UUID
    return NOT_SET if device.field else NO_FIELD


def _read_devices(spec: Json) -> Iterator[Device]:
    domain = spec.get("domain") if isinstance(spec.get("domain"), dict) else {}
    for name, path in _VM_FIELDS.items():
        value = at(domain, *path.split("."))
        if value is not None:
            yield Device(name, "", str(value), _field_of(name))
    devices = at(domain, "devices")
    yield from _nics(devices)
    yield from _disks(devices)


def _nics(devices: Any) -> Iterator[Device]:
    """Each NIC as two devices: one with its PCI address, one with its MAC address."""
    for _, nic in entries(devices, "interfaces"):
        field = f"domain.devices.interfaces[{nic.get('name')}]"
        model, address = str(nic.get("model") or ""), str(nic.get("pciAddress") or "")
        unset = NOT_SET if is_emulated(nic) else None
        yield Device(f"nic {nic.get('name')}", model, address, f"{field}.pciAddress", unset if not address else None)
        mac = str(nic.get("macAddress") or "")
        yield Device(f"mac {nic.get('name')}", "", mac, f"{field}.macAddress", unset if not mac else None)


def _disks(devices: Any) -> Iterator[Device]:
    for _, disk in entries(devices, "disks"):
        kind = disk_kind(disk) or "disk"
        field = f"domain.devices.disks[{disk.get('name')}].{kind}"
        bus, address = str(at(disk, kind, "bus") or ""), str(at(disk, kind, "pciAddress") or "")
        unset = NOT_SET if kind == "disk" and bus == "virtio" and not address else None
        field += ".pciAddress" if address else ".bus"
        yield Device(f"{kind} {disk.get('name')}", bus, address, field, unset)


_VM_FIELDS = {
    "machine": "machine.type",
    "cpu": "cpu.model",
    "firmware uuid": "firmware.uuid",
    "firmware serial": "firmware.serial",
    "display": "devices.video.type",
}


def _field_of(name: str) -> str:
    return f"domain.{_VM_FIELDS[name]}"


def add_recorded_addresses(devices: list[Device], record: Json) -> list[Device]:
    """Adds the addresses and devices that only the record has."""
    addresses = {key: format_address(address) for key, address in record["addresses"].items()}
    found = []
    for device in devices:
        recorded = addresses.pop(_record_key(device), None)
        known = recorded is None or bool(device.address)
        found.append(device if recorded is None or known else Device(device.name, device.kind, recorded))
    found += [Device(key, "", address) for key, address in addresses.items()]
    return found + [Device(name, model, address) for name, model, address in _controllers(record)]


def add_domain(devices: list[Device], domain: Json) -> list[Device]:
    """Adds the machine type and the addresses of a running domain, in the form of a hardware record."""
    fields = {device.name: device.field for device in devices}
    machine = [Device("machine", "", domain["machine"], _field_of("machine"))]
    found = add_recorded_addresses([device for device in devices if device.name != "machine"], domain)
    return machine + [replace(device, field=fields.get(device.name, "")) for device in found]


def without_addresses(devices: list[Device]) -> list[Device]:
    return [replace(device, address="") for device in devices]


def _record_key(device: Device) -> str:
    """The key of a device in the record."""
    kind, _, name = device.name.partition(" ")
    element = "disk" if kind in DISK_KINDS else {"nic": "interface"}.get(kind, kind)
    return f"{element} {alias(name)}"


def _controllers(record: Json) -> Iterator[tuple[str, str, str]]:
    for controller in record["controllers"]:
        name = f"controller {controller['type']} {controller.get('index', '')}".strip()
        yield name, controller.get("model", ""), format_address(controller.get("address", {}))


def differences(before: Json, after: Json) -> list[Difference]:
    """The differences between two records. A device whose model changes is another device."""
    old, new = dict(_addresses_by_device(before)), dict(_addresses_by_device(after))
    return [Difference(name, old.get(name), new.get(name)) for name in {**old, **new} if old.get(name) != new.get(name)]


def _addresses_by_device(record: Json) -> Iterator[tuple[str, str]]:
    yield "machine", record["machine"]
    for key, address in record["addresses"].items():
        yield key.replace(" ua-", " "), format_address(address)
    for name, model, address in _controllers(record):
        yield f"{name} {model}".strip(), address


def is_pci_address(text: str) -> bool:
    return PCI.accepts(text)


def format_address(address: dict[str, Any]) -> str:
    """The address in the format of tools such as `lspci`."""
    with suppress(ValueError):
        if pci := format_pci_address(address):
            return pci
    rest = [f"{part} {value}" for part, value in address.items() if part not in ("type", "target", "multifunction")]
    return f"{address.get('type', '')} {', '.join(rest)}".strip()
