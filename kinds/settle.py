"""Two spellings of the same thing, brought into the one that every reader takes.

Null means absent, as in Kubernetes' own kinds; the API server drops it on some ways in and refuses it on others. And
JSON has no integers: 3.0 is 3, but the scale subresource stumbles over it.
"""

from __future__ import annotations

from typing import Any

from apimachinery.unstructured import Json


def settled(schema: Json, value: Any) -> Any:
    """The value without optional fields that are null and with whole numbers whole; itself when nothing changes."""
    if isinstance(value, float) and schema.get("type") == "integer" and value.is_integer():
        return int(value)
    if isinstance(value, list):
        inner = schema.get("items", {})
        items = [settled(inner, item) for item in value]
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
        found[key] = old if inner is None else settled(inner, old)
        changed = changed or found[key] is not old
    return found if changed else value
