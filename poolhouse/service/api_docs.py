"""Renders an OpenAPI document as one HTML page that loads nothing else, for clusters without internet access."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

Json = Mapping[str, Any]

STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}td,th{border:1px solid #999;padding:.2em .6em;text-align:left}"
)


def page(openapi: Json) -> str:
    """The HTML page: all operations with parameters, request and responses, then all schemas with their fields."""
    title = escape(openapi["info"]["title"])
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    return "\n".join([head, f"<h1>{title}</h1>", *_operations(openapi), *_schemas(openapi), "</html>"])


def _operations(openapi: Json) -> Iterator[str]:
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
            yield f"<p>{escape(operation.get('description') or operation.get('summary') or '')}</p>"
            rows = [
                (f"{each['in']} {each['name']}", _type(each["schema"]), each.get("description", ""))
                for each in operation.get("parameters", ())
            ]
            if body := operation.get("requestBody"):
                rows.append(("body", _content(body), body.get("description", "")))
            rows += [(code, _content(each), each["description"]) for code, each in operation["responses"].items()]
            yield from _table(("part", "type", "meaning"), rows)


def _schemas(openapi: Json) -> Iterator[str]:
    for name, schema in openapi.get("components", {}).get("schemas", {}).items():
        yield f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{escape(schema.get("description", ""))}</p>'
        required = schema.get("required", ())
        yield from _table(
            ("field", "type", "meaning"),
            (
                (field + ("" if field in required else " (optional)"), _type(each), each.get("description", ""))
                for field, each in schema.get("properties", {}).items()
            ),
        )


def _table(columns: tuple[str, ...], rows: Any) -> Iterator[str]:
    """An HTML table. The second column of the rows must be HTML."""
    yield "<table><tr>" + "".join(f"<th>{each}</th>" for each in columns) + "</tr>"
    for name, kind, meaning in rows:
        yield f"<tr><td><code>{escape(name)}</code></td><td>{kind}</td><td>{escape(meaning)}</td></tr>"
    yield "</table>"


def _content(part: Json) -> str:
    return "<br>".join(
        f"{escape(media)}: {_type(each.get('schema', {}))}" for media, each in part.get("content", {}).items()
    )


def _type(schema: Json) -> str:
    """A short description of a schema, with a link to each schema that it names."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(map(_type, choices))
    if "enum" in schema:
        return " or ".join(f"<code>{escape(str(each))}</code>" for each in schema["enum"])
    if "const" in schema:
        return f"<code>{escape(str(schema['const']))}</code>"
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema.get('items', {}))}"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"map of string to {_type(schema['additionalProperties'])}"
        case str(kind):
            return kind
    return "any"
