"""What an answer of the defaulter may change: empty fields that are the guest's, a machine alias, our own annotations.

Of what was given, it may replace two things: an alias by the machine that it means, and the record of a VM's hardware
by that of the hardware it has now.

The defaulter is another program behind a network. Nothing it says is stored before it was compared with what it was
asked, so a defaulter that is broken, old or taken over can leave hardware undecided, but not move a disk to another
volume or a VM to another image.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apimachinery.unstructured import Json, at
from defaulter.hook import HARDWARE_ANNOTATION
from defaulter.vm_paths import PATHS_BY_KIND, locate

OURS = "poolhouse.dev/"

Path = tuple[str, ...]

# Below the VMI's spec; `*` is any list index. A row allows everything below it.
FILLABLE: frozenset[Path] = frozenset(
    tuple(row.split("."))
    for row in (
        "architecture",
        "domain.machine",
        "domain.cpu.cores",
        "domain.cpu.sockets",
        "domain.cpu.threads",
        "domain.cpu.maxSockets",
        "domain.cpu.model",
        "domain.memory.guest",
        "domain.memory.maxGuest",
        "domain.firmware.uuid",
        "domain.firmware.serial",
        "domain.firmware.bootloader",
        "domain.clock",
        "domain.features",
        "domain.devices.disks.*.disk",
        "domain.devices.disks.*.cdrom",
        "domain.devices.disks.*.lun",
        "domain.devices.interfaces.*.model",
        "domain.devices.interfaces.*.macAddress",
        "domain.devices.interfaces.*.pciAddress",
        "domain.devices.inputs.*.bus",
        "domain.devices.inputs.*.type",
        "domain.devices.watchdog",
        "domain.devices.video.type",
        "domain.devices.sound.model",
        "domain.devices.panicDevices.*.model",
        "domain.devices.autoattachGraphicsDevice",
        "domain.devices.autoattachSerialConsole",
        "domain.devices.autoattachMemBalloon",
        "domain.devices.autoattachVSOCK",
        "domain.devices.disableHotplug",
        "domain.devices.useVirtioTransitional",
    )
)

# A volume without a disk is a disk to KubeVirt, so disks may follow those that are given.
GROWING: tuple[Path, ...] = (("domain", "devices", "disks"),)

# A VM that names no network has one to KubeVirt.
BEGINNING: tuple[Path, ...] = (("domain", "devices", "interfaces"), ("networks",))

MACHINE: Path = ("domain", "machine", "type")


def forbidden_changes(asked: dict[str, Any], answer: dict[str, Any]) -> list[str]:
    """Paths at which the answer changed what it must not. Empty: it may be stored."""
    place = PATHS_BY_KIND.get(str(asked.get("kind")))
    # The libvirt-shaped VM is rewritten as a whole, in libvirt's own units, and is stored nowhere.
    return [] if place is None else list(_overreach(asked, answer, (), tuple(map(str, place.vmi))))


def _overreach(before: Any, after: Any, path: Path, instance: Path) -> Iterator[str]:
    # Parents that were absent are no change of their own; each leaf in them must be one that may be filled.
    if _grows(before, after, dict):
        held = before or {}
        yield from (_shown((*path, key)) for key in held if key not in after)
        for key, value in after.items():
            given = held.get(key)
            # Most of a document is text that stayed as it was.
            if type(value) is not str or type(given) is not str or given != value:
                yield from _overreach(given, value, (*path, key), instance)
    elif _grows(before, after, list) and len(before or ()) <= len(after):
        for one, other in zip(before or (), after, strict=False):
            yield from _overreach(one, other, (*path, "*"), instance)
        if len(before or ()) < len(after) and not _may_grow(before, path, instance):
            yield _shown(path)
    elif not (
        (type(before) is type(after) and before == after)
        or (_empty(before) and _may_fill(path, instance))
        or _made_canonical(before, after, path, instance)
        or _recorded_anew(before, after, path, instance)
    ):
        yield _shown(path)


def _grows(before: Any, after: Any, container: type) -> bool:
    return isinstance(after, container) and (isinstance(before, container) or (_empty(before) and bool(after)))


def _empty(value: Any) -> bool:
    return value is None or value in ("", [], {}) or (value == 0 and value is not False)


def _below(path: Path, instance: Path) -> Path:
    spec = (*instance, "spec")
    return path[len(spec) :] if path[: len(spec)] == spec else ()


def _may_grow(before: Any, path: Path, instance: Path) -> bool:
    inside = _below(path, instance)
    return inside in GROWING or (not before and inside in BEGINNING)


def _may_fill(path: Path, instance: Path) -> bool:
    if path[:-1] in (("metadata", "annotations"), (*instance, "metadata", "annotations")):
        return path[-1].startswith(OURS)
    inside = _below(path, instance)
    return any(inside[:length] in FILLABLE for length in range(1, len(inside) + 1))


def _made_canonical(before: Any, after: Any, path: Path, instance: Path) -> bool:
    """`q35` to `pc-q35-7.2`: the same machine, said so that it means the same tomorrow."""
    if _below(path, instance) != MACHINE or not isinstance(before, str) or not isinstance(after, str):
        return False
    return before in after.split("-") or after.startswith(before + "-")


def _recorded_anew(before: Any, after: Any, path: Path, instance: Path) -> bool:
    """A record that the document brings along, as every stored one does, lacks what is new in the document."""
    texts = isinstance(before, str) and isinstance(after, str) and after != ""
    return texts and path == (*instance, "metadata", "annotations", HARDWARE_ANNOTATION)


def _shown(path: Path) -> str:
    return ".".join(path).replace(".*", "[*]")


def defaulted_fields(document: Json) -> dict[str, Any]:
    """By their place below the VMI's spec, such as `domain.devices.disks[root].disk.pciAddress`."""
    location = locate(document)
    spec = at(document, *location.spec) if location is not None else None
    return dict(_leaves(spec, (), "")) if isinstance(spec, dict) else {}


def _leaves(value: Any, row: tuple[str, ...], shown: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from _leaves(child, (*row, key), f"{shown}.{key}" if shown else str(key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            name = child.get("name") if isinstance(child, dict) else None
            yield from _leaves(child, (*row, "*"), f"{shown}[{name if isinstance(name, str) else index}]")
    elif value is not None and any(row[:length] in FILLABLE for length in range(1, len(row) + 1)):
        yield shown, value
