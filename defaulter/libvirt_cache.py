"""A cache of libvirt's choices: two replicas of a pool need libvirt once.

The key has everything in a spec that libvirt's choices depend on. It leaves out the VM's name, its firmware UUID and
MAC addresses, and the sources of disks and networks; these are validated each time without libvirt.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from apimachinery.unstructured import Json
from defaulter.json_paths import Path
from defaulter.vm_paths import VMLocation

MAX_ENTRIES = 256
MAX_KEY_LENGTH = 65536


@dataclass(frozen=True)
class LibvirtChoices:
    values: tuple[tuple[Path, Any], ...]
    """by their paths in the spec"""
    record: str | None = None
    """the hardware record, where the cluster keeps one"""


class LibvirtCache:
    """Keeps the choices that were used last."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
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
        while len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)


def cache_key(spec: Json, location: VMLocation, open_paths: set[Path], inputs: Any = None) -> str | None:
    """Equal for two specs only if libvirt chooses the same values; None where libvirt must be asked each time."""
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
    return key if len(key) <= MAX_KEY_LENGTH else None
