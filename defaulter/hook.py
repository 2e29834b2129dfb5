#!/usr/bin/env python3
"""Restores recorded hardware in a domain: KubeVirt's `onDefineDomain` hook, in one self-contained file.

A VMI spec can hold only the PCI addresses of virtio disks and NICs. The annotation `poolhouse.dev/hardware` records all
other addresses: of controllers, balloon and watchdog, and the units of SATA and SCSI disks. KubeVirt defines a domain
two or three times at each start and calls this hook each time. The hook adds the recorded controllers, and gives each
recorded device without an address its recorded address. It changes nothing else, and running it twice changes nothing.

    onDefineDomain --vmi JSON --domain XML      prints the domain

A damaged record, or one of another version, fails the define, so that a VM never starts with other hardware unnoticed.
The hook runs in KubeVirt's sidecar, so it uses only the standard library of Python 3.9.
"""

import hashlib
import hmac
import json
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Any

HARDWARE_ANNOTATION = "poolhouse.dev/hardware"
VERSION = 1

Address = dict[str, str]
_NAMESPACES = {"qemu": "http://libvirt.org/schemas/domain/qemu/1.0"}
_NAME, _VALUE = re.compile("[A-Za-z][A-Za-z0-9_-]*"), re.compile("[A-Za-z0-9_.:+ -]{0,64}")
"""of an XML attribute in a record, because it is written into domains"""
_BUS = re.compile("0x[0-9a-f]{2}")
_NUMBER = re.compile("0[xX][0-9a-fA-F]{1,8}|[0-9]{1,10}")
_USB_PORT = re.compile(r"[0-9]{1,3}([.][0-9]{1,3}){1,3}")
ADDRESS_BOUNDS = {
    "domain": 0xFFFF,
    "bus": 0xFF,
    "slot": 0x1F,
    "function": 7,
    "controller": 63,  # 256 disks, KubeVirt's limit, need 43 SATA controllers
    "target": 0xFF,
    "unit": 0x3FFF,
    "index": 0xFF,  # a PCI bus
    "chassis": 0xFF,
    "chassisNr": 0xFF,
    "busNr": 0xFE,
    "port": 0xFF,
    "cssid": 0xFE,
    "ssid": 3,
    "devno": 0xFFFF,
}
"""largest numbers in addresses and controllers: libvirt adds all controllers up to an index"""
MAX_CONTROLLERS = 512
MAX_ADDRESSES = 2048
"""limits on the parts of a record: a VM has at most 256 devices of each kind, and 255 PCI buses"""
_DRIVES = ("sata", "scsi")
_UNITS = {"sata": 6, "scsi": 256}
_ADDRESS_TYPES = {"sata": "drive", "scsi": "drive", "usb": "usb"}
"""by the bus of a disk; disks on other buses have any other type"""


class InvalidHardwareRecord(ValueError):
    """The record was damaged or changed."""


def build_record(domain: Any, libvirt: str, qemu: str, key: str = "") -> str:
    """The record of a domain that libvirt has defined. It has nothing of the host: no path, source or socket. With a
    key it is sealed, so that `is_sealed` can tell it from a record that a user has made."""
    devices = domain.find("devices")
    machine = domain.find("os/type")
    controllers = [_controller(element) for element in devices.findall("controller")]
    by_key = dict(_by_key(devices))
    found = {key: device.find("address") for key, device in by_key.items()}
    addresses = {key: dict(address.attrib) for key, address in found.items() if address is not None}
    content = {
        "v": VERSION,
        "libvirt": libvirt,
        "qemu": qemu,
        "machine": machine.get("machine", ""),
        "controllers": _without_spare_ports(controllers, addresses),
        "addresses": addresses,
        "models": {key: model for key, device in by_key.items() if (model := _model(device))},
    }
    content = {**content, "seal": _seal(content, key)} if key else content
    return _text({**content, "digest": _digest(content)})


def is_sealed(text: str, key: str) -> bool:
    """Whether the record was built with this key and is unchanged. Raises InvalidHardwareRecord."""
    content = _parse(text)
    seal = content.pop("seal", None)
    return isinstance(seal, str) and hmac.compare_digest(seal.encode(), _seal(content, key).encode())


def _seal(content: dict[str, Any], key: str) -> str:
    return hmac.new(f"hardware record {key}".encode(), _text(content).encode(), hashlib.sha256).hexdigest()[:32]


def _without_spare_ports(controllers: list[dict[str, Any]], addresses: dict[str, Address]) -> list[dict[str, Any]]:
    """KubeVirt appends empty ports at each start, after one that libvirt keeps free. A record would double them."""
    used = [*addresses.values(), *(known["address"] for known in controllers if "address" in known)]
    buses = [address.get("bus", "") for address in used if address.get("type") == "pci"]
    free = max((int(bus, 16) for bus in buses if _BUS.fullmatch(bus)), default=0) + 1
    return [known for known in controllers if known.get("model") != "pcie-root-port" or int(known["index"]) <= free]


def read_record(text: str) -> dict[str, Any]:
    """The record of an annotation, without spare ports, which old records have. Raises InvalidHardwareRecord."""
    content = _parse(text)
    return {**content, "controllers": _without_spare_ports(content["controllers"], content["addresses"])}


def _parse(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
        digest = content.pop("digest")
        whole = digest == _digest(content) and content["v"] == VERSION and _is_record(content)
        excess = _excess(content) if whole else ""
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        whole = False
    if not whole:
        raise InvalidHardwareRecord(
            "the hardware record is damaged, or written by a version that this one does not know"
        )
    if excess:
        raise InvalidHardwareRecord(f"the hardware record exceeds the limits of a VM: {excess}")
    return dict(content)


def _excess(content: dict[str, Any]) -> str:
    """The first part of a record that no VM has, with its path, or an empty string."""
    for name, limit in (("controllers", MAX_CONTROLLERS), ("addresses", MAX_ADDRESSES), ("models", MAX_ADDRESSES)):
        if len(content.get(name, ())) > limit:
            return f"{name}: {len(content[name])} entries; at most {limit} are allowed"
    return next(_excessive_numbers(content), "")


def _excessive_numbers(content: dict[str, Any]) -> Iterator[str]:
    parts = [(f"addresses[{key}]", address) for key, address in content["addresses"].items()]
    for number, controller in enumerate(content["controllers"]):
        here = f"controllers[{number}]"
        parts.append((here, {name: value for name, value in controller.items() if isinstance(value, str)}))
        parts += [(f"{here}.{name}", value) for name, value in controller.items() if isinstance(value, dict)]
        if controller["type"] != "pci" and int(controller["index"]) > ADDRESS_BOUNDS["controller"]:
            yield f"{here}.index: {controller['index']}; at most {ADDRESS_BOUNDS['controller']} is allowed"
    for path, attributes in parts:
        for name, text in attributes.items():
            most = ADDRESS_BOUNDS.get(name)
            if most is not None and not _is_within(text, most) and not (name == "port" and _USB_PORT.fullmatch(text)):
                yield f"{path}.{name}: {text}; at most {most} is allowed"


def _is_within(text: str, most: int) -> bool:
    return _NUMBER.fullmatch(text) is not None and int(text, 16 if text[:2].lower() == "0x" else 10) <= most


def _is_record(content: dict[str, Any]) -> bool:
    """Whether the content has the form of a record: the digest detects accidents, but anyone can compute one."""
    names = [content["libvirt"], content["qemu"], content["machine"]]
    parts = [*content["addresses"].values()]
    for controller in content["controllers"]:
        own = {name: value for name, value in controller.items() if name in ("type", "index", "model")}
        names += [own["type"], own["index"]]
        parts += [own, *(value for name, value in controller.items() if name not in own)]
    numbered = all(controller["index"].isdecimal() for controller in content["controllers"])
    texts = all(isinstance(name, str) for name in names) and _are_texts(content.get("models", {}))
    return numbered and texts and all(map(_are_attributes, parts))


def _are_attributes(value: Any) -> bool:
    return _are_texts(value) and all(_NAME.fullmatch(name) and _VALUE.fullmatch(text) for name, text in value.items())


def _are_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def same_hardware(one: str, other: str) -> bool:
    """Whether two records describe the same hardware. Old records have no models."""
    first, second = read_record(one), read_record(other)
    parts = ("machine", "controllers", "addresses", *(part for part in ("models",) if part in first))
    return all(first[part] == second[part] for part in parts)


def restore_hardware(text: str, domain: str) -> str:
    """The domain with its recorded hardware; unchanged if it has another machine type now."""
    record = read_record(text)
    if "<!DOCTYPE" in domain or "<!ENTITY" in domain:
        raise InvalidHardwareRecord("a domain has no document type")
    for prefix, address in _NAMESPACES.items():
        ET.register_namespace(prefix, address)
    root = ET.fromstring(domain)
    devices, machine = root.find("devices"), root.find("os/type")
    if devices is None or machine is None or not _same_machine(machine.get("machine", ""), record["machine"]):
        return domain
    _add_controllers(devices, record["controllers"])
    addresses = dict(_valid_addresses(devices, record["addresses"], record.get("models", {})))
    _place_devices(devices, addresses)
    _place_drives(devices, addresses)
    return ET.tostring(root, encoding="unicode")


def _same_machine(now: str, recorded: str) -> bool:
    return now == recorded or f"-{now}-" in f"-{recorded}"


def _controller(element: Any) -> dict[str, Any]:
    found = {name: element.get(name) for name in ("type", "index", "model") if element.get(name) is not None}
    for name in ("model", "target", "address"):
        inner = element.find(name)
        if inner is not None and inner.attrib:
            # The device in a port decides whether it may be unplugged.
            found["model-name" if name == "model" else name] = {k: v for k, v in inner.attrib.items() if k != "hotplug"}
    return found


def _add_controllers(devices: ET.Element, recorded: list[dict[str, Any]]) -> None:
    present = {(c.get("type"), c.get("index")): c for c in devices.findall("controller")}
    for known in recorded:
        controller = present.get((known["type"], known["index"]))
        if controller is None:
            controller = ET.SubElement(devices, "controller", {k: v for k, v in known.items() if isinstance(v, str)})
            for name, element in (("model-name", "model"), ("target", "target")):
                if name in known:
                    ET.SubElement(controller, element, known[name])
        if controller.find("address") is None and "address" in known and controller.get("model") == known.get("model"):
            ET.SubElement(controller, "address", known["address"])


def _valid_addresses(
    devices: ET.Element, addresses: dict[str, Address], models: dict[str, str]
) -> Iterator[tuple[str, Address]]:
    """The recorded addresses of devices that have not changed. A disk keeps its address only on the same bus, and a NIC
    only with the same model."""
    for key, device in _by_key(devices):
        address, model = addresses.get(key), _model(device)
        if address is not None and models.get(key, model) == model and _fits(_bus(device), address.get("type")):
            yield key, address


def _fits(bus: str, kind: str | None) -> bool:
    if bus in _ADDRESS_TYPES:
        return kind == _ADDRESS_TYPES[bus]
    return not bus or kind not in _ADDRESS_TYPES.values()


def _place_devices(devices: ET.Element, addresses: dict[str, Address]) -> None:
    taken = {_place(address) for device in devices for address in device.findall("address")}
    for key, device in _by_key(devices):
        address = addresses.get(key)
        if address is not None and device.find("address") is None and _place(address) not in taken:
            taken.add(_place(address))
            ET.SubElement(device, "address", address)


def _place_drives(devices: ET.Element, addresses: dict[str, Address]) -> None:
    """libvirt numbers SATA and SCSI disks in spec order. Recorded disks get their unit back, others a free one."""
    drives = [(key, disk) for key, disk in _by_key(devices) if _bus(disk) in _DRIVES]
    taken = {_unit(disk, addresses[key]) for key, disk in drives if key in addresses}
    for key, disk in drives:
        address = disk.find("address")
        if key in addresses:
            wanted = addresses[key]
        elif address is not None and _unit(disk, address) not in taken:
            wanted = dict(address.attrib)
        elif taken or address is not None:
            wanted = _free(_bus(disk), taken)
        else:
            continue
        taken.add(_unit(disk, wanted))
        if address is None:
            address = ET.SubElement(disk, "address")
        address.attrib.clear()
        address.attrib.update(wanted)


def _unit(disk: Any, address: Any) -> tuple[str, Any, Any]:
    return _bus(disk), address.get("controller"), address.get("unit")


def _free(bus: str, taken: Any) -> Address:
    place = 0
    while (bus, str(place // _UNITS[bus]), str(place % _UNITS[bus])) in taken:
        place += 1
    controller, unit = divmod(place, _UNITS[bus])
    return {"type": "drive", "controller": str(controller), "bus": "0", "target": "0", "unit": str(unit)}


def _bus(device: Any) -> str:
    target = device.find("target")
    return "" if device.tag != "disk" or target is None else target.get("bus", "")


def _model(device: Any) -> str:
    """The bus or model of a device, which may change while its name stays."""
    model = device.find("model")
    return str(_bus(device) or (model.get("type", "") if device.tag == "interface" and model is not None else ""))


def _place(address: Any) -> tuple[str | None, ...]:
    """The part of an address that two devices cannot share."""
    names = "type domain controller bus slot function target unit port cssid ssid devno"
    return tuple(address.get(name) for name in names.split())


def _by_key(devices: Any) -> Iterator[tuple[str, Any]]:
    """Each device with a key that stays the same: its alias, or its type, bus and model where it has none."""
    seen: dict[str, int] = {}
    for device in devices:
        if device.tag in ("controller", "emulator", "graphics", "audio"):
            continue
        alias, target, model = device.find("alias"), device.find("target"), device.find("model")
        name = "" if alias is None else alias.get("name", "")
        if name.startswith("ua-"):
            yield f"{device.tag} {name}", device
            continue
        if name.startswith("placeholder"):
            continue
        port = "" if target is None else target.get("name", "")
        kind = [device.tag, device.get("type"), device.get("bus"), device.get("model"), port]
        kind.append(None if model is None else model.get("type"))
        key = " ".join(part for part in kind if part)
        seen[key] = seen.get(key, 0) + 1
        yield key if seen[key] == 1 else f"{key} {seen[key]}", device


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(_text(content).encode()).hexdigest()[:16]


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"), sort_keys=True)


def restore_for_vmi(instance: str, domain: str) -> str:
    """The domain of a VMI, given as JSON, with the hardware that is recorded on it. Raises ValueError or ParseError."""
    metadata = json.loads(instance).get("metadata") or {}
    record = (metadata.get("annotations") or {}).get(HARDWARE_ANNOTATION)
    return domain if record is None else restore_hardware(record, domain)


def main(arguments: list[str]) -> int:
    options = dict(zip(arguments[::2], arguments[1::2]))  # noqa: B905 (the shim's Python may be 3.9)
    try:
        print(restore_for_vmi(options.get("--vmi", "{}"), options.get("--domain", "")), end="")
    except (ValueError, ET.ParseError) as error:
        print(f"onDefineDomain: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
