"""Finds out whether libvirt rejects a value only because it, or its QEMU, is older than those of the nodes.

Such a value stays in the spec, with a warning. To choose the other values, libvirt is asked about a domain with a
neutral value in its place.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from defaulter.error_paths import find_error_path
from defaulter.fields import PANIC, TPM, VIDEO
from defaulter.json_paths import Path, parse_path
from defaulter.vmi_spec import video_type
from defaulter.walker import list_devices
from poolhouse.api.apimachinery.unstructured import Json, at


@dataclass(frozen=True)
class Replacement:
    path: Path
    value: Any
    """The neutral value; None removes the field."""


Find = Callable[[Json, str], Iterator[Replacement]]


def find_replacements(message: str, spec: Json) -> tuple[Replacement, ...]:
    """Replacements for the values that this error of libvirt is about. Empty if every version would reject the spec,
    or if no neutral value is known."""
    for pattern, find in _RULES:
        match = re.search(pattern, message, re.IGNORECASE)
        if match is not None:
            return tuple(find(spec, next((group for group in match.groups() if group), "")))
    return ()


def find_limited(message: str, spec: Json) -> tuple[Replacement, ...]:
    """Replacements for the values that are above a limit of this libvirt or QEMU. Empty if the error is about no limit.

    Limits grow with versions: q35 of QEMU 9.2 has 4096 CPUs, and had 288 before; libvirt adds the IOMMU that more than
    255 CPUs need since 10.10. The caller must know that the nodes are newer."""
    if _LIMIT.search(message) is None:
        return ()
    path = find_error_path(message, spec)
    paths = [(*path, part) for part in _TOPOLOGY] if path == _CPU else [path] if len(path) > 1 else []
    return tuple(Replacement(each, None) for each in paths if at(spec, *each) is not None)


_CPU = parse_path("domain.cpu")
_TOPOLOGY = ("sockets", "cores", "threads", "maxSockets")
_LIMIT = re.compile(
    r"limit|maximum|exceed|greater than|more than \d+|at most \d+|too (?:many|large|big)", re.IGNORECASE
)


def _panic_model(spec: Json, model: str) -> Iterator[Replacement]:
    for path, device in list_devices(PANIC, spec):
        if device.get("model") == model:
            # pvpanic is a conventional PCI device: a VM with it gets no PCI addresses (`vmi_spec.holds_addresses`).
            yield Replacement(path, None)


def _video_type(spec: Json, model: str) -> Iterator[Replacement]:
    for path, device in list_devices(VIDEO, spec):
        neutral = video_type(spec)
        if device.get("type") not in (None, neutral):
            # The display adapter is on the root bus, where a spec holds no addresses.
            yield Replacement((*path, "type"), neutral)


def _tpm(spec: Json, model: str) -> Iterator[Replacement]:
    for path, _ in list_devices(TPM, spec):
        yield Replacement(path, None)


def _hyperv(spec: Json, feature: str) -> Iterator[Replacement]:
    path = parse_path("domain.features.hyperv")
    names = {"stimer": "synictimer", "vendor_id": "vendorid"}
    found = at(spec, *path)
    name = names.get(feature, feature)
    if isinstance(found, dict):
        yield Replacement((*path, name) if name in found else path, None)


_UNSUPPORTED = r"(?:not supported|not available|unsupported)"
_RULES: tuple[tuple[str, Find], ...] = (
    (r"unknown panic model '([\w-]+)'|panic.* model '?([\w-]+)'? .*" + _UNSUPPORTED, _panic_model),
    (r"does not support video (?:model|type) '([\w-]+)'|unknown video model '([\w-]+)'", _video_type),
    (r"TPM .*" + _UNSUPPORTED + r"|unsupported TPM|does not support TPM", _tpm),
    (r"hyper-?v (?:enlightenment )?feature:? '?([\w-]+)'?", _hyperv),
)
"""Messages about values that depend on the version. Other messages are about errors of the author."""
