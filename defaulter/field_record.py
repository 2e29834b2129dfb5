"""Records which fields of a stored VM Poolhouse filled.

The record is an annotation of the VM: a JSON object of paths below the VMI's spec and their values. KubeVirt does not
copy annotations of a VM to its VMI, so a new record never requires a restart. The record has the values, because a
field that another client has changed since is the author's. `kubectl apply`, server-side apply and `kubectl edit` keep
annotations that they do not know.

A client can remove the annotation. `Evidence` then finds the fields that no client wrote, from `managedFields` and the
last applied configuration.
"""

import json
from collections.abc import Mapping
from typing import Any

from defaulter.json_paths import Path, is_unset
from defaulter.vm_paths import VMLocation, locate
from poolhouse.api.apimachinery.merge_patch import LAST_APPLIED
from poolhouse.api.apimachinery.unstructured import Json, at, typed

DEFAULTED_FIELDS = "poolhouse.dev/defaulted-fields"

Fields = dict[str, Any]
"""values by path, as in `domain.devices.disks[root].disk.bus`. The value of an object is {}, that of a list is []."""


def flatten(spec: Any) -> Fields:
    """Every set value, object and list below a VMI's spec. The names of devices are in the paths only."""
    found: Fields = {}
    _flatten(spec, "", found)
    return found


def _flatten(value: Any, path: str, found: Fields) -> None:
    if isinstance(value, dict):
        is_item = path.endswith("]")
        if path:
            found[path] = {}
        for key, child in value.items():
            if key != "name" or not is_item:
                _flatten(child, f"{path}.{key}" if path else str(key), found)
    elif isinstance(value, list):
        found[path] = []
        for index, child in enumerate(value):
            _flatten(child, f"{path}[{_item(child, index)}]", found)
    elif not is_unset(value):
        found[path] = value


def _item(value: Any, index: int) -> str:
    name = value.get("name") if isinstance(value, dict) else None
    return name if isinstance(name, str) else str(index)


def show_path(spec: Json, path: Path) -> str:
    """The path below a VMI's spec with the names of devices instead of their indexes."""
    shown = ""
    for depth, step in enumerate(path):
        if isinstance(step, int):
            shown += f"[{_item(at(spec, *path[: depth + 1]), step)}]"
        else:
            shown += f".{step}" if shown else step
    return shown


def without(spec: Json, fields: Mapping[str, Any]) -> Json:
    """The spec without these fields, as far as they have these values. An object or a list is removed only if nothing
    else is left in it."""
    found = _without(spec, "", fields)
    assert isinstance(found, dict)
    return found


def _without(value: Any, path: str, fields: Mapping[str, Any]) -> Any:
    """The value without the fields, or None if nothing is left of it."""
    if not isinstance(value, dict | list):
        return None if path in fields and is_same(value, fields[path]) else value
    left = _object_without(value, path, fields) if isinstance(value, dict) else _list_without(value, path, fields)
    is_empty = not left or (path.endswith("]") and isinstance(left, dict) and left.keys() == {"name"})
    return None if is_empty and path in fields and is_same(type(value)(), fields[path]) else left


def _object_without(value: Json, path: str, fields: Mapping[str, Any]) -> Json:
    is_item = path.endswith("]")
    children = {
        key: child if is_item and key == "name" else _without(child, f"{path}.{key}" if path else str(key), fields)
        for key, child in value.items()
    }
    return {key: child for key, child in children.items() if child is not None or value[key] is None}


def _list_without(value: list[Any], path: str, fields: Mapping[str, Any]) -> list[Any]:
    items = [_without(child, f"{path}[{_item(child, index)}]", fields) for index, child in enumerate(value)]
    return [item for item, given in zip(items, value, strict=True) if item is not None or given is None]


def is_same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal. In Python, `True == 1`."""
    return type(one) is type(other) and one == other


def read_record(document: Json, location: VMLocation) -> Fields | None:
    """The fields that Poolhouse filled and that still have its values; None without a valid record."""
    try:
        record = json.loads(at(document, "metadata", "annotations", DEFAULTED_FIELDS))
    except (TypeError, ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    now = flatten(at(document, *location.spec))
    return {path: value for path, value in record.items() if path in now and is_same(now[path], value)}


def with_record(document: Json, fields: Fields) -> Json:
    """The document with the record of these fields, or without a record if there are none."""
    metadata = typed(dict, document, "metadata") or {}
    annotations = typed(dict, metadata, "annotations") or {}
    record = {DEFAULTED_FIELDS: json.dumps(fields, separators=(",", ":"), sort_keys=True)} if fields else {}
    if annotations.get(DEFAULTED_FIELDS) == record.get(DEFAULTED_FIELDS):
        return document
    others = {key: value for key, value in annotations.items() if key != DEFAULTED_FIELDS}
    return {**document, "metadata": {**metadata, "annotations": {**others, **record}}}


class Evidence:
    """What `managedFields` and the last applied configuration of a VM say about the author of its fields.

    The API server records the managers of fields before webhooks change the object, so a field that admission filled
    has no manager. A list has one manager for all its entries. The authors of fields inside lists are known only if
    the manager of the list is the client that wrote the last applied configuration.
    """

    def __init__(self, document: Json) -> None:
        metadata = typed(dict, document, "metadata") or {}
        self.applied = _last_applied(metadata)
        entries = typed(list, metadata, "managedFields") or []
        self._managers = [each for each in entries if isinstance(each, dict) and not each.get("subresource")]
        self._location = locate(document)

    def wrote(self, path: str) -> bool:
        """Whether a declarative client manages the field: it would set the field again each time."""
        if self.applied is not None and path in self.applied:
            return True
        return "[" not in path and any(each.get("operation") == "Apply" for each in self.managers(path))

    def left_unset(self, path: str) -> bool:
        """Whether no client has set the field, so that admission has filled it. False if this is not known."""
        if "[" not in path:
            return bool(self._managers) and not self.managers(path)
        appliers = [each for each in self._managers if _owns(each, ["metadata", "annotations", LAST_APPLIED])]
        known = self.applied is not None and all(each in appliers for each in self.managers(path))
        return known and path not in (self.applied or ())

    def managers(self, path: str) -> list[Json]:
        """The entries of `managedFields` that own the field, or the list that contains it."""
        spec = self._location.spec if self._location is not None else ()
        steps = [*map(str, spec), *path.partition("[")[0].split(".")]
        return [each for each in self._managers if _owns(each, steps)]


def _owns(manager: Json, steps: list[str]) -> bool:
    fields = manager.get("fieldsV1")
    for step in steps:
        fields = at(fields, f"f:{step}")
        if fields is None:
            return False
    return True


def _last_applied(metadata: Json) -> Fields | None:
    try:
        applied = json.loads(at(metadata, "annotations", LAST_APPLIED))
    except (TypeError, ValueError, RecursionError):
        return None
    location = locate(applied) if isinstance(applied, dict) else None
    return None if location is None else flatten(at(applied, *location.spec))
