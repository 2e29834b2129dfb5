"""Generates the reference pages of the kinds from the schemas of their CRDs."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.conditions import conditions_of, presence
from poolhouse.api.kinds.kind import Kind
from poolhouse.manifests.crd import object_schema

_NOTE = "<!-- Generated from poolhouse/api/kinds/ by `make generate`. -->"


def pages(kinds: Iterable[Kind]) -> dict[str, str]:
    """The content of every page, by its name in docs/reference."""
    kinds = tuple(kinds)
    return {**{f"{kind.singular}.md": page(kind) for kind in kinds}, "README.md": _index(kinds)}


def page(kind: Kind) -> str:
    schema = object_schema(kind)
    return "\n".join([*_head(kind), *_objects(schema, "")]).rstrip() + "\n"


def _index(kinds: Iterable[Kind]) -> str:
    rows = [(f"[{k.kind}]({k.singular}.md)", f"`{k.api_version}`", k.doc) for k in kinds]
    return "\n".join([_NOTE, "", "# Kinds", "", *_table(("Kind", "Version", ""), rows), ""])


def _head(kind: Kind) -> Iterator[str]:
    yield from (_NOTE, "", f"# {kind.kind}", "", kind.doc, "")
    facts = [
        ("Versions", ", ".join(f"`{version}`" for version in kind.api_versions)),
        ("Resource", f"`{kind.crd_name}`"),
        ("Short names", ", ".join(f"`{name}`" for name in kind.short_names) or "none"),
        ("Categories", ", ".join(f"`{name}`" for name in kind.categories) or "none"),
        ("Scope", "namespaced" if kind.namespaced else "cluster"),
        ("Subresources", ", ".join(_subresources(kind)) or "none"),
    ]
    yield from _table(("", ""), facts)
    yield ""
    if kind.notes:
        yield from (_prose(kind.notes), "")
    if kind.rules:
        yield from ("Rules:", "", *(f"- {_prose(rule.message)}" for rule in kind.rules), "")
    yield from ("## Columns", "")
    columns = [(c.name, f"`{c.path}`", c.description + (" (`-o wide`)" if c.wide else "")) for c in kind.columns]
    yield from (*_table(("Column", "Path", ""), columns), "")
    if found := [
        (f"`{each.name}`", each.when_true, each.when_false, presence(each, kind)) for each in conditions_of(kind)
    ]:
        yield from ("## Conditions", "", *_table(("Condition", "True", "False", "An object has it"), found), "")


def _subresources(kind: Kind) -> Iterator[str]:
    if kind.status_subresource:
        yield "`/status`"
    if kind.scale is not None:
        yield "`/scale`"


def _objects(schema: Json, path: str) -> Iterator[str]:
    """A section for each object with fields; outer objects come first."""
    fields: Json = schema.get("properties", {})
    shown = {name: field for name, field in fields.items() if path or name in ("spec", "status")}
    if path:
        yield from (f"## {path}", "")
        if schema.get("description"):
            yield from (_prose(schema["description"]), "")
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            yield from ("Fields that are not in this table are kept as they are.", "")
        for message, rules in groupby(schema.get("x-rules", ()), key=lambda rule: rule.message):
            names = ", ".join(f"`{rule.field[1:]}`" for rule in rules if rule.field)
            yield from (f"Rule for {names}: {_prose(message)}." if names else f"Rule: {_prose(message)}.", "")
        required = schema.get("required", ())
        rows = [
            (f"`{name}`" + (" *" if name in required else ""), _type(field), _default(field), _told(field))
            for name, field in fields.items()
        ]
        if rows:
            yield from (*_table(("Field (* required)", "Type", "Default", ""), rows), "")
    for name, field in shown.items():
        inner, suffix = (field["items"], "[]") if "items" in field else (field, "")
        if inner.get("properties"):
            yield from _objects(inner, f"{path}.{name}{suffix}" if path else name)


def _type(schema: Json) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if "items" in schema:
        return f"list of {_type(schema['items'])}"
    if "additionalProperties" in schema:
        return f"map of {_type(schema['additionalProperties'])}"
    return str(schema.get("type", "any"))


def _default(schema: Json) -> str:
    value = schema.get("default")
    if value is None:
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _told(schema: Json) -> str:
    parts = [str(schema.get("description", ""))]
    if "enum" in schema:
        parts.append("One of " + ", ".join(f"`{value}`" for value in schema["enum"]) + ".")
    if "x-expected" in schema:
        parts.append(f"Form: {schema['x-expected']}.")
    elif schema.get("minimum", 0) > 0:
        parts.append(f"At least {schema['minimum']}.")
    if "maxItems" in schema:
        parts.append(f"At most {schema['maxItems']} entries.")
    return " ".join(part for part in parts if part)


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield _row(heads)
    yield _row(("---",) * len(heads))
    for row in rows:
        yield _row(row)


def _row(cells: Iterable[Any]) -> str:
    return "| " + " | ".join(_prose(str(cell)).replace("|", "\\|") for cell in cells) + " |"


def _prose(text: str) -> str:
    return " ".join(text.split())
