"""Validates a VMI spec before libvirt is asked, and reports all errors at once.

`validate_types` checks the types of every field that defaulting reads. `validate_values` checks values, and
rejects some that libvirt accepts: unknown CPU models, duplicate MAC addresses and missing PCI buses. The API server
checks for unknown fields.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from apimachinery.unstructured import Json, at, entries
from defaulter.codecs import MAC, PCI, is_xml_text, normalize_address
from defaulter.errors import FieldError
from defaulter.fields import CPU_FEATURES, DEVICES, DISKS, DOMAIN, HOST_CPUS, INTERFACES
from defaulter.json_paths import Path, format_path, is_unset, parse_path
from defaulter.limits import MAX_DEVICES, excessive_values
from defaulter.vmi_spec import DISK_KINDS, disk_kind, is_emulated
from defaulter.walker import iter_values, list_devices

LAST_PCI_BUS = 31
_FEATURE = re.compile("[A-Za-z0-9_.:+-]+")
"""allowed names of CPU features: libvirt accepts any name, and returns XML in which the name is not escaped"""

_OBJECTS = ("domain", "domain.devices", "domain.cpu", "domain.memory", "domain.firmware", "domain.resources")
_LISTS = ("volumes", "networks", "domain.devices.filesystems", "domain.devices.gpus", "domain.devices.hostDevices")


def _object_paths() -> set[Path]:
    single = [devices for devices in DEVICES if devices.is_single]
    fields = [parse_path(field.spec) for field in (*DOMAIN, *(each for devices in single for each in devices.fields))]
    above = {path[:depth] for path in fields if path[0] == "domain" for depth in range(1, len(path))}
    return above | {parse_path(path) for path in (*_OBJECTS, *(devices.spec for devices in single))}


_OBJECT_PATHS = sorted(_object_paths(), key=lambda path: (len(path), path))
_LIST_PATHS = sorted(parse_path(path) for path in (*_LISTS, *(each.spec for each in DEVICES if not each.is_single)))


def validate_types(spec: Any) -> list[FieldError]:
    if not isinstance(spec, dict):
        return [FieldError((), f"must be an object, not {_type_name(spec)}")]
    objects = _wrong_types(spec, _OBJECT_PATHS, dict, "an object")
    lists = _wrong_types(spec, _LIST_PATHS, list, "a list")
    items = (error for path in _LIST_PATHS for error in _invalid_items(path, at(spec, *path)))
    return [*objects, *lists, *items]


def validate_metadata(holder: Any) -> list[FieldError]:
    """Errors of the metadata beside a VMI spec: the hardware record is one of its annotations."""
    errors = _wrong_types(holder, [("metadata",), ("metadata", "annotations")], dict, "an object")
    return [FieldError(("..", *error.path), error.message) for error in errors]


def _invalid_items(path: Path, items: Any) -> Iterator[FieldError]:
    if not isinstance(items, list):
        return
    if len(items) > MAX_DEVICES:
        yield FieldError(path, f"has {len(items)} entries; at most {MAX_DEVICES} are allowed")
        return
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            yield FieldError((*path, index), f"must be an object, not {_type_name(item)}")
            continue
        for field in ("name", "deviceName"):
            if not isinstance(item.get(field), str | None):
                yield FieldError((*path, index, field), f"must be a string, not {_type_name(item[field])}")


def _wrong_types(spec: Json, paths: Iterable[Path], kind: type, name: str) -> Iterator[FieldError]:
    for path in paths:
        value = at(spec, *path)
        if value is not None and not isinstance(value, kind):
            yield FieldError(path, f"must be {name}, not {_type_name(value)}")


def _type_name(value: Any) -> str:
    names = {type(None): "null", bool: "true or false", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), "a number")


def validate_values(spec: Json, cpu_models: frozenset[str]) -> list[FieldError]:
    invalid = list(_invalid_values(spec))
    known = {error.path for error in invalid}
    return [
        *invalid,
        *(error for error in excessive_values(spec) if error.path not in known),
        *_names(spec),
        *_missing_references(spec),
        *_addresses(spec),
        *_duplicates(spec),
        *_unknown_cpu_model(spec, cpu_models),
    ]


def _invalid_values(spec: Json) -> Iterator[FieldError]:
    seen = set()
    for fields, source, prefix in _sources(spec):
        for row, path, value in iter_values(fields, source):
            if not row.codec.accepts(value) and (prefix, path) not in seen:
                seen.add((prefix, path))
                yield FieldError((*prefix, *path), f"must be {row.codec.expected}, not {shown(value)}")


def _sources(spec: Json) -> Iterator[tuple[tuple[Any, ...], Json, Path]]:
    yield DOMAIN, spec, ()
    for devices in DEVICES:
        for path, device in list_devices(devices, spec):
            yield devices.fields, device, path


def shown(value: Any) -> str:
    shown = repr(value) if not isinstance(value, str) else ascii(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def _names(spec: Json) -> Iterator[FieldError]:
    """Errors of device names, which must be unique: they identify devices in the spec and, as aliases, in libvirt."""
    owners: dict[str, Path] = {}
    for devices in DEVICES:
        if devices.has_alias:
            for path, device in list_devices(devices, spec):
                yield from _name(path, device, owners)
    for path, device in list_devices(CPU_FEATURES, spec):
        name, place = device.get("name"), (*path, "name")
        if not isinstance(name, str):
            yield FieldError(place, "is required")
        elif not _FEATURE.fullmatch(name):
            yield FieldError(place, f"must be the name of a CPU feature, not {shown(name)}")


def _name(path: Path, device: Json, owners: dict[str, Path]) -> Iterator[FieldError]:
    name, place = device.get("name"), (*path, "name")
    if not isinstance(name, str) or not name:
        yield FieldError(place, "is required: devices are matched by their names")
    elif not is_xml_text(name):
        yield FieldError(place, f"must be a string without control characters, not {shown(name)}")
    elif name in owners:
        yield FieldError(place, f"Duplicate value: {shown(name)}: {format_path(owners[name])} has the same name")
    else:
        owners[name] = path


def _missing_references(spec: Json) -> Iterator[FieldError]:
    volumes = {volume.get("name") for _, volume in entries(spec.get("volumes"))}
    networks = {network.get("name") for _, network in entries(spec.get("networks"))}
    for path, disk in list_devices(DISKS, spec):
        kinds = [kind for kind in DISK_KINDS if disk.get(kind) is not None]
        if len(kinds) > 1:
            yield FieldError(path, f"must be only one of {', '.join(DISK_KINDS)}, not {' and '.join(kinds)}")
        if disk_kind(disk) != "cdrom" and isinstance(disk.get("name"), str) and disk["name"] not in volumes:
            yield FieldError((*path, "name"), f"no volume has the name {shown(disk['name'])}")
    for path, interface in list_devices(INTERFACES, spec):
        name = interface.get("name")
        if is_emulated(interface) and isinstance(name, str) and name not in networks:
            yield FieldError((*path, "name"), f"no network has the name {shown(name)}")


def _addresses(spec: Json) -> Iterator[FieldError]:
    for path, disk in list_devices(DISKS, spec):
        kind, bus = disk_kind(disk), at(disk, "disk", "bus")
        for other in DISK_KINDS:
            if not is_unset(at(disk, other, "pciAddress")) and (
                other != kind or other != "disk" or bus not in ("virtio", None, "")
            ):
                message = "must be unset: only a disk on the bus virtio has a PCI address"
                yield FieldError((*path, other, "pciAddress"), message)
    for path, value in _explicit("pciAddress", spec):
        if PCI.accepts(value) and int(value.split(":")[1], 16) > LAST_PCI_BUS:
            yield FieldError(path, f"{value} is on bus 0x{value.split(':')[1]}; the last bus is 0x{LAST_PCI_BUS:02x}")


def _explicit(field: str, spec: Json) -> Iterator[tuple[Path, Any]]:
    for devices in (DISKS, INTERFACES):
        for path, device in list_devices(devices, spec):
            inner: Path = (field,) if devices is INTERFACES or field == "bootOrder" else ("disk", field)
            value = at(device, *inner)
            if not is_unset(value) and device.get("state") != "absent":
                yield (*path, *inner), value


def _duplicates(spec: Json) -> Iterator[FieldError]:
    """Errors for values that must be unique and that two devices share. libvirt would report only some of them."""
    for field, name in (("macAddress", "MAC address"), ("pciAddress", "PCI address"), ("bootOrder", "boot order")):
        owners: defaultdict[str, list[Path]] = defaultdict(list)
        for path, value in _explicit(field, spec):
            if isinstance(value, str | int):
                owners[normalize_address(value)].append(path)
        for value, paths in owners.items():
            for path in paths[1:]:
                yield FieldError(path, f"Duplicate value: {shown(value)}: {format_path(paths[0])} has the same {name}")
    for path, value in _explicit("macAddress", spec):
        if MAC.accepts(value) and int(value[:2], 16) & 1:
            yield FieldError(path, f"must be a unicast MAC address, not the multicast address '{value}'")


def _unknown_cpu_model(spec: Json, models: frozenset[str]) -> Iterator[FieldError]:
    model = at(spec, "domain", "cpu", "model")
    if models and isinstance(model, str) and model and model not in models and model not in HOST_CPUS:
        message = f"no libvirt knows the CPU model {shown(model)}, neither the defaulter's nor that of a node"
        yield FieldError(parse_path("domain.cpu.model"), message)
