"""Makes the structural OpenAPI v3 schema of a CRD from a model.

Before `rendered`, the schema has keys that only Poolhouse uses: `x-rules` (CEL rules of a model), `x-hints` (meanings
of unknown fields), `x-expected` (description of a valid value) and `x-model` (the model of a value that is a dict).
"""

from functools import cache
from typing import Any

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.model import Model, Rule

_KEPT = {
    "description", "type", "format", "enum", "default", "nullable", "items", "properties", "required",
    "additionalProperties", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties",
    "maxProperties", "pattern", "anyOf"
}  # fmt: skip
_SCALARS = (str, int, float, bool)


@cache
def structural(model: type[Model], *, defaults: bool = True) -> Json:
    """The schema of a model without references. Do not modify the result, because it is cached."""
    whole = model.model_json_schema(by_alias=True)
    return _node(whole, whole.get("$defs", {}), defaults)


def _node(node: Json, definitions: Json, defaults: bool) -> Json:
    node = _resolved(node, definitions)
    shaped = node.pop("x-model", None)
    if shaped is not None:
        node = {**structural(shaped, defaults=defaults), **node}
        return {key: value for key, value in node.items() if key not in ("default", "title")}
    if node.pop("x-set-at-creation", False):
        node.pop("default", None)
    if "const" in node:
        node["enum"] = [node.pop("const")]
    found: Json = {}
    for key, value in node.items():
        found |= _keyword(key, value, definitions, defaults)
    if found.get("format") == "int64":
        # The bounds of int64 are omitted: the API server checks them, and JSON numbers would not be exact.
        found = {key: value for key, value in found.items() if value not in (-(2**63), 2**63 - 1)}
    return found


def _keyword(key: str, value: Any, definitions: Json, defaults: bool) -> Json:
    """What becomes of one keyword of a schema in the structural schema."""
    match key:
        case "properties":
            return {key: {name: _node(inner, definitions, defaults) for name, inner in value.items()}}
        case "additionalProperties" if isinstance(value, bool):
            return {"x-kubernetes-preserve-unknown-fields": True} if value else {}
        case "items" | "additionalProperties":
            return {key: _node(value, definitions, defaults)}
        case "default":
            # Only scalars have defaults. A default strategy (`updateStrategy.proactive`) would remain if a user applies
            # another strategy.
            return {key: value} if defaults and isinstance(value, _SCALARS) else {}
    return {key: value} if key in _KEPT or key.startswith("x-") else {}


def _resolved(node: Json, definitions: Json) -> Json:
    """The node without references and without `null`, because optional fields are absent instead."""
    node = dict(node)
    while True:
        if "$ref" in node:
            inner = definitions[node.pop("$ref").rsplit("/", 1)[1]]
        elif "anyOf" in node and any(option.get("type") == "null" for option in node["anyOf"]):
            (inner,) = (option for option in node.pop("anyOf") if option.get("type") != "null")
        else:
            return node
        # Keywords of the field override keywords of its type.
        node = {**inner, **node}


def rendered(schema: Any) -> Any:
    """The schema for the API server."""
    if isinstance(schema, list):
        return [rendered(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: rendered(value) for key, value in schema.items() if not _private(key)}
    if schema.get("x-rules"):
        found["x-kubernetes-validations"] = [_validation(rule) for rule in schema["x-rules"]]
    if hints := schema.get("x-hints"):
        # The API server's strict decoding would refuse an unknown field before admission can name the right one. A
        # declared field reaches admission; the schema refuses it while admission is off.
        found["properties"] |= {
            name: {"description": not_a_field(hint, schema), "x-kubernetes-preserve-unknown-fields": True}
            for name, hint in hints.items()
        }
        found["not"] = {"anyOf": [{"required": [name]} for name in hints]}
    return found


def not_a_field(hint: str, schema: Json) -> str:
    """What to do instead of using an unknown field. A hint is the name of another field of the schema, or advice."""
    return f'is not a field here; use "{hint}"' if hint in schema["properties"] else f"is not a field here; {hint}"


def _private(key: Any) -> bool:
    return key in ("x-rules", "x-hints", "x-expected")


def _validation(rule: Rule) -> Json:
    found = {"rule": rule.cel, "message": rule.message}
    if rule.told is not None:
        found["messageExpression"] = rule.told[0]
    # The API server rejects a fieldPath in metadata.
    if rule.field and not rule.field.startswith(".metadata"):
        found["fieldPath"] = rule.field
    return found
