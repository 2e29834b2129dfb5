"""The fields that the defaulter may change, and a check that a response changed nothing else.

The defaulter may fill unset fields that the guest sees, and may set annotations of Poolhouse. It may
replace two values that are set: a machine type alias, and the hardware record.

A client compares each response with its request before the document is stored. A broken, outdated or hijacked defaulter
can then leave hardware undefaulted, but cannot give a VM another volume or image.
"""

from collections.abc import Iterator
from typing import Any

from defaulter.field_record import is_same
from defaulter.hook import HARDWARE_ANNOTATION
from defaulter.vm_paths import PATHS_BY_KIND, locate
from poolhouse.api.apimachinery.equality import is_unchanged
from poolhouse.api.apimachinery.unstructured import Json, at

ANNOTATION_PREFIX = "poolhouse.dev/"

Path = tuple[str, ...]

_FILLABLE_FIELDS = {
    "": "architecture",
    "domain.": "machine clock features",
    "domain.cpu.": "cores sockets threads maxSockets model",
    "domain.memory.": "guest maxGuest",
    "domain.firmware.": "uuid serial bootloader",
    "domain.devices.": "watchdog video.type sound.model autoattachGraphicsDevice autoattachSerialConsole"
    " autoattachMemBalloon autoattachVSOCK disableHotplug useVirtioTransitional",
    "domain.devices.disks.*.": "disk cdrom lun",
    "domain.devices.interfaces.*.": "model macAddress pciAddress",
    "domain.devices.inputs.*.": "bus type",
    "domain.devices.panicDevices.*.": "model",
}
FILLABLE: frozenset[Path] = frozenset(
    tuple(f"{above}{field}".split(".")) for above, fields in _FILLABLE_FIELDS.items() for field in fields.split()
)
"""paths below the VMI spec. `*` is any list index. Everything below a path is fillable too."""


def _tree(paths: frozenset[Path]) -> dict[str, Any]:
    """The paths as nested objects, whose values are True at the end of a path."""
    root: dict[str, Any] = {}
    for *above, last in paths:
        node = root
        for step in above:
            node = node.setdefault(step, {})
        node[last] = True
    return root


_FILLABLE_TREE = _tree(FILLABLE)

EXTENDABLE_LISTS: tuple[Path, ...] = (("domain", "devices", "disks"),)
"""lists to which items may be added: KubeVirt adds a disk to each volume without a disk"""
CREATABLE_LISTS: tuple[Path, ...] = (("domain", "devices", "interfaces"), ("networks",))
"""lists that may be created: KubeVirt adds an interface and a network to a VM without networks"""
MACHINE_TYPE: Path = ("domain", "machine", "type")
_ANNOTATIONS: Path = ("metadata", "annotations")


def defaulted_fields(document: Json) -> dict[str, Any]:
    """The values of the fillable fields, by path below the VMI spec. A path has names of devices and not indexes, as in
    `domain.devices.disks[root].disk.pciAddress`."""
    location = locate(document)
    spec = at(document, *location.spec) if location is not None else None
    return dict(_fillable_values(spec, _FILLABLE_TREE, "")) if isinstance(spec, dict) else {}


def _fillable_values(value: Any, fillable: Any, shown: str) -> Iterator[tuple[str, Any]]:
    """The values below a path. `fillable` is True, or the part of `_FILLABLE_TREE` below the path."""
    if isinstance(value, dict) and value:
        for key, child in value.items():
            inner = True if fillable is True else fillable.get(key)
            if inner:
                yield from _fillable_values(child, inner, f"{shown}.{key}" if shown else str(key))
    elif isinstance(value, list):
        inner = True if fillable is True else fillable.get("*")
        for index, child in enumerate(value if inner else ()):
            name = child.get("name") if isinstance(child, dict) else None
            yield from _fillable_values(child, inner, f"{shown}[{name if isinstance(name, str) else index}]")
    elif value is not None and fillable is True:
        yield shown, value


def _is_fillable(path: Path) -> bool:
    fillable: Any = _FILLABLE_TREE
    for step in path:
        if (fillable := fillable.get(step)) is True:
            return True
        if fillable is None:
            return False
    return False


def forbidden_changes(request: Json, response: Json) -> list[str]:
    """Paths that the response must not change and has changed. If there are none, the response may be stored."""
    paths = PATHS_BY_KIND.get(str(request.get("kind")))
    # A libvirt VM (v1alpha1) is never stored, so its changes need no check.
    return [] if paths is None else list(_forbidden(request, response, (), tuple(map(str, paths.vmi))))


def _forbidden(before: Any, after: Any, path: Path, vmi: Path) -> Iterator[str]:
    # A new object or list is allowed if each value in it is fillable.
    if _is_container(before, after, dict):
        given = before or {}
        yield from (_format(path, key) for key in given if key not in after)
        for key, value in after.items():
            old = given.get(key)
            if not is_unchanged(old, value):
                yield from _forbidden(old, value, (*path, key), vmi)
    elif _is_container(before, after, list) and len(before or ()) <= len(after):
        items = before or ()
        for old, new in zip(items, after, strict=False):
            if not is_unchanged(old, new):
                yield from _forbidden(old, new, (*path, "*"), vmi)
        if len(items) < len(after) and not _may_grow(before, path, vmi):
            yield _format(path)
    elif not (is_same(before, after) or _may_set(before, after, path, vmi)):
        yield _format(path)


def _may_set(before: Any, after: Any, path: Path, vmi: Path) -> bool:
    """Whether a response may replace the value `before` by `after`."""
    return (
        (_is_unset(before) and _may_fill(path, vmi))
        or _is_resolved_alias(before, after, path, vmi)
        or _is_new_record(before, after, path, vmi)
    )


def _is_container(before: Any, after: Any, container: type) -> bool:
    return isinstance(after, container) and (isinstance(before, container) or (_is_unset(before) and bool(after)))


def _is_unset(value: Any) -> bool:
    return not value and value is not False


def _below_spec(path: Path, vmi: Path) -> Path:
    depth = len(vmi)
    return path[depth + 1 :] if path[:depth] == vmi and path[depth : depth + 1] == ("spec",) else ()


def _may_grow(before: Any, path: Path, vmi: Path) -> bool:
    inside = _below_spec(path, vmi)
    return inside in EXTENDABLE_LISTS or (not before and inside in CREATABLE_LISTS)


def _may_fill(path: Path, vmi: Path) -> bool:
    if path[-2:-1] == ("annotations",) and path[:-1] in (_ANNOTATIONS, (*vmi, *_ANNOTATIONS)):
        return path[-1].startswith(ANNOTATION_PREFIX)
    return _is_fillable(_below_spec(path, vmi))


def _is_resolved_alias(before: Any, after: Any, path: Path, vmi: Path) -> bool:
    """Whether the change resolves a machine type alias, such as `q35` to `pc-q35-7.2`."""
    if _below_spec(path, vmi) != MACHINE_TYPE or not isinstance(before, str) or not isinstance(after, str):
        return False
    return before in after.split("-") or after.startswith(before + "-")


def _is_new_record(before: Any, after: Any, path: Path, vmi: Path) -> bool:
    """Whether the change replaces the hardware record. An update that adds devices needs a new record."""
    texts = isinstance(before, str) and isinstance(after, str) and after != ""
    return texts and path == (*vmi, "metadata", "annotations", HARDWARE_ANNOTATION)


def _format(path: Path, *more: str) -> str:
    return ".".join((*path, *more)).replace(".*", "[*]")
