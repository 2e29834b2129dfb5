"""Validates a spec with its pydantic model, and converts errors to problems with a path and the allowed values.

Pydantic checks types, bounds and unknown fields. This module checks CEL rules and duplicate keys of lists by the
schema, so that it reports them together with other errors of the same object.
"""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.model import VALIDATE_TEMPLATES, Model, Rule
from poolhouse.api.kinds.schema import not_a_field, structural

_WORDS = {
    "object": "an object",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}
_MAX_SHOWN = 60
_MAX_ERRORS = 500
"""Limit on converted errors, because the search for similar names takes 20 µs for each error."""

_Location = tuple[str | int, ...]


def schema_errors(model: type[Model], value: Any, path: str) -> Iterator[Problem]:
    """All errors of the value. Inside a value of the wrong type no errors are reported."""
    schema = structural(model)
    if value is None:
        yield Problem(path, f"is null; give {_wanted(schema)}")
        return
    value, is_typed = normalize(schema, value), True
    try:
        model.model_validate(value, extra="forbid", context=VALIDATE_TEMPLATES)
    except ValidationError as error:
        is_typed = False
        errors = error.errors(include_url=False, include_context=False)[:_MAX_ERRORS]
        # An unknown field that was meant as a missing field gives one problem, not two.
        meant = {
            (each["loc"][:-1], _meant(each["loc"][-1], _locate(schema, each["loc"])[1]))
            for each in errors
            if each["type"] == "extra_forbidden"
        }
        for each in errors:
            if each["type"] != "missing" or (each["loc"][:-1], each["loc"][-1]) not in meant:
                yield from _problem(schema, each["loc"], each["type"], each["input"], path)
    yield from _rule_errors(schema, value, path, is_typed)


def _locate(schema: Json, location: _Location, path: str = "") -> tuple[Json, Json, str]:
    """The schema of the value at this location, the schema of its object or list, and the path."""
    node, around = schema, schema
    for part in location:
        around = node
        if isinstance(part, int) and "items" in around:
            node, path = around["items"], f"{path}[{part}]"
        else:
            node = around.get("properties", {}).get(part) or around.get("additionalProperties") or {}
            path = child_path(path, part)
    return node, around, path


def _problem(schema: Json, location: _Location, error: str, found: Any, root: str) -> Iterator[Problem]:
    if location[-1:] == ("[key]",):
        yield Problem(_locate(schema, location[:-1], root)[2], "the key must be text; write it in quotes")
        return
    node, around, path = _locate(schema, location, root)
    if error == "extra_forbidden":
        if not around.get("x-kubernetes-preserve-unknown-fields"):
            yield Problem(path, _unknown(location[-1], around))
    elif error == "missing" or (found is None and location[-1] in around.get("properties", {})):
        yield Problem(path, f"is missing; give {_wanted(node)}")
    elif found is None:
        yield Problem(path, f"is null; give {_wanted(node)}")
    elif error == "too_short" and len(found) >= (node.get("minItems") or node.get("minProperties") or 0):
        return  # Pydantic does not count the invalid entries, which have their own problems.
    else:
        yield Problem(path, _refusal(node, error, found))


def _refusal(node: Json, error: str, found: Any) -> str:
    match error:
        case "too_long" | "too_short" | "string_too_long" | "string_too_short":
            return f"must have {_size(node, found)}, not {len(found)}"
        case "string_pattern_mismatch":
            wanted = f"text like {node.get('pattern')}"
        case "greater_than_equal":
            wanted = f"at least {node.get('minimum', -(2**63))}"
        case "less_than_equal":
            wanted = f"at most {node.get('maximum', 2**63 - 1)}"
        case _:
            wanted = _wanted(node)
    hint = _like(found, node["enum"]) if "enum" in node else _quotes_hint(node, found)
    return f"must be {node.get('x-expected', wanted)}, not {quoted(found)}{hint}"


def _size(node: Json, found: Any) -> str:
    what, noun = ("Length", "characters") if isinstance(found, str) else ("Items", "entries")
    if isinstance(found, dict):
        what = "Properties"
    least, most = node.get(f"min{what}"), node.get(f"max{what}")
    if least is None:
        return f"at most {most} {noun}"
    return f"at least {least} {noun}" if most is None else f"between {least} and {most} {noun}"


def _rule_errors(schema: Json, value: Any, path: str, is_typed: bool) -> Iterator[Problem]:
    if isinstance(value, dict):
        for name, inner in schema.get("properties", {}).items():
            if name in value:
                yield from _rule_errors(inner, value[name], child_path(path, name), is_typed)
    elif isinstance(value, list):
        yield from _duplicates(schema.get("x-kubernetes-list-map-keys"), value, path)
        for index, item in enumerate(value):
            yield from _rule_errors(schema.get("items", {}), item, f"{path}[{index}]", is_typed)
    for rule in schema.get("x-rules", ()):
        if not _holds(rule, value, is_typed):
            yield Problem(path + rule.field, rule.message_for(value))


def _holds(rule: Rule, value: Json, is_typed: bool) -> bool:
    """Whether the value obeys the rule, or has a field of a wrong type, which has its own problem."""
    try:
        return rule.holds(value)
    except (AttributeError, TypeError, ValueError):
        if is_typed:
            raise
        return True


def _duplicates(keys: list[str] | None, value: list[Any], path: str) -> Iterator[Problem]:
    """Problems of entries with the same keys as an earlier entry, in a list of type `map`."""
    seen: dict[tuple[Any, ...], int] = {}
    for index, item in enumerate(value if keys else ()):
        identity = tuple(item.get(key) for key in keys or ()) if isinstance(item, dict) else ()
        if not identity or not all(isinstance(part, str | int) for part in identity):
            continue
        first = seen.setdefault(identity, index)
        if first != index:
            told = ", ".join(f"{key} {quoted(part)}" for key, part in zip(keys or (), identity, strict=True))
            here = child_path(f"{path}[{index}]", (keys or [""])[0])
            yield Problem(here, f"{told} is taken by {path}[{first}]; each must be different")


def _meant(key: Any, around: Json) -> str | None:
    """The known field that the user meant by an unknown field."""
    known: Json = around.get("properties", {})
    if not isinstance(key, str):
        return None
    hint = around.get("x-hints", {}).get(key, "")
    if hint in known:
        return str(hint)
    return next(iter(get_close_matches(key[:_MAX_SHOWN], known, 1, 0.8)), None)


def _unknown(key: Any, around: Json) -> str:
    known, hint = around.get("properties", {}), around.get("x-hints", {}).get(key)
    if hint is not None:
        return not_a_field(hint, around)
    if meant := _meant(key, around):
        return f'is not a field here; use "{meant}"'
    if not known:
        return "is not a field here, this object has none"
    return f"is not a field here; there are {', '.join(sorted(known))}"


def _wanted(node: Json) -> str:
    if "x-expected" in node:
        return str(node["x-expected"])
    if "enum" in node:
        return _one_of(node["enum"])
    return _WORDS.get(node.get("type", ""), "a value")


def _quotes_hint(node: Json, found: Any) -> str:
    """A hint for two frequent mistakes in YAML: a quoted number, and an unquoted true, 1 or 1.0."""
    if node.get("type") in ("integer", "boolean", "number") and isinstance(found, str):
        return "; remove the quotes" if re.fullmatch(r"-?\d{1,19}|true|false", found) else ""
    if node.get("type") == "string" and isinstance(found, bool | int | float):
        return f'; write it in quotes, "{quoted(found)}"'
    return ""


def _one_of(values: list[Any]) -> str:
    told = [str(value) for value in values]
    return told[0] if len(told) == 1 else ", ".join(told[:-1]) + " or " + told[-1]


def _like(found: Any, known: list[Any]) -> str:
    by_lower = {str(name).lower(): name for name in known}
    meant = get_close_matches(str(found)[:_MAX_SHOWN].lower(), by_lower, 1, 0.8)
    return f'; did you mean "{by_lower[meant[0]]}"?' if meant else ""


def child_path(path: str, key: Any) -> str:
    """The path of a field. A key that is not a plain name is quoted and shortened."""
    if isinstance(key, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,63}", key):
        return f"{path}.{key}" if path else key
    return f"{path}[{quoted(key)}]"


def path_to(steps: Iterable[str | int], path: str = "") -> str:
    """The path of what these steps lead to from the value at `path`: fields of objects and numbers of entries."""
    for step in steps:
        path = f"{path}[{step}]" if isinstance(step, int) else child_path(path, step)
    return path


def quoted(value: Any) -> str:
    """The value in a form for messages: short, on one line, without control characters."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = value if len(value) <= _MAX_SHOWN else value[:_MAX_SHOWN] + "..."
        return '"' + "".join(c if c.isprintable() and c not in '"\\' else _escaped(c) for c in text) + '"'
    if isinstance(value, int) and value.bit_length() > 200:
        return "a number of more than 60 digits"
    return str(value)[:_MAX_SHOWN]


def _escaped(character: str) -> str:
    return f"\\{character}" if character in '"\\' else f"\\u{ord(character):04x}"


def normalize(schema: Json, value: Any) -> Any:
    """The value without null in optional fields, and with 3 for 3.0; the same object if nothing changes. In Kubernetes'
    own kinds, null means absent. The scale subresource rejects 3.0, although JSON has no integers."""
    if isinstance(value, float) and schema.get("type") == "integer" and value.is_integer() and abs(value) < 2**63:
        return int(value)
    if isinstance(value, list):
        inner = schema.get("items", {})
        items = [normalize(inner, item) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return _normalize_object(schema, value) if isinstance(value, dict) else value


def _normalize_object(schema: Json, value: Json) -> Json:
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
