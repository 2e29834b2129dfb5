"""A VM's hardware as a list of devices with their places, and what differs between two such lists.

Two sources say it: a spec, for what a spec can hold, and the record of a domain, for everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from apimachinery.unstructured import Json, at, entries
from defaulter.codecs import PCI_ADDRESS_PARTS
from defaulter.vm_paths import locate
from defaulter.vmi_spec import alias

_KINDS = ("disk", "cdrom", "lun")


@dataclass(frozen=True)
class Device:
    name: str
    kind: str = ""
    address: str = ""
    field: str = ""
    """where the spec holds its place, as `decided` names it; empty where a spec cannot"""


@dataclass(frozen=True)
class Difference:
    device: str
    before: str | None
    """its place, or its value; None: it was not there"""
    after: str | None


def devices_of_spec(document: Json) -> list[Device]:
    """What a spec says of itself; places of devices, where it can hold them."""
    location = locate(document)
    spec = at(document, *location.spec) if location is not None else None
    return list(_of_spec(spec)) if isinstance(spec, dict) else []


def _of_spec(spec: Json) -> Iterator[Device]:
    domain = spec.get("domain") if isinstance(spec.get("domain"), dict) else {}
    for name, path in _MACHINE.items():
        value = at(domain, *tuple(path.split(".")))
        if value is not None:
            yield Device(name, "", str(value), f"domain.{path}")
    devices = at(domain, "devices")
    for _, nic in entries(devices, "interfaces"):
        field = f"domain.devices.interfaces[{nic.get('name')}]"
        model, address = str(nic.get("model", "")), str(nic.get("pciAddress", ""))
        yield Device(f"nic {nic.get('name')}", model, address, f"{field}.pciAddress")
        yield Device(f"mac {nic.get('name')}", "", str(nic.get("macAddress", "")), f"{field}.macAddress")
    for _, disk in entries(devices, "disks"):
        kind = next((kind for kind in _KINDS if isinstance(disk.get(kind), dict)), "disk")
        field = f"domain.devices.disks[{disk.get('name')}].{kind}"
        bus, address = str(at(disk, kind, "bus") or ""), str(at(disk, kind, "pciAddress") or "")
        yield Device(f"{kind} {disk.get('name')}", bus, address, f"{field}.pciAddress" if address else f"{field}.bus")


_MACHINE = {
    "machine": "machine.type",
    "cpu": "cpu.model",
    "firmware uuid": "firmware.uuid",
    "firmware serial": "firmware.serial",
    "display": "devices.video.type",
}


def add_recorded_addresses(devices: list[Device], record: Json) -> list[Device]:
    """The same, with the places that only the record knows, and the devices that only it knows."""
    addresses = {key: format_address(address) for key, address in record["addresses"].items()}
    found = []
    for device in devices:
        location = addresses.pop(_key(device), None)
        spoken = location is None or bool(device.address)
        found.append(device if location is None or spoken else Device(device.name, device.kind, location))
    found += [Device(key, "", location) for key, location in addresses.items()]
    return found + [Device(name, model, location) for name, model, location in _controllers(record)]


def _key(device: Device) -> str:
    """A device of the spec as the record names it."""
    kind, _, name = device.name.partition(" ")
    element = "disk" if kind in _KINDS else {"nic": "interface"}.get(kind, kind)
    return f"{element} {alias(name)}"


def _controllers(record: Json) -> Iterator[tuple[str, str, str]]:
    for controller in record["controllers"]:
        name = f"controller {controller['type']} {controller.get('index', '')}".strip()
        yield name, controller.get("model", ""), format_address(controller.get("address", {}))


def differences(before: Json, after: Json) -> list[Difference]:
    """What differs between two records, device by device; a device of another model is another device."""
    return [
        Difference(name, before_, after_)
        for name, before_, after_ in _joined(dict(_places(before)), dict(_places(after)))
        if before_ != after_
    ]


def _joined(before: dict[str, str], after: dict[str, str]) -> Iterator[tuple[str, str | None, str | None]]:
    for name in (*before, *(name for name in after if name not in before)):
        yield name, before.get(name), after.get(name)


def _places(record: Json) -> Iterator[tuple[str, str]]:
    yield "machine", record["machine"]
    for key, address in record["addresses"].items():
        yield key.replace(" ua-", " "), format_address(address)
    for name, model, location in _controllers(record):
        yield f"{name} {model}".strip(), location


def format_address(address: dict[str, Any]) -> str:
    """An address in the words that a guest's own tools use."""
    kind = address.get("type", "")
    if kind == "pci":
        with suppress(ValueError):
            domain, bus, slot, function = (int(address.get(part, "0"), 16) for part in PCI_ADDRESS_PARTS)
            return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"
    rest = [f"{part} {value}" for part, value in address.items() if part not in ("type", "target", "multifunction")]
    return f"{kind} {', '.join(rest)}".strip()
