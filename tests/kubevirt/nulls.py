"""Adds null to a document in every field that it lacks."""

from __future__ import annotations

from typing import Any

from poolhouse.api.kubevirt.fields import declared_fields


def with_nulls(value: Any, type_name: str) -> Any:
    """The object with null in each field of its type that is absent, and in those of the objects in it."""
    fields = declared_fields(type_name)
    if isinstance(value, list):
        return [with_nulls(each, type_name) for each in value]
    if not fields or not isinstance(value, dict):
        return value
    found = dict.fromkeys(fields) | value
    return {name: with_nulls(each, fields[name].type) if name in fields else each for name, each in found.items()}
