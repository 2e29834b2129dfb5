"""Finds the field of a VMI spec that an error message of libvirt is about."""

import re
from collections.abc import Callable

from defaulter.codecs import normalize_address
from defaulter.fields import DEVICES, DISKS, INTERFACES, DeviceList
from defaulter.json_paths import Path, parse_path
from defaulter.vmi_spec import DISK_KINDS, alias
from defaulter.walker import list_devices
from poolhouse.api.apimachinery.unstructured import Json, at

FindPath = Callable[[Json, re.Match[str]], Path | None]


def find_error_path(message: str, spec: Json) -> Path:
    """The most specific path that the message names; `domain` if the message names none."""
    for pattern, find in _RULES:
        match = re.search(pattern, message)
        path = find(spec, match) if match is not None else None
        if path is not None:
            return path
    return ("domain",)


def _at(path: str) -> FindPath:
    return lambda spec, match: parse_path(path)


def _find_address(*fields: tuple[DeviceList, Path]) -> FindPath:
    """Returns a function that finds the field of the device with the address in a message."""

    def find(spec: Json, match: re.Match[str]) -> Path | None:
        for devices, field in fields:
            for path, device in list_devices(devices, spec):
                if normalize_address(at(device, *field)) == match.group(1).lower():
                    return (*path, *field)
        return None

    return find


def _alias(spec: Json, match: re.Match[str]) -> Path | None:
    for devices in DEVICES:
        for path, device in list_devices(devices, spec):
            if isinstance(device.get("name"), str) and alias(device["name"]) == match.group(1):
                return path
    return None


def _serial(spec: Json, match: re.Match[str]) -> Path | None:
    disks = list_devices(DISKS, spec)
    return next(((*path, "serial") for path, disk in disks if disk.get("serial") == match.group(1)), None)


def _target(spec: Json, match: re.Match[str]) -> Path | None:
    """The path of a disk by libvirt's name. libvirt names the disks of each bus in spec order: vda, vdb, ..."""
    prefix, letters = match.group(1)[:2], match.group(1)[2:]
    index = 0
    for letter in letters:
        index = index * 26 + ord(letter) - ord("a") + 1
    disks = [(path, [at(disk, kind, "bus") for kind in DISK_KINDS]) for path, disk in list_devices(DISKS, spec)]
    found = [path for path, buses in disks if ("virtio" in buses) == (prefix == "vd")]
    return found[index - 1] if 0 < index <= len(found) else None


_PCI_ADDRESS = _find_address((INTERFACES, ("pciAddress",)), (DISKS, ("disk", "pciAddress")))
_RULES: tuple[tuple[str, FindPath], ...] = (
    (r"PCI [Aa]ddress ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", _PCI_ADDRESS),
    (r"alias[: ]+'?(ua-[\w-]+)", _alias),
    (r"mac address,? .*?'?((?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2})", _find_address((INTERFACES, ("macAddress",)))),
    (r"\b([sv]d[a-z]{1,3})\b", _target),
    (r"serial '(.*)' contains", _serial),
    (r"Maximum CPUs|vcpu", _at("domain.cpu")),
    (r"machine type", _at("domain.machine.type")),
    (r"architecture|No emulator found|for arch", _at("architecture")),
    (r"watchdog", _at("domain.devices.watchdog")),
    (r"disk device='lun'|[Dd]isk|SATA|SCSI|IDE", _at("domain.devices.disks")),
    (r"[Ii]nput|tablet", _at("domain.devices.inputs")),
    (r"[Vv]ideo", _at("domain.devices.video")),
    (r"sound", _at("domain.devices.sound")),
    (r"panic", _at("domain.devices.panicDevices")),
    (r"TPM|tpm", _at("domain.devices.tpm")),
    (r"timer|clock", _at("domain.clock")),
    (r"CPUs?\b|vcpu|topology|cpu", _at("domain.cpu")),
    (r"[Mm]emory", _at("domain.memory")),
    (r"UEFI|loader|firmware|nvram|[Ss]ecure|SMM|smm", _at("domain.firmware")),
    (r"uuid", _at("domain.firmware.uuid")),
    (r"hyperv|feature", _at("domain.features")),
    (r"PCI|slots?|controllers?", _at("domain.devices")),
)
