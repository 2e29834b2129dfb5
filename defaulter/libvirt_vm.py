"""Sets the defaults of a `VM` of `kubevirt.io/v1alpha1`, whose spec is a libvirt domain in JSON.

One table maps each XML element to JSON, in both directions. The values that libvirt adds are merged into the spec, and
no value that is set changes. Devices are matched by an alias. Elements of the host (emulator, sources, drivers) are
written for libvirt, but not read back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from apimachinery.unstructured import Json, at, entries
from defaulter import identity, xml
from defaulter.codecs import INVALID_XML_CHARACTERS
from defaulter.domain import NAME, PLACEHOLDER_UUID
from defaulter.errors import DomainRejected, FieldError
from defaulter.json_paths import Path
from defaulter.xml import Element

API_VERSION = "kubevirt.io/v1alpha1"
SPEC: Path = ("spec", "domain")

_PLAIN_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class ElementSchema:
    """An XML element whose attributes and text are the keys of a JSON object."""

    element: str
    attributes: tuple[str, ...] = ()
    text: str | None = None
    """the JSON key of the element's text; an element with only text is a plain value in JSON"""
    below: Mapping[str, ElementSchema] = field(default_factory=dict)
    many: bool = False
    numeric: bool = False
    of_host: bool = False
    """whether the element describes the host and not the guest: written for libvirt, never read back"""

    @property
    def plain(self) -> bool:
        return self.text is not None and not self.attributes and not self.below


def _plain(element: str, **options: Any) -> ElementSchema:
    return ElementSchema(element, text="value", **options)


ADDRESS = ElementSchema(
    "address", ("type", "domain", "bus", "slot", "function", "multifunction", "controller", "target", "unit", "port")
)
ALIAS = ElementSchema("alias", ("name",))
BOOT = ElementSchema("boot", ("order",))
SIZE = ("unit",)
HOST_SOURCE = ElementSchema(
    "source", ("network", "bridge", "dev", "file", "mode", "path", "name", "protocol"), of_host=True
)


def _device(element: str, *attributes: str, many: bool = True, **below: ElementSchema) -> ElementSchema:
    device = {"address": ADDRESS, "alias": ALIAS, "boot": BOOT}
    return ElementSchema(element, attributes, below={**device, **below}, many=many)


_DEVICES: dict[str, ElementSchema] = {
    "emulator": _plain("emulator", of_host=True),
    "disks": _device(
        "disk",
        *("type", "device", "model"),
        driver=ElementSchema("driver", ("name", "type", "cache", "io"), of_host=True),
        source=HOST_SOURCE,
        target=ElementSchema("target", ("dev", "bus", "tray")),
        serial=_plain("serial"),
        readonly=ElementSchema("readonly"),
        shareable=ElementSchema("shareable"),
    ),
    "controllers": _device(
        "controller",
        *("type", "index", "model"),
        model=ElementSchema("model", ("name",)),
        target=ElementSchema("target", ("chassis", "port", "chassisNr", "busNr", "hotplug")),
    ),
    "interfaces": _device(
        "interface",
        "type",
        mac=ElementSchema("mac", ("address",)),
        source=HOST_SOURCE,
        model=ElementSchema("model", ("type",)),
        link=ElementSchema("link", ("state",)),
    ),
    "serials": _device("serial", "type", source=HOST_SOURCE, target=ElementSchema("target", ("type", "port"))),
    "consoles": ElementSchema(
        "console",
        ("type",),
        many=True,
        below={"alias": ALIAS, "source": HOST_SOURCE, "target": ElementSchema("target", ("type", "port"))},
    ),
    "channels": _device("channel", "type", source=HOST_SOURCE, target=ElementSchema("target", ("type", "name"))),
    "inputs": _device("input", "type", "bus", "model"),
    "graphics": ElementSchema("graphics", ("type", "autoport", "port", "listen"), many=True, of_host=True),
    "sounds": _device("sound", "model"),
    "videos": _device("video", model=ElementSchema("model", ("type", "vram", "heads", "primary"))),
    "watchdogs": _device("watchdog", "model", "action"),
    "rngs": _device("rng", "model", backend=ElementSchema("backend", ("model",), text="source", of_host=True)),
    "panics": _device("panic", "model"),
    "memballoon": _device("memballoon", "model", many=False),
}

DOMAIN = ElementSchema(
    "domain",
    below={
        "uuid": _plain("uuid"),
        "memory": ElementSchema("memory", SIZE, "value", numeric=True),
        "currentMemory": ElementSchema("currentMemory", SIZE, "value", numeric=True),
        "vcpu": ElementSchema("vcpu", ("placement", "current"), "value", numeric=True),
        "os": ElementSchema(
            "os",
            below={
                "type": ElementSchema("type", ("arch", "machine"), "os"),
                "bootOrder": ElementSchema("boot", ("dev",), many=True),
                "kernel": _plain("kernel", of_host=True),
                "initrd": _plain("initrd", of_host=True),
                "cmdline": _plain("cmdline"),
            },
        ),
        "features": ElementSchema("features", below={name: ElementSchema(name) for name in ("acpi", "apic", "pae")}),
        "cpu": ElementSchema(
            "cpu",
            ("mode", "match", "check"),
            below={
                "model": ElementSchema("model", ("fallback",), "name"),
                "topology": ElementSchema("topology", ("sockets", "dies", "cores", "threads")),
                "features": ElementSchema("feature", ("name", "policy"), many=True),
            },
        ),
        "clock": ElementSchema("clock", ("offset",)),
        "onPoweroff": _plain("on_poweroff"),
        "onReboot": _plain("on_reboot"),
        "onCrash": _plain("on_crash"),
        "devices": ElementSchema("devices", below=_DEVICES),
    },
)


def is_libvirt_vm(document: Json) -> bool:
    return document.get("apiVersion") == API_VERSION and document.get("kind") == "VM"


def validate(given: Any, schema: ElementSchema = DOMAIN, path: Path = ()) -> Iterator[FieldError]:
    if schema.plain and not isinstance(given, dict):
        yield from _text_errors(given, path)
        return
    if not isinstance(given, dict):
        yield FieldError(path, "must be an object")
        return
    for key in (*schema.attributes, *([schema.text] if schema.text else ())):
        if given.get(key) is not None:
            yield from _text_errors(given[key], (*path, key))
    for key, inner, value in _elements(given, schema):
        if inner.many and not isinstance(value, list):
            yield FieldError((*path, key), "must be a list")
            continue
        for index, item in enumerate(value) if inner.many else ((None, value),):
            yield from validate(item, inner, (*path, key) if index is None else (*path, key, index))


def _elements(given: Json, schema: ElementSchema) -> Iterator[tuple[str, ElementSchema, Any]]:
    """The child elements that are set. If a key names an attribute and an element, an object sets the element."""
    for key, inner in schema.below.items():
        value = given.get(key)
        if value is not None and (key not in schema.attributes or isinstance(value, dict)):
            yield key, inner, value


def _text_errors(value: Any, path: Path) -> Iterator[FieldError]:
    if isinstance(value, dict | list) or value is None:
        yield FieldError(path, "must be a string or a number")
    elif isinstance(value, str) and INVALID_XML_CHARACTERS.search(value):
        yield FieldError(path, "must be a string without control characters")


def build(given: Json, name: str = "") -> Element:
    """The libvirt domain of a spec. Its type is always qemu."""
    root = xml.element("domain", type="qemu")
    xml.add(root, "name", name if _PLAIN_NAME.fullmatch(name) else NAME)
    _write(root, given, DOMAIN)
    if root.find("uuid") is None:
        xml.add(root, "uuid", PLACEHOLDER_UUID)
    for key, schema in _DEVICES.items():
        for index, element in enumerate(root.findall(f"devices/{schema.element}") if schema.many else ()):
            if "alias" in schema.below and element.find("alias") is None:
                xml.add(element, "alias", name=_alias(key, index))
    return root


def _alias(key: str, index: int) -> str:
    return f"ua-given-{key}-{index}"


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


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def merge(given: Any, element: Element, schema: ElementSchema = DOMAIN) -> Any:
    """The spec, with libvirt's values for unset fields."""
    if schema.plain and not isinstance(given, dict):
        return _value(element.text, schema) if given is None else given
    result = dict(given or {})
    for key in schema.attributes:
        if key not in result and element.get(key) is not None:
            result[key] = element.get(key)
    if schema.text and schema.text not in result and element.text:
        result[schema.text] = _value(element.text, schema)
    for key, inner in schema.below.items():
        if inner.of_host or (key in schema.attributes and key in result):
            continue
        found = element.findall(inner.element)
        if inner.many:
            items = list(_items(key, result.get(key) or [], found, inner))
            if items:
                result[key] = items
        elif found:
            result[key] = merge(result.get(key), found[0], inner)
    if schema is ALIAS and str(result.get("name", "")).startswith("ua-given-"):
        return None
    return {key: value for key, value in result.items() if value is not None or key in (given or {})}


def _items(key: str, given: list[Any], found: list[Element], schema: ElementSchema) -> Iterator[Any]:
    """The items of a list: the spec's devices merged with their elements, then the devices that libvirt added."""
    named = {alias.get("name"): element for element in found for alias in element.iterfind("alias")}
    taken = []
    for index, item in enumerate(given):
        if "alias" in schema.below:
            element = named.get(str(at(item, "alias", "name") or _alias(key, index)))
        else:
            element = found[index] if index < len(found) else None
        taken.append(element)
        yield item if element is None else merge(item, element, schema)
    for element in found:
        if element not in taken:
            yield merge(None, element, schema)


def _value(text: str | None, schema: ElementSchema) -> Any:
    return int(text) if schema.numeric and text and text.isdigit() else text


def add_identity(given: Json, seed: str, namespace: str, name: str) -> Json:
    """The spec with the UUID and the MAC addresses derived from the VM's name."""
    domain = dict(given)
    domain.setdefault("uuid", identity.firmware_id(seed, namespace, name, "uuid"))
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
        ("architecture", ("os", "type", "arch")),
        ("mac address", ("devices", "interfaces")),
        ("CPU", ("vcpu",)),
        ("emory", ("memory",)),
        ("uuid", ("uuid",)),
        ("disk", ("devices", "disks")),
    )
    path = next((path for word, path in paths if word in sentence and at(given, *path[:1]) is not None), ())
    return FieldError(path, sentence)
