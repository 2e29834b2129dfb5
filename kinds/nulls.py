"""Null means absent, as it does in Kubernetes' own kinds. A CRD refuses it, so it goes before the schema is asked."""

from __future__ import annotations

from typing import Any

from kinds.model import Json


def without_nulls(schema: Json, value: Any) -> Any:
    """The value without optional fields that are null; the same value where there are none."""
    if isinstance(value, list):
        inner = schema.get("items", {})
        items = [without_nulls(inner, item) for item in value]
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
        found[key] = old if inner is None else without_nulls(inner, old)
        changed = changed or found[key] is not old
    return found if changed else value
