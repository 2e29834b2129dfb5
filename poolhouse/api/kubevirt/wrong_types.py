"""Finds values of a VM, VMI or DataVolume whose JSON type is not the one in the published schema of KubeVirt or CDI.

Null counts as an absent value, except as an item of a list. Fields that `poolhouse.api.kubevirt.fields` does not list
may have any value.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from poolhouse.api.apimachinery.problem import format_path
from poolhouse.api.apimachinery.quantity import to_fraction
from poolhouse.api.kubevirt.fields import Field, declared_fields

Path = tuple[str | int, ...]

_JSON_TYPES = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}
_EXPECTED = {"count": "integer", "port": "string,number"}
_LARGEST = {"integer": 2**63 - 1, "count": 2**32 - 1}
_SMALLEST = {"integer": -(2**63), "count": 0}


@dataclass(frozen=True)
class WrongType:
    path: Path
    expected: str
    """JSON types of the schema, or `quantity`"""
    found: Any

    @property
    def field(self) -> str:
        return format_path(self.path)

    @property
    def found_type(self) -> str:
        return "null" if self.found is None else _JSON_TYPES[type(self.found)]

    @property
    def message(self) -> str:
        """The message of KubeVirt's schema check."""
        if self.expected == "quantity" and isinstance(self.found, str):
            return f"{self.field} in body must be a quantity such as 1Gi or 500m: {_shorten(self.found)}"
        if self.expected == "integer" and isinstance(self.found, int) and not isinstance(self.found, bool):
            return f"{self.field} in body is out of range: {_shorten(self.found)}"
        return f'{self.field} in body must be of type {self.expected}: "{self.found_type}"'


def wrong_types(value: Any, type_name: str, path: Path = ()) -> Iterator[WrongType]:
    """The values of another type in an object of a type of KubeVirt or Kubernetes."""
    if not isinstance(value, dict):
        yield WrongType(path, "object", value)
        return
    for name, field in declared_fields(type_name).items():
        found, here = value.get(name), (*path, name)
        if found is None:
            continue
        if not field.is_list:
            yield from _value(found, field, here)
        elif isinstance(found, list):
            for index, item in enumerate(found):
                yield from _value(item, field, (*here, index))
        else:
            yield WrongType(here, "array", found)


def _value(value: Any, field: Field, path: Path) -> Iterator[WrongType]:
    match field.type:
        case "Quantity":
            yield from _quantity(value, path)
        case "Quantities" | "Map" if isinstance(value, dict):
            check = _quantity if field.type == "Quantities" else _text
            for key, each in value.items():
                if each is not None:
                    yield from check(each, (*path, key))
        case "" | "Quantities" | "Map":
            yield from _plain(value, field, path)
        case type_name:
            yield from wrong_types(value, type_name, path)


def _plain(value: Any, field: Field, path: Path) -> Iterator[WrongType]:
    match field.value:
        case "object":
            fits = isinstance(value, dict)
        case "boolean":
            fits = isinstance(value, bool)
        case "string":
            fits = isinstance(value, str)
        case "port":
            fits = isinstance(value, str) or _is_integer(value, "integer")
        case kind:
            fits = _is_integer(value, kind)
    if not fits:
        yield WrongType(path, _EXPECTED.get(field.value, field.value), value)


def _is_integer(value: Any, kind: str) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and _SMALLEST[kind] <= value <= _LARGEST[kind]


def _quantity(value: Any, path: Path) -> Iterator[WrongType]:
    if to_fraction(value) is None:
        yield WrongType(path, "quantity", value)


def _text(value: Any, path: Path) -> Iterator[WrongType]:
    if not isinstance(value, str):
        yield WrongType(path, "string", value)


def _shorten(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
