"""Validates a VMI spec before libvirt is asked, and reports all errors at once.

The types of the fields are valid already (`structure`). `validate_values` rejects some values that libvirt accepts:
unknown CPU models, duplicate MAC addresses and missing PCI buses. The API server checks for unknown fields.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from defaulter.codecs import MAC, PCI, is_xml_text, normalize_address
from defaulter.errors import FieldError
from defaulter.fields import CPU_FEATURES, DEVICES, DISKS, DOMAIN, HOST_CPUS, INTERFACES
from defaulter.json_paths import Path, is_unset, parse_path
from defaulter.limits import excessive_values
from defaulter.vmi_spec import DISK_KINDS, disk_kind, is_emulated
from defaulter.walker import iter_values, list_devices
from poolhouse.api.apimachinery.problem import format_path
from poolhouse.api.apimachinery.unstructured import Json, at, entries

LAST_PCI_BUS = 31
PASSED_THROUGH: tuple[Path, ...] = tuple(("domain", "devices", kind) for kind in ("gpus", "hostDevices", "filesystems"))
_FEATURE = re.compile("[A-Za-z0-9_.:+-]+")
"""allowed names of CPU features: libvirt accepts any name, and returns XML in which the name is not escaped"""


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
    # KubeVirt's aliases have a prefix by kind, such as hostdevice-NAME: a GPU and a host device may have one name.
    for kind in PASSED_THROUGH:
        others: dict[str, Path] = {}
        for index, device in entries(spec, *kind):
            yield from _name((*kind, index), device, others)
    for path, device in list_devices(CPU_FEATURES, spec):
        name, place = device.get("name"), (*path, "name")
        if not isinstance(name, str):
            yield FieldError(place, "is required")
        elif not _FEATURE.fullmatch(name):
            yield FieldError(place, f"must be the name of a CPU feature, not {shown(name)}")


def _no_text(name: str) -> str:
    return f"must be a string without control characters, not {shown(name)}"


def _name(path: Path, device: Json, owners: dict[str, Path]) -> Iterator[FieldError]:
    name, place = device.get("name"), (*path, "name")
    if not isinstance(name, str) or not name:
        yield FieldError(place, "is required: devices are matched by their names")
    elif not is_xml_text(name):
        yield FieldError(place, _no_text(name))
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
