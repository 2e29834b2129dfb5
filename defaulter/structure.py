"""Checks the types of every field of a VM that defaulting reads.

The spec of a request is refused with all wrong types. A stored document or a VMI is not its author's to correct: one
with wrong types is used without its spec.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from defaulter.errors import FieldError
from defaulter.fields import DEVICES, DOMAIN
from defaulter.json_paths import Path, parse_path
from defaulter.limits import MAX_LIST_ENTRIES
from defaulter.vm_paths import locate
from poolhouse.api.apimachinery.unstructured import Json, at

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
    if len(items) > MAX_LIST_ENTRIES:
        yield FieldError(path, f"has {len(items)} entries; at most {MAX_LIST_ENTRIES} are allowed")
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


def readable(stored: Json | None) -> Json | None:
    """The stored document or VMI, without its spec if the spec of the VM in it has wrong types or is missing. No API
    server stores such a document, unless the CRD has changed since."""
    location = locate(stored) if stored is not None else None
    if stored is None or location is None:
        return stored
    holder = at(stored, *location.spec[:-1])
    if not validate_metadata(holder) and not validate_types(at(holder, "spec")):
        return stored
    return {key: value for key, value in stored.items() if key != "spec"}
