"""Remembers what libvirt chose for a shape of VM, so that a pool's second replica need not ask it again.

A shape is all of a spec that can bear on libvirt's choice: everything but who the VM is and where its disks and
networks come from. What is left out is checked without libvirt, each time.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from apimachinery.unstructured import Json
from defaulter.json_paths import Path
from defaulter.vm_paths import VMLocation


@dataclass(frozen=True)
class LibvirtChoices:
    """What libvirt chose: values by their paths in the spec, and the record of all hardware where one is kept."""

    choices: tuple[tuple[Path, Any], ...]
    record: str | None = None


_MOST = 256
_LONGEST_KEY = 65536


class LibvirtCache:
    """The shapes seen last, a bounded number of them."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._known: OrderedDict[str, LibvirtChoices] = OrderedDict()

    def get(self, key: str | None) -> LibvirtChoices | None:
        if key is None or key not in self._known:
            return None
        self._known.move_to_end(key)
        return self._known[key]

    def put(self, key: str | None, decided: LibvirtChoices) -> None:
        if key is None:
            return
        self._known[key] = decided
        while len(self._known) > self._most:
            self._known.popitem(last=False)


def cache_key(spec: Json, location: VMLocation, open_paths: set[Path], record: Any = None) -> str | None:
    """A text that two specs share only if libvirt would choose alike; None for what must be asked every time."""
    if any(path[-1] == "macAddress" for path in open_paths):
        return None  # libvirt's own MAC addresses are random, and meant to be
    domain = {name: value for name, value in spec["domain"].items() if name != "firmware"}
    firmware = spec["domain"].get("firmware") or {}
    devices = domain.get("devices") or {}
    interfaces = devices.get("interfaces") or ()
    shape = (
        {**domain, "devices": {**devices, "interfaces": [{**nic, "macAddress": ""} for nic in interfaces if nic]}},
        {name: value for name, value in firmware.items() if name not in ("uuid", "serial")},
        spec.get("architecture"),
        [volume.get("name") for volume in spec.get("volumes") or () if isinstance(volume, dict)],
        (location.is_template, location.is_vm, location.has_instancetype, location.has_preference),
        {name: value for name, value in location.annotations.items() if name.startswith("kubevirt.io/")},
        record,
    )
    text = json.dumps(shape, separators=(",", ":"))
    return text if len(text) <= _LONGEST_KEY else None
