"""The values of the Helm chart: the comments of values.yaml, as descriptions in the schema and as tables.

A comment describes the value below it. A component's value without a comment has that of the first component.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import yaml

from poolhouse.api.apimachinery.unstructured import Json

ValuePath = tuple[str, ...]

COMPONENTS = ("webhook", "controllers", "console", "defaulter")
HEADER = ("| Value | Type | Default | Description |", "| --- | --- | --- | --- |")


@dataclass(frozen=True)
class Value:
    """One value of the chart. `default` is None for an object whose fields are values too."""

    path: ValuePath
    schema: Json
    default: str | None
    description: str


def comments(text: str) -> dict[ValuePath, str]:
    """The comments of a YAML document, by the path of the key below them."""
    lines = text.splitlines()
    return {path: found for path, line in _keys(yaml.compose(text, yaml.SafeLoader)) if (found := _above(lines, line))}


def _keys(node: yaml.Node | None, path: ValuePath = ()) -> Iterator[tuple[ValuePath, int]]:
    """The keys of all block mappings, with their lines."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style:
        for key, value in node.value:
            yield (*path, key.value), key.start_mark.line
            yield from _keys(value, (*path, key.value))


def _above(lines: list[str], line: int) -> str:
    found: list[str] = []
    while line and (comment := lines[line - 1].strip()).startswith("# "):
        found.insert(0, comment.removeprefix("# "))
        line -= 1
    return " ".join(found)


def description(path: ValuePath, known: Mapping[ValuePath, str]) -> str:
    """The description of a value, or an empty string."""
    inherited = (COMPONENTS[0], *path[1:]) if path[0] in COMPONENTS else path
    return known.get(path) or known.get(inherited, "")


def described(schema: Json, known: Mapping[ValuePath, str]) -> Json:
    """The schema with the descriptions. One that no comment gives is kept."""
    definitions = dict(schema.get("$defs", {}))

    def at(node: Json, path: ValuePath) -> Json:
        text = description(path, known) if path else ""
        node = {"description": text, **{k: v for k, v in node.items() if k != "description"}} if text else dict(node)
        if (name := _definition(node)) is not None:
            definitions[name] = inner(definitions[name], path)
        return inner(node, path)

    def inner(node: Json, path: ValuePath) -> Json:
        if "properties" not in node:
            return node
        return {**node, "properties": {name: at(each, (*path, name)) for name, each in node["properties"].items()}}

    found = at(schema, ())
    return {**found, "$defs": definitions} if definitions else found


def _definition(node: Json) -> str | None:
    return node["$ref"].removeprefix("#/$defs/") if "$ref" in node else None


def values(schema: Json, defaults: Json, known: Mapping[ValuePath, str]) -> Iterator[Value]:
    """All values in the order of values.yaml, each object before its fields."""

    def within(node: Json, default: Json, path: ValuePath) -> Iterator[Value]:
        for name, each in default.items():
            here, field = (*path, name), node["properties"][name]
            resolved = schema["$defs"][found] if (found := _definition(field)) else field
            nested = isinstance(each, dict) and bool(each) and "properties" in resolved
            yield Value(here, resolved, None if nested else json.dumps(each), description(here, known))
            if nested:
                yield from within(resolved, each, here)

    return within(schema, defaults, ())


def tables(found: Iterator[Value]) -> str:
    """One section with a table for each value at the top."""
    parts: list[str] = []
    for value in found:
        if len(value.path) == 1:
            parts += ["", f"## {value.path[0]}", "", value.description, ""]
            if value.default is None:
                parts += HEADER
            else:
                parts += [f"Type: {type_of(value.schema)}. Default: `{value.default}`."]
        else:
            default = "" if value.default is None else f"`{value.default}`"
            cells = (f"`{'.'.join(value.path)}`", type_of(value.schema), default, value.description)
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(parts).strip() + "\n"


def type_of(schema: Json) -> str:
    """The type and the bounds of a value, in words."""
    if "anyOf" in schema:
        return " or ".join(type_of(each) for each in schema["anyOf"])
    if "enum" in schema:
        return ", ".join("empty" if each == "" else f"`{json.dumps(each).strip(chr(34))}`" for each in schema["enum"])
    low, high = schema.get("minimum"), schema.get("maximum")
    bounds = f", {low} to {high}" if high is not None else f", at least {low}" if low is not None else ""
    percentage = schema.get("pattern") == "^[0-9]+%$"
    return "percentage" if percentage else f"{schema['type']}{bounds}"
