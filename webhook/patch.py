"""The JSON patch (RFC 6902) that turns one document into another, guarded by `test` operations.

If another webhook inserts a device into a list, the indexes of later devices change. Each patch of a list element
therefore first tests the element's name, or the whole element if it has no name. A patch also tests values that it
replaces or removes. If a test fails, the whole patch fails, so that no disk gets the address of another disk.
"""

from typing import Any

from poolhouse.api.apimachinery.equality import is_unchanged

Operation = dict[str, Any]
ESCAPED_BY_GO = frozenset("<>&\u2028\u2029")
"""characters that Go's encoding/json escapes in a string, and other encoders do not"""


def diff(before: Any, after: Any) -> list[Operation]:
    """The operations that turn `before` into `after`; none for equal documents."""
    found: list[Operation] = []
    _compare(before, after, "", found)
    return found


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal. Unlike in `==`, 1 equals neither true nor 1.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _compare(before: Any, after: Any, path: str, found: list[Operation]) -> None:
    """Adds the operations to `found`. Nested generators would pass on each operation once for each level."""
    if isinstance(before, dict) and isinstance(after, dict):
        _compare_objects(before, after, path, found)
    elif isinstance(before, list) and isinstance(after, list) and len(before) <= len(after):
        _compare_lists(before, after, path, found)
    elif not same(before, after):
        found += (*_guard(before, path), {"op": "replace", "path": path, "value": after})


def _compare_objects(before: dict[str, Any], after: dict[str, Any], path: str, found: list[Operation]) -> None:
    for key, value in before.items():
        if key not in after:
            found += (*_guard(value, path + _step(key)), {"op": "remove", "path": path + _step(key)})
    for key, value in after.items():
        given = before.get(key)
        if given is not None and (given is value or is_unchanged(given, value)):
            continue
        # `add` replaces a null too. Patch libraries disagree whether a null counts as present.
        if given is None:
            if value is not None or key not in before:
                found.append({"op": "add", "path": path + _step(key), "value": value})
        else:
            _compare(given, value, path + _step(key), found)


def _compare_lists(before: list[Any], after: list[Any], path: str, found: list[Operation]) -> None:
    for index, value in enumerate(before):
        if is_unchanged(value, after[index]):
            continue
        start = len(found)
        _compare(value, after[index], f"{path}/{index}", found)
        if len(found) > start and isinstance(value, dict | list):
            found[start:start] = _identity(value, f"{path}/{index}")
    found += ({"op": "add", "path": path + "/-", "value": value} for value in after[len(before) :])


def _identity(element: Any, path: str) -> list[Operation]:
    name = element.get("name") if isinstance(element, dict) else None
    return _guard(name, path + "/name") if isinstance(name, str) else _guard(element, path)


def _guard(value: Any, path: str) -> list[Operation]:
    return [{"op": "test", "path": path, "value": value}] if _comparable(value) else []


def _comparable(value: Any) -> bool:
    """Whether `test` works for the value in all JSON patch libraries. The API server's compares floats and strings as
    they are written, and Go writes some characters as escapes."""
    if isinstance(value, dict):
        return all(map(_comparable, value)) and all(map(_comparable, value.values()))
    if isinstance(value, list):
        return all(map(_comparable, value))
    if isinstance(value, str):
        return ESCAPED_BY_GO.isdisjoint(value)
    return value is not None and not isinstance(value, float)


def _step(key: str) -> str:
    """One key of a JSON pointer (RFC 6901)."""
    return "/" + (key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key)
