"""Caches what libvirt chose for VMs of one shape. This module needs no libvirt."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from defaulter.json_paths import Path
from defaulter.vm_paths import VMLocation
from poolhouse.api.apimachinery.unstructured import Json

Choice = tuple[Path, Any]
MAX_CACHED_CHOICES = 256
MAX_CACHE_KEY_LENGTH = 65536


@dataclass(frozen=True)
class LibvirtChoices:
    values: tuple[Choice, ...]
    """values by their paths in the spec"""
    record: str | None = None
    """the hardware record, if the cluster's configuration enables it"""
    warnings: tuple[str, ...] = ()
    """values that this libvirt does not know, which those of the nodes may know"""


class LibvirtCache:
    """Caches the choices that were used last, so that equal replicas of a pool need libvirt only once."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, LibvirtChoices] = OrderedDict()

    def get(self, key: str | None) -> LibvirtChoices | None:
        if key is None or key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key]

    def put(self, key: str | None, choices: LibvirtChoices) -> None:
        if key is None:
            return
        self._entries[key] = choices
        while len(self._entries) > MAX_CACHED_CHOICES:
            self._entries.popitem(last=False)


def cache_key(spec: Json, location: VMLocation, open_paths: set[Path], inputs: Any = None) -> str | None:
    """A cache key: equal for two specs only if libvirt chooses the same values. None if libvirt's choice is random.

    The key contains all values of a spec that libvirt's choices depend on. It omits the VM's name, firmware UUID and
    MAC addresses, and the sources of disks and networks. These values are validated each time without libvirt.
    """
    if any(path[-1] == "macAddress" for path in open_paths):
        return None  # libvirt's own MAC addresses are random
    domain = {name: value for name, value in spec["domain"].items() if name != "firmware"}
    firmware = spec["domain"].get("firmware") or {}
    devices = domain.get("devices") or {}
    interfaces = devices.get("interfaces") or ()
    parts = (
        {**domain, "devices": {**devices, "interfaces": [{**nic, "macAddress": ""} for nic in interfaces if nic]}},
        {name: value for name, value in firmware.items() if name not in ("uuid", "serial")},
        spec.get("architecture"),
        [volume.get("name") for volume in spec.get("volumes") or () if isinstance(volume, dict)],
        (location.is_template, location.is_vm, location.has_instancetype, location.has_preference),
        {name: value for name, value in location.annotations.items() if name.startswith("kubevirt.io/")},
        inputs,
    )
    key = json.dumps(parts, separators=(",", ":"))
    return key if len(key) <= MAX_CACHE_KEY_LENGTH else None
