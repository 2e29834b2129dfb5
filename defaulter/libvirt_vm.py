"""Sets the defaults of a `VM` of `kubevirt.io/v1alpha1`, whose spec is a libvirt domain in JSON.

`libvirt_schema` maps each XML element to JSON, in both directions. libvirt gets the domain of the spec, and the values
that it adds are merged into the spec (`libvirt_merge`). No value that is set changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from defaulter import identity, validation, xml
from defaulter.domain import NAME, PLACEHOLDER_UUID
from defaulter.errors import DomainRejected, FieldError
from defaulter.json_paths import Path
from defaulter.libvirt_merge import our_alias
from defaulter.libvirt_placeholders import complete
from defaulter.libvirt_schema import DEVICES, DOMAIN, ElementSchema, Value
from defaulter.limits import MAX_LIST_ENTRIES
from defaulter.xml import Element
from poolhouse.api.apimachinery.problem import format_path
from poolhouse.api.apimachinery.unstructured import Json, at, entries

SPEC: Path = ("spec", "domain")

_PLAIN_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")


UNKNOWN_DEVICE = "is no device that the defaulter knows, and the addresses of the other devices depend on it"


def validate(given: Any, schema: ElementSchema = DOMAIN, path: Path = ()) -> Iterator[FieldError]:
    if schema.plain and not isinstance(given, dict):
        yield from _text_errors(given, schema.content, path)
        return
    if not isinstance(given, dict):
        yield FieldError(path, "must be an object")
        return
    yield from _attribute_errors(given, schema, path)
    if schema is DOMAIN.below["devices"]:
        yield from (FieldError((*path, key), UNKNOWN_DEVICE) for key in given if key not in schema.below)
    for key, inner, value in _elements(given, schema):
        if inner.many and (problem := _list_problem(value)):
            yield FieldError((*path, key), problem)
            continue
        for index, item in enumerate(value) if inner.many else ((None, value),):
            yield from validate(item, inner, (*path, key) if index is None else (*path, key, index))


def _attribute_errors(given: Json, schema: ElementSchema, path: Path) -> Iterator[FieldError]:
    """Checks the values of the element's attributes and its text."""
    for key, allowed in (*schema.attributes.items(), *([(schema.text, schema.content)] if schema.text else ())):
        # If a key names an attribute and an element, an object sets the element.
        if given.get(key) is not None and not (key in schema.below and isinstance(given[key], dict)):
            yield from _text_errors(given[key], allowed, (*path, key))


def _list_problem(value: Any) -> str:
    """Why the value cannot be the list of an element that may occur several times; "" if it can."""
    if not isinstance(value, list):
        return "must be a list"
    return f"has {len(value)} entries; at most {MAX_LIST_ENTRIES} are allowed" if len(value) > MAX_LIST_ENTRIES else ""


def is_valid(given: Any) -> bool:
    return isinstance(given, dict) and not any(validate(given))


def unknown_fields(given: Any, schema: ElementSchema = DOMAIN, path: Path = ()) -> Iterator[str]:
    """Paths of set fields that the table does not have, so that libvirt does not get them."""
    if not isinstance(given, dict):
        return
    known = frozenset(schema.keys())
    yield from (format_path((*path, key)) for key, value in given.items() if key not in known and value is not None)
    for key, inner, value in _elements(given, schema):
        for index, item in enumerate(value) if inner.many else ((None, value),):
            yield from unknown_fields(item, inner, (*path, key) if index is None else (*path, key, index))


def _elements(given: Json, schema: ElementSchema) -> Iterator[tuple[str, ElementSchema, Any]]:
    """The child elements that are set and that libvirt may get. If a key names an attribute and an element, an object
    sets the element."""
    for key, inner in schema.below.items():
        value = given.get(key)
        if value is not None and not inner.withheld and (key not in schema.attributes or isinstance(value, dict)):
            yield key, inner, value


def _text_errors(value: Any, allowed: Value, path: Path) -> Iterator[FieldError]:
    if isinstance(value, dict | list) or value is None:
        yield FieldError(path, "must be a string or a number")
    elif not allowed.accepts(_text(value)):
        yield FieldError(path, f"must be {allowed.expected}, not {validation.shown(value)}")


def build(given: Json, name: str = "") -> Element:
    """The libvirt domain of a spec. Its type is always qemu."""
    root = xml.element("domain", type="qemu")
    xml.add(root, "name", name if _PLAIN_NAME.fullmatch(name) else NAME)
    _write(root, given, DOMAIN)
    if root.find("uuid") is None:
        xml.add(root, "uuid", PLACEHOLDER_UUID)
    for key, schema in DEVICES.items():
        for index, element in enumerate(root.findall(f"devices/{schema.element}") if schema.many else ()):
            if "alias" in schema.below and element.find("alias") is None:
                xml.add(element, "alias", name=our_alias(key, index))
    return root


def _write(element: Element, given: Any, schema: ElementSchema) -> None:
    if not isinstance(given, dict):
        element.text = _text(given)
        return
    for key in schema.attributes:
        value = given.get(key)
        if value is not None and not isinstance(value, dict):
            element.set(key, _text(value))
    if schema.text and given.get(schema.text) is not None:
        element.text = _text(given[schema.text])
    for _, inner, value in _elements(given, schema):
        for item in value if inner.many else (value,):
            _write(xml.add(element, inner.element), item, inner)
    complete(element, given)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def add_identity(given: Json, seed: str, namespace: str, name: str) -> Json:
    """The spec with the UUID and the MAC addresses derived from the VM's name."""
    domain = dict(given)
    if not (at(domain, "uuid", "value") or domain.get("uuid")):
        domain["uuid"] = identity.firmware_id(seed, namespace, name, "uuid")
    interfaces = at(given, "devices", "interfaces")
    if interfaces:
        taken = frozenset(str(at(nic, "mac", "address")).lower() for _, nic in entries(interfaces))
        named = list(interfaces)
        for index, nic in enumerate(interfaces):
            if not at(nic, "mac", "address"):
                address = identity.mac_address(seed, namespace, name, f"interfaces[{index}]", taken)
                named[index] = {**nic, "mac": {**(nic.get("mac") or {}), "address": address}}
        domain["devices"] = {**domain["devices"], "interfaces": named}
    return domain


def locate_error(error: DomainRejected, given: Json) -> FieldError:
    """Converts libvirt's error to an error of the field that its message names, or of the spec."""
    sentence = str(error)
    paths: tuple[tuple[str, Path], ...] = (
        ("CPUs", ("vcpu",)),
        ("machine type", ("os", "type", "machine")),
        ("UEFI", ("os", "loader")),
        ("architecture", ("os", "type", "arch")),
        ("mac address", ("devices", "interfaces")),
        ("CPU", ("vcpu",)),
        ("emory", ("memory",)),
        ("uuid", ("uuid",)),
        ("disk", ("devices", "disks")),
    )
    path = next((path for word, path in paths if word in sentence and at(given, *path[:1]) is not None), ())
    return FieldError(path, sentence)
