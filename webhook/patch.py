"""The JSON patch (RFC 6902) that turns one document into another: small, and guarded by `test`.

A list index means another device as soon as somebody inserts one before it. So no operation goes through a list
element unseen: the element's name (or the whole of it, where it has none) is tested first, and so is every value that
is replaced or removed. A patch that no longer fits then fails as a whole instead of giving a disk another's address.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Operation = dict[str, Any]


def diff(before: Any, after: Any) -> list[Operation]:
    """Operations such that `apply(before, diff(before, after))` is `after`; none for equal documents."""
    return list(_changes(before, after, ""))


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: unlike `==`, 1 is neither true nor 1.0."""
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
        # Most of a document is text that stays as it is.
        if type(given) is str and type(value) is str and given == value:
            continue
        # `add` also writes over a null, which patch libraries disagree about calling present.
        if given is None:
            if value is not None or key not in before:
                yield {"op": "add", "path": path + _step(key), "value": value}
        else:
            yield from _changes(given, value, path + _step(key))


def _list_changes(before: list[Any], after: list[Any], path: str) -> Iterator[Operation]:
    for index, value in enumerate(before):
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
    """Whether every JSON patch library agrees on this value being itself: the API server's compares floats as text."""
    if isinstance(value, dict):
        return all(map(_comparable, value.values()))
    if isinstance(value, list):
        return all(map(_comparable, value))
    return value is not None and not isinstance(value, float)


def _step(key: str) -> str:
    """One key of a JSON pointer (RFC 6901)."""
    return "/" + (key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key)


class Mismatch(Exception):
    """A patch does not fit the document: a test failed, or a path leads nowhere."""


def apply(document: Any, operations: list[Operation]) -> Any:
    """The patched document; the one given stays as it was. Raises `Mismatch`.

    For those who read patches (tests, dry runs) of the operations that `diff` writes.
    """
    for operation in operations:
        document = _applied(document, _parts(operation["path"]), operation)
    return document


def _parts(text: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _applied(node: Any, parts: list[str], operation: Operation) -> Any:
    op = operation["op"]
    if not parts:
        if op == "test" and not same(node, operation["value"]):
            raise Mismatch(f"test of {operation['path']} failed")
        return node if op == "test" else operation["value"]
    first, rest = parts[0], parts[1:]
    copy: Any = node.copy() if isinstance(node, dict | list) else None
    if isinstance(copy, list):
        if not rest and op == "add" and first == "-":
            return [*copy, operation["value"]]
        if not first.isdigit() or int(first) >= len(copy):
            raise Mismatch(f"{operation['path']} leads nowhere")
        copy[int(first)] = _applied(copy[int(first)], rest, operation)
        return copy
    if not isinstance(copy, dict) or (first not in copy and (rest or op != "add")):
        raise Mismatch(f"{operation['path']} leads nowhere")
    if not rest and op == "remove":
        del copy[first]
    else:
        copy[first] = _applied(copy.get(first), rest, operation)
    return copy
