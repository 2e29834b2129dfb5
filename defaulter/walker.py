"""Applies the table of fields: writes the values of a spec into XML, and reads values of XML back into a spec."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from apimachinery.unstructured import Json, at
from defaulter import xml
from defaulter.fields import DeviceList, Field, Side
from defaulter.json_paths import Path, is_unset, parse_path
from defaulter.xml import Element


def iter_values(fields: Iterable[Field], source: Json) -> Iterator[tuple[Field, Path, Any]]:
    """The values that a spec sets."""
    for row in fields:
        if row.requires and not isinstance(at(source, *parse_path(row.requires)), dict):
            continue
        value = at(source, *parse_path(row.spec))
        if not is_unset(value):
            yield row, parse_path(row.spec), value


def write(fields: Iterable[Field], source: Json, element: Element) -> None:
    """Writes the values of a spec, or the defaults of unset fields, below an element."""
    for row in fields:
        if row.requires and not isinstance(at(source, *parse_path(row.requires)), dict):
            continue
        value = at(source, *parse_path(row.spec))
        value = row.default if is_unset(value) else value
        if value is None:
            continue
        encoded = row.codec.encode(value)
        if encoded is None:
            continue
        where = xml.path(row.xml)
        target = xml.find_or_create(element, where.steps)
        if where.attribute is not None and isinstance(encoded, str):
            target.set(where.attribute, encoded)
        elif isinstance(encoded, str):
            target.text = encoded
        else:
            target.attrib.update({name: text for name, text in encoded.items() if name})
            target.text = encoded.get("")


def read(fields: Iterable[Field], element: Element, source: Json) -> Iterator[tuple[Field, Path, Any]]:
    """The values of the XML that may be written into this spec."""
    for row in fields:
        if not row.from_libvirt or row.side is Side.HOST:
            continue
        if row.requires and not isinstance(at(source, *parse_path(row.requires)), dict):
            continue
        value = decoded(row, element)
        if value is not None:
            yield row, parse_path(row.spec), value


def decoded(row: Field, element: Element) -> Any:
    """The value of one field; None where the XML has none, or one that a spec cannot hold."""
    where = xml.path(row.xml)
    target = xml.find(element, where.steps)
    if target is None:
        return None
    if where.attribute is not None:
        text = target.get(where.attribute)
        return None if text is None else row.codec.decode(text)
    if row.codec.is_element:
        return row.codec.decode({**{str(k): str(v) for k, v in target.attrib.items()}, "": target.text or ""})
    return row.codec.decode(target.text or "")


def list_devices(devices: DeviceList, spec: Json) -> list[tuple[Path, Json]]:
    """The devices of a spec with their paths."""
    path = parse_path(devices.spec)
    value = at(spec, *path)
    if devices.is_single:
        return [(path, value)] if isinstance(value, dict) else []
    return [
        ((*path, i), item) for i, item in enumerate(value if isinstance(value, list) else ()) if isinstance(item, dict)
    ]
