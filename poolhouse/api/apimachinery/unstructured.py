"""Reads documents of any shape, like Go's `unstructured.NestedField`. A value of the wrong type counts as absent.

The schema reports missing values and wrong types, so that checks can ignore them.
"""

import json
from collections.abc import Iterator
from typing import Any, TypeVar

Json = dict[str, Any]
"""A JSON object."""

_T = TypeVar("_T")


def at(value: Any, *path: str | int) -> Any:
    """The value at a path of keys and indexes; None if a value on the path is absent or of another type."""
    for key in path:
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int) and -len(value) <= key < len(value):
            value = value[key]
        else:
            return None
    return value


def value_text(value: Any) -> str:
    """The value as it is in a manifest."""
    return value if isinstance(value, str) else json.dumps(value)


def typed(kind: type[_T], value: Any, *path: str | int) -> _T | None:
    """The value at a path if it has the type `kind`, else None."""
    found = at(value, *path)
    return found if isinstance(found, kind) and not (kind is int and isinstance(found, bool)) else None


def entries(value: Any, *path: str | int) -> Iterator[tuple[int, Json]]:
    """The objects in the list at a path, with their indexes."""
    found = at(value, *path)
    for index, item in enumerate(found if isinstance(found, list) else ()):
        if isinstance(item, dict):
            yield index, item


def without_nulls(value: Any) -> Any:
    """The value without the fields that are null, as Go writes an object that it has read."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def replaced(document: Json, value: Any, *path: str | int) -> Json:
    """A copy of the document with another value at the path. The objects and lists on the path must exist."""
    (found,) = _replaced([document], value, (0, *path))
    assert isinstance(found, dict)
    return found


def _replaced(container: Any, value: Any, path: tuple[str | int, ...]) -> Any:
    key, rest = path[0], path[1:]
    copy = container.copy()
    copy[key] = _replaced(container[key], value, rest) if rest else value
    return copy
