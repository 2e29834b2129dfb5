"""The fields that defaulting decides, as they stand in a document: devices by name, so that order means nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from defaulter.bounds import FILLABLE
from defaulter.paths import Json, get
from defaulter.places import locate


def decided(document: Json) -> dict[str, Any]:
    """By their place below the VMI's spec, such as `domain.devices.disks[root].disk.pciAddress`."""
    where = locate(document)
    spec = get(document, where.spec) if where is not None else None
    return dict(_leaves(spec, (), "")) if isinstance(spec, dict) else {}


def _leaves(value: Any, row: tuple[str, ...], shown: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from _leaves(child, (*row, key), f"{shown}.{key}" if shown else str(key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            name = child.get("name") if isinstance(child, dict) else None
            yield from _leaves(child, (*row, "*"), f"{shown}[{name if isinstance(name, str) else index}]")
    elif value is not None and any(row[:length] in FILLABLE for length in range(1, len(row) + 1)):
        yield shown, value
