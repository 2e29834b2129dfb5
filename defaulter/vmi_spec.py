"""What a spec says about the machine as a whole, in the words that KubeVirt's converter uses."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

from apimachinery.quantity import to_int
from apimachinery.unstructured import Json, at
from defaulter.fields import ARCHITECTURES

PLACEHOLDER_UUID = "00000000-0000-4000-8000-000000000001"
"""the UUID of a domain whose spec has none: each pass must define the same domain again"""
DEFAULT_MEMORY_BYTES = 1024**3
"""where the spec has none: an instance type will bring it, and no address depends on it"""

_ALIAS = re.compile(r"[A-Za-z0-9_-]+")


def alias(name: str) -> str:
    """The alias that KubeVirt gives a device of this name; for a name that libvirt would drop, one made from it."""
    return f"ua-{name}" if _ALIAS.fullmatch(name) else f"ua-{sha256(name.encode('utf-8', 'replace')).hexdigest()[:24]}"


def architecture(spec: Json) -> str:
    value = spec.get("architecture")
    return value if isinstance(value, str) and value in ARCHITECTURES else "amd64"


def virtio_model(spec: Json) -> str:
    """What KubeVirt makes of the model `virtio`."""
    if architecture(spec) == "s390x":
        return "virtio"
    return "virtio-transitional" if turned_on(spec, "useVirtioTransitional") else "virtio-non-transitional"


def memory_bytes(spec: Json) -> int:
    return to_int(at(spec, "domain", "memory", "guest")) or DEFAULT_MEMORY_BYTES


def has_efi(spec: Json) -> bool:
    return at(spec, "domain", "firmware", "bootloader", "efi") is not None


def video_type(spec: Json) -> str:
    """The display adapter that KubeVirt gives a VM which names none."""
    if architecture(spec) != "amd64":
        return "virtio"
    return "vga" if not has_efi(spec) else "bochs"


def rename_machine(domain: Any, machine: str) -> None:
    """Calls the machine what it is called on the nodes, which may have it when our own QEMU has only its like."""
    kind = domain.find("os/type")
    if kind is not None:
        kind.set("machine", machine)


def device_field(spec: Json, name: str) -> Any:
    return at(spec, "domain", "devices", name)


def turned_on(spec: Json, name: str) -> bool:
    return device_field(spec, name) is True


def turned_off(spec: Json, name: str) -> bool:
    return device_field(spec, name) is False
