"""Whether a document has the shape its schema asks for: every misfit at once, each with its path.

Walks the schema, not the document, so however deep or wide a document is, nothing is followed that the schema does not
know. Says what the API server would refuse, in words for the person who wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from apimachinery.problem import Problem
from apimachinery.unstructured import Json

_INT64 = 2**63
_WORDS = {
    "object": "an object",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}
_LONGEST_SHOWN = 60


def schema_errors(schema: Json, value: Any, path: str) -> Iterator[Problem]:
    """Problems of one value. A value of the wrong type has one problem; nothing is said of what is inside it."""
    if value is None:
        if not schema.get("nullable"):
            yield Problem(path, f"is null; give {_wanted(schema)}")
        return
    if not _typed(schema, value):
        yield Problem(path, f"must be {_wanted(schema)}, not {quoted(value)}{_quoted(schema, value)}")
        return
    if "enum" in schema and value not in schema["enum"]:
        yield Problem(path, f"must be {_one_of(schema['enum'])}, not {quoted(value)}{_like(value, schema['enum'])}")
        return
    yield from _bounds(schema, value, path)
    if isinstance(value, dict):
        yield from _object(schema, value, path)
    elif isinstance(value, list):
        yield from _list(schema, value, path)
    for rule in schema.get("x-rules", ()):
        if not rule.holds(value):
            yield Problem(path + rule.field, rule.message)


def _object(schema: Json, value: Mapping[Any, Any], path: str) -> Iterator[Problem]:
    known: Json = schema.get("properties", {})
    missing = [name for name in schema.get("required", ()) if value.get(name) is None]
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    for key in value:
        if key in known or (open_ended and isinstance(key, str)):
            continue
        meant = _meant(key, known, schema.get("x-hints", {}))
        if meant in missing:
            missing.remove(meant)
        yield Problem(child_path(path, key), _unknown(meant, schema.get("x-hints", {}).get(key), known))
    for name in missing:
        yield Problem(child_path(path, name), f"is missing; give {_wanted(known[name])}")
    for name, inner in known.items():
        if value.get(name) is not None:
            yield from schema_errors(inner, value[name], child_path(path, name))
    others = schema.get("additionalProperties")
    if others is not None:
        for key, inner in value.items():
            if key not in known and isinstance(key, str):
                yield from schema_errors(others, inner, child_path(path, key))


def _meant(key: Any, known: Json, hints: Mapping[str, str]) -> str | None:
    if not isinstance(key, str):
        return None
    hint = hints.get(key, "")
    if hint in known:
        return hint
    return next(iter(get_close_matches(key[:_LONGEST_SHOWN], known, 1, 0.8)), None)


def _unknown(meant: str | None, hint: str | None, known: Json) -> str:
    if hint is not None and hint not in known:
        return f"is not a field here; {hint}"
    if meant is not None:
        return f'is not a field here; use "{meant}"'
    if not known:
        return "is not a field here, this object has none"
    return f"is not a field here; there are {', '.join(sorted(known))}"


def _list(schema: Json, value: list[Any], path: str) -> Iterator[Problem]:
    inner = schema.get("items")
    if inner is None:
        return
    keys = schema.get("x-kubernetes-list-map-keys")
    seen: dict[tuple[Any, ...], int] = {}
    for index, item in enumerate(value):
        here = f"{path}[{index}]"
        yield from schema_errors(inner, item, here)
        if keys and isinstance(item, dict):
            identity = tuple(item.get(key) for key in keys)
            if not all(isinstance(part, str | int) for part in identity):
                continue
            first = seen.setdefault(identity, index)
            if first != index:
                told = ", ".join(f"{key} {quoted(part)}" for key, part in zip(keys, identity, strict=True))
                yield Problem(child_path(here, keys[0]), f"{told} is taken by {path}[{first}]; each must be different")


def _bounds(schema: Json, value: Any, path: str) -> Iterator[Problem]:
    if isinstance(value, bool):
        return
    if isinstance(value, int | float):
        least, most = schema.get("minimum", -_INT64), schema.get("maximum", _INT64 - 1)
        if not least <= value <= most:
            bound = f"at least {least}" if value < least else f"at most {most}"
            yield Problem(path, f"must be {schema.get('x-form', bound)}, not {quoted(value)}")
    elif isinstance(value, str):
        pattern = schema.get("pattern")
        if pattern is not None and not re.search(pattern.removesuffix("$") + r"\Z" * pattern.endswith("$"), value):
            yield Problem(path, f"must be {schema.get('x-form', f'text like {pattern}')}, not {quoted(value)}")
        yield from _size(schema, "Length", len(value), "characters", path)
    elif isinstance(value, list):
        yield from _size(schema, "Items", len(value), "entries", path)
    elif isinstance(value, dict):
        yield from _size(schema, "Properties", len(value), "entries", path)


def _size(schema: Json, what: str, size: int, noun: str, path: str) -> Iterator[Problem]:
    least, most = schema.get(f"min{what}"), schema.get(f"max{what}")
    if (least is not None and size < least) or (most is not None and size > most):
        yield Problem(path, f"must have {_between(least, most)} {noun}, not {size}")


def _between(least: Any, most: Any) -> str:
    if least is None:
        return f"at most {most}"
    if most is None:
        return f"at least {least}"
    return f"between {least} and {most}"


def _typed(schema: Json, value: Any) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
    match schema.get("type"):
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            # JSON knows no integers: the API server takes 3.0 for 3.
            return not isinstance(value, bool) and (
                isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            )
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case _:
            return True


def _wanted(schema: Json) -> str:
    if "x-form" in schema:
        return str(schema["x-form"])
    if "enum" in schema:
        return _one_of(schema["enum"])
    return _WORDS.get(schema.get("type", ""), "a value")


def _quoted(schema: Json, value: Any) -> str:
    """Helps over YAML's two classic slips: a quoted number, and an unquoted true, 1 or 1.0."""
    if schema.get("type") in ("integer", "boolean", "number") and isinstance(value, str):
        return "; remove the quotes" if re.fullmatch(r"-?\d{1,19}|true|false", value) else ""
    if schema.get("type") == "string" and isinstance(value, bool | int | float):
        return f'; write it in quotes, "{quoted(value)}"'
    return ""


def _one_of(values: list[Any]) -> str:
    told = [str(value) for value in values]
    return told[0] if len(told) == 1 else ", ".join(told[:-1]) + " or " + told[-1]


def _like(value: Any, known: list[Any]) -> str:
    by_lower = {str(name).lower(): name for name in known}
    meant = get_close_matches(str(value)[:_LONGEST_SHOWN].lower(), by_lower, 1, 0.8)
    return f'; did you mean "{by_lower[meant[0]]}"?' if meant else ""


def child_path(path: str, key: Any) -> str:
    """The path of a field; keys that are no plain names are quoted and shortened."""
    if isinstance(key, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,63}", key):
        return f"{path}.{key}" if path else key
    return f"{path}[{quoted(key)}]"


def quoted(value: Any) -> str:
    """A value in a message: short, in one line, and harmless to a terminal or a log."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = value if len(value) <= _LONGEST_SHOWN else value[:_LONGEST_SHOWN] + "..."
        return '"' + "".join(c if c.isprintable() and c not in '"\\' else _escaped(c) for c in text) + '"'
    if isinstance(value, int) and value.bit_length() > 200:
        return "a number of more than 60 digits"
    return str(value)[:_LONGEST_SHOWN]


def _escaped(character: str) -> str:
    return f"\\{character}" if character in '"\\' else f"\\u{ord(character):04x}"


def normalize(schema: Json, value: Any) -> Any:
    """The value without optional fields that are null and with whole numbers whole; itself when nothing changes."""
    if isinstance(value, float) and schema.get("type") == "integer" and value.is_integer():
        return int(value)
    if isinstance(value, list):
        inner = schema.get("items", {})
        items = [normalize(inner, item) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if not isinstance(value, dict):
        return value
    known, required = schema.get("properties", {}), schema.get("required", ())
    found, changed = {}, False
    for key, old in value.items():
        inner = known.get(key)
        if old is None and inner is not None and not inner.get("nullable") and key not in required:
            changed = True
            continue
        found[key] = old if inner is None else normalize(inner, old)
        changed = changed or found[key] is not old
    return found if changed else value
