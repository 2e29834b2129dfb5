"""The JSON patch (RFC 6902) that turns one document into another, guarded by `test` operations.

If another webhook inserts a device into a list, the indexes of later devices change. Each patch of a list element
therefore first tests the element's name, or the whole element if it has no name. A patch also tests values that it
replaces or removes. If a test fails, the whole patch fails, so that no disk gets the address of another disk.
"""

from collections.abc import Iterator
from typing import Any

from poolhouse.api.apimachinery.equality import is_unchanged

Operation = dict[str, Any]


def diff(before: Any, after: Any) -> list[Operation]:
    """The operations that turn `before` into `after`; none for equal documents."""
    return list(_changes(before, after, ""))


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal. Unlike in `==`, 1 equals neither true nor 1.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _changes(before: Any, after: Any, path: str) -> Iterator[Operation]:
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _object_changes(before, after, path)
    elif isinstance(before, list) and isinstance(after, list) and len(before) <= len(after):
        yield from _list_changes(before, after, path)
    elif not same(before, after):
        yield from _guard(before, path)
        yield {"op": "replace", "path": path, "value": after}


def _object_changes(before: dict[str, Any], after: dict[str, Any], path: str) -> Iterator[Operation]:
    for key, value in before.items():
        if key not in after:
            yield from _guard(value, path + _step(key))
            yield {"op": "remove", "path": path + _step(key)}
    for key, value in after.items():
        given = before.get(key)
        if given is not None and (given is value or is_unchanged(given, value)):
            continue
        # `add` replaces a null too. Patch libraries disagree whether a null counts as present.
        if given is None:
            if value is not None or key not in before:
                yield {"op": "add", "path": path + _step(key), "value": value}
        else:
            yield from _changes(given, value, path + _step(key))


def _list_changes(before: list[Any], after: list[Any], path: str) -> Iterator[Operation]:
    for index, value in enumerate(before):
        if is_unchanged(value, after[index]):
            continue
        inner = list(_changes(value, after[index], f"{path}/{index}"))
        if inner and isinstance(value, dict | list):
            yield from _identity(value, f"{path}/{index}")
        yield from inner
    for value in after[len(before) :]:
        yield {"op": "add", "path": path + "/-", "value": value}


def _identity(element: Any, path: str) -> Iterator[Operation]:
    name = element.get("name") if isinstance(element, dict) else None
    if isinstance(name, str):
        yield {"op": "test", "path": path + "/name", "value": name}
    else:
        yield from _guard(element, path)


def _guard(value: Any, path: str) -> Iterator[Operation]:
    if _comparable(value):
        yield {"op": "test", "path": path, "value": value}


def _comparable(value: Any) -> bool:
    """Whether `test` works for the value in all JSON patch libraries. The API server's compares floats as text."""
    if isinstance(value, dict):
        return all(map(_comparable, value.values()))
    if isinstance(value, list):
        return all(map(_comparable, value))
    return value is not None and not isinstance(value, float)


def _step(key: str) -> str:
    """One key of a JSON pointer (RFC 6901)."""
    return "/" + (key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key)
