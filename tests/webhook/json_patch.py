"""Applies the JSON patches of admission responses, as the API server does."""

from __future__ import annotations

from typing import Any

from webhook.patch import Operation, same


class Mismatch(Exception):
    """A patch does not fit the document: a test fails, or a path does not exist."""


def apply(document: Any, operations: list[Operation]) -> Any:
    """A patched copy of the document. Raises `Mismatch`. Supports the operations that `diff` writes."""
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
            raise Mismatch(f"{operation['path']} does not exist")
        copy[int(first)] = _applied(copy[int(first)], rest, operation)
        return copy
    if not isinstance(copy, dict) or (first not in copy and (rest or op != "add")):
        raise Mismatch(f"{operation['path']} does not exist")
    if not rest and op == "remove":
        del copy[first]
    else:
        copy[first] = _applied(copy.get(first), rest, operation)
    return copy
