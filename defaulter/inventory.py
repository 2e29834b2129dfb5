"""Lists the devices of a VM with their addresses, and compares two hardware records.

A spec has the addresses of some devices. The hardware record has the addresses of all devices.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from apimachinery.unstructured import Json, at, entries
from defaulter.codecs import format_pci_address
from defaulter.vm_paths import locate
from defaulter.vmi_spec import DISK_KINDS, alias, disk_kind


@dataclass(frozen=True)
class Device:
    name: str
    kind: str = ""
    address: str = ""
    field: str = ""
    """path of the address in the spec, as in `defaulted_fields`; empty if a spec cannot hold the address"""


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


def _read_devices(spec: Json) -> Iterator[Device]:
    domain = spec.get("domain") if isinstance(spec.get("domain"), dict) else {}
    for name, path in _VM_FIELDS.items():
        value = at(domain, *path.split("."))
        if value is not None:
            yield Device(name, "", str(value), f"domain.{path}")
    devices = at(domain, "devices")
    for _, nic in entries(devices, "interfaces"):
        field = f"domain.devices.interfaces[{nic.get('name')}]"
        model, address = str(nic.get("model") or ""), str(nic.get("pciAddress") or "")
        yield Device(f"nic {nic.get('name')}", model, address, f"{field}.pciAddress")
        yield Device(f"mac {nic.get('name')}", "", str(nic.get("macAddress") or ""), f"{field}.macAddress")
    for _, disk in entries(devices, "disks"):
        kind = disk_kind(disk) or "disk"
        field = f"domain.devices.disks[{disk.get('name')}].{kind}"
        bus, address = str(at(disk, kind, "bus") or ""), str(at(disk, kind, "pciAddress") or "")
        yield Device(f"{kind} {disk.get('name')}", bus, address, f"{field}.pciAddress" if address else f"{field}.bus")


_VM_FIELDS = {
    "machine": "machine.type",
    "cpu": "cpu.model",
    "firmware uuid": "firmware.uuid",
    "firmware serial": "firmware.serial",
    "display": "devices.video.type",
}


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


def format_address(address: dict[str, Any]) -> str:
    """The address in the format of tools such as `lspci`."""
    with suppress(ValueError):
        if pci := format_pci_address(address):
            return pci
    rest = [f"{part} {value}" for part, value in address.items() if part not in ("type", "target", "multifunction")]
    return f"{address.get('type', '')} {', '.join(rest)}".strip()
