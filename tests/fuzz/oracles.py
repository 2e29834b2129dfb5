"""What holds for every answer. A violation is a `Finding`, and each kind of it is counted."""

import re
from collections.abc import Iterator
from typing import Any, Literal

from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds.validation import path_to
from webhook.patch import same

Finds = Literal[
    "crash", "hang", "5xx", "value changed", "not idempotent", "no path", "invalid output", "exec", "growth"
]
FINDS: tuple[Finds, ...] = Finds.__args__  # type: ignore[attr-defined]

UNDECIDED = 501
"""the defaulter's documented answer for a document that it cannot decide, such as one for an absent emulator"""
OUR_ANNOTATIONS = "poolhouse.dev/"


class Finding(Exception):
    def __init__(self, kind: Finds, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind, self.message = kind, message


def check_status(status: int, content: bytes) -> None:
    if status >= 500 and status != UNDECIDED:
        raise Finding("5xx", f"{status}: {content[:300]!r}")


def check_problems(problems: Any) -> None:
    """Each problem has a path and a message of one line. The problem of a whole document has an empty path."""
    if not isinstance(problems, list) or not problems:
        raise Finding("no path", f"a refusal without problems: {problems!r:.200}")
    for problem in problems:
        message, path = problem.get("message"), problem.get("path", problem.get("field"))
        if not isinstance(path, str) or not message or not isinstance(message, str):
            raise Finding("no path", f"{problem!r:.300}")


def check_has_path(problems: list[Json]) -> None:
    """At least one problem of a refused spec has a path."""
    if not any(problem.get("path", problem.get("field")) for problem in problems):
        raise Finding("no path", f"{problems!r:.400}")


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every value that an author has set. Null, an empty text and 0 count as unset, as in Go."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, (*path, index))
    elif value is not None and value != "" and (value is False or value != 0):
        yield path, value


def check_values_kept(before: Json, after: Json, old: Json | None = None) -> None:
    """No value of the author is changed. A machine type's alias may be resolved, and values that are written in another
    type in the manifest may be converted. On an update, values of the stored object are not the author's."""
    for path, value in leaves(before):
        if _is_ours(path) or (old is not None and at(old, *path) == value):
            continue
        now = at(after, *path)
        if not same(now, value) and not _converted(path, value, now):
            raise Finding("value changed", f"{path_to(path)}: {value!r:.80} is now {now!r:.80}")


def _is_ours(path: tuple[str | int, ...]) -> bool:
    return "annotations" in path and str(path[-1]).startswith(OUR_ANNOTATIONS)


def _converted(path: tuple[str | int, ...], value: Any, now: Any) -> bool:
    if path[-2:] == ("machine", "type"):
        return isinstance(now, str)
    if isinstance(value, bool):
        return bool(now == str(value).lower())
    return isinstance(value, float) and type(now) is int and now == value


def schema_violations(schema: Json, value: Any, path: str = "") -> Iterator[str]:
    """Violations of a CRD's schema, by the rules of the API server. It shares no code with
    `poolhouse.api.kinds.validation`, which it checks. CEL rules are not evaluated."""
    if value is None:
        if not schema.get("nullable"):
            yield f"{path}: null"
        return
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str) or isinstance(value, bool):
            yield f"{path}: {value!r} is neither an integer nor a string"
        return
    wanted = schema.get("type")
    if wanted is not None and not _TYPES[wanted](value):
        yield f"{path}: {value!r:.60} is no {wanted}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r:.60} is none of {schema['enum']}"
    yield from _bound_violations(schema, value, path)
    if isinstance(value, dict):
        yield from _object_violations(schema, value, path)
    elif isinstance(value, list):
        yield from _list_violations(schema, value, path)


def _list_violations(schema: Json, value: list[Any], path: str) -> Iterator[str]:
    keys = schema.get("x-kubernetes-list-map-keys")
    found = [tuple(item.get(key) for key in keys) for item in value if isinstance(item, dict)] if keys else []
    if len(set(found)) < len(found):
        yield f"{path}: duplicate keys"
    for index, item in enumerate(value):
        yield from schema_violations(schema.get("items", {}), item, f"{path}[{index}]")


def _object_violations(schema: Json, value: Json, path: str) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name}: missing"
    for name, inner in value.items():
        if name in properties:
            yield from schema_violations(properties[name], inner, f"{path}.{name}")
        elif "additionalProperties" in schema:
            yield from schema_violations(schema["additionalProperties"], inner, f"{path}[{name!r}]")
        elif properties and not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{path}.{name}: unknown field"


def _bound_violations(schema: Json, value: Any, path: str) -> Iterator[str]:
    if isinstance(value, str | list | dict):
        noun = {str: "Length", list: "Items", dict: "Properties"}[type(value)]
        if not schema.get(f"min{noun}", 0) <= len(value) <= schema.get(f"max{noun}", len(value)):
            yield f"{path}: {len(value)} entries or characters"
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{path}: {value!r:.60} does not match {schema['pattern']}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            yield f"{path}: {value} is out of bounds"
        bits = {"int32": 31, "int64": 63}.get(schema.get("format", ""))
        if bits and not -(2**bits) <= value < 2**bits:
            yield f"{path}: {value} has more than {bits + 1} bits"


_TYPES = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}
