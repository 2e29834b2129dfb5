"""Applies the table of fields: writes the values of a spec into XML, and reads values of XML back into a spec."""

from collections.abc import Iterable, Iterator
from typing import Any

from defaulter import xml
from defaulter.fields import DeviceList, Field, Side
from defaulter.json_paths import Path, is_unset, parse_path
from defaulter.xml import Element
from poolhouse.api.apimachinery.unstructured import Json, at, entries


def _applies(row: Field, source: Json) -> bool:
    return not row.requires or isinstance(at(source, *parse_path(row.requires)), dict)


def _value(row: Field, source: Json) -> Any:
    """The value of a field in a spec. Most fields of the table are in no spec, and found out by one look-up."""
    path = row.path
    return at(source, *path) if not path or path[0] in source else None


def iter_values(fields: Iterable[Field], source: Json) -> Iterator[tuple[Field, Path, Any]]:
    """The fields that a spec sets, with their paths and values."""
    for row in fields:
        value = _value(row, source)
        if not is_unset(value) and _applies(row, source):
            yield row, row.path, value


def write(fields: Iterable[Field], source: Json, element: Element) -> None:
    """Writes the values of a spec, and the defaults of unset fields, into an XML element."""
    for row in fields:
        value = _value(row, source)
        value = row.default if is_unset(value) else value
        if value is None or not _applies(row, source):
            continue
        encoded = row.codec.encode(value)
        if encoded is None:
            continue
        path, attribute = xml.split_path(row.xml)
        target = xml.find_or_create(element, path)
        if attribute is not None and isinstance(encoded, str):
            target.set(attribute, encoded)
        elif isinstance(encoded, str):
            target.text = encoded
        else:
            target.attrib.update({name: text for name, text in encoded.items() if name})
            target.text = encoded.get("")


def read(fields: Iterable[Field], element: Element, source: Json) -> Iterator[tuple[Path, Any]]:
    """Paths and values of the XML that may be written into the spec."""
    for row in fields:
        if row.from_libvirt and row.side is not Side.HOST and _applies(row, source):
            value = decode(row, element)
            if value is not None:
                yield row.path, value


def decode(row: Field, element: Element) -> Any:
    """The value of a field; None if the XML has no value or a value that a spec cannot hold."""
    path, attribute = xml.split_path(row.xml)
    target = element.find(path) if path else element
    if target is None:
        return None
    if attribute is not None:
        text = target.get(attribute)
        return None if text is None else row.codec.decode(text)
    if row.codec.is_element:
        return row.codec.decode({**{str(k): str(v) for k, v in target.attrib.items()}, "": target.text or ""})
    return row.codec.decode(target.text or "")


def list_devices(devices: DeviceList, spec: Json) -> list[tuple[Path, Json]]:
    """The devices of a spec with their paths."""
    path = parse_path(devices.spec)
    if devices.is_single:
        device = at(spec, *path)
        # `tpm: {enabled: false}` is no TPM (HasDevice in KubeVirt's pkg/tpm).
        return [(path, device)] if isinstance(device, dict) and device.get("enabled") is not False else []
    return [((*path, index), device) for index, device in entries(spec, *path)]
