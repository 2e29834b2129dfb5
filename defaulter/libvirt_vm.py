"""Sets the defaults of a `VM` of `kubevirt.io/v1alpha1`, whose spec is a libvirt domain in JSON.

One table maps each XML element to JSON, in both directions. The values that libvirt adds are merged into the spec, and
no value that is set changes. Devices are matched by an alias.

The author of a spec need not have any right on this host. libvirt therefore gets only the values that the table lists,
and each must be a word or a number, which no path can be. Elements of the host (emulator, kernel, sources, drivers) are
withheld: libvirt would run an emulator, and its errors would say which files exist. Placeholders stand for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from defaulter import identity, validation, xml
from defaulter.domain import NAME, PLACEHOLDER_UUID
from defaulter.errors import DomainRejected, FieldError
from defaulter.hook import ADDRESS_BOUNDS
from defaulter.json_paths import Path
from defaulter.limits import MAX_DEVICES, MAX_VCPUS
from defaulter.xml import Element
from poolhouse.api.apimachinery.unstructured import Json, at, entries

API_VERSION = "kubevirt.io/v1alpha1"
SPEC: Path = ("spec", "domain")

_PLAIN_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class Value:
    """The values of an attribute or a text that libvirt may get."""

    pattern: re.Pattern[str]
    expected: str
    """the allowed values, in an error message after "must be" """
    most: int | None = None
    """bound of a number"""

    def accepts(self, text: str) -> bool:
        if not self.pattern.fullmatch(text):
            return False
        return self.most is None or int(text, 16 if text.startswith("0x") else 10) <= self.most


def _up_to(most: int) -> Value:
    return Value(re.compile(r"0x[0-9a-fA-F]{1,8}|[0-9]{1,18}"), f"a number of at most {most}", most)


WORD = Value(re.compile(r"[A-Za-z0-9_.:+-]{1,128}"), "a word of letters, digits and the characters _ . : + -")
SIZE = Value(re.compile(r"[0-9]{1,18}"), "a number of at most 18 digits")
DISK_NAME = Value(re.compile(r"(fd|hd|sd|vd|xvd|ubd)[a-z][a-z]?[0-9]{0,2}"), "the name of a disk such as vda or sdaa")
SERIAL = Value(
    re.compile(r"[A-Za-z0-9_.:+ -]{1,128}"), "a text of letters, digits, spaces and the characters _ . : + -"
)


@dataclass(frozen=True)
class ElementSchema:
    """An XML element whose attributes and text are the keys of a JSON object."""

    element: str
    attributes: Mapping[str, Value] = field(default_factory=dict)
    text: str | None = None
    """the JSON key of the element's text; an element with only text is a plain value in JSON"""
    content: Value = WORD
    """values of the element's text"""
    below: Mapping[str, ElementSchema] = field(default_factory=dict)
    many: bool = False
    withheld: bool = False
    """whether the element describes the host and not the guest: libvirt never gets it, and it is never read back"""

    @property
    def is_number(self) -> bool:
        return self.content is SIZE or self.content.most is not None

    @property
    def plain(self) -> bool:
        return self.text is not None and not self.attributes and not self.below


def _words(*names: str) -> dict[str, Value]:
    return dict.fromkeys(names, WORD)


# Bounds of numbers: libvirt adds all controllers and devices up to an index, and searches for free places one by one.

BOUNDS: Mapping[str, int] = {
    **ADDRESS_BOUNDS,
    "order": 2**31 - 1,  # QEMU: bootindex
    "vram": 1024**2,  # KiB
    "heads": 16,  # QEMU: max_outputs
    "current": MAX_VCPUS,
    "sockets": MAX_VCPUS,
    "dies": MAX_VCPUS,
    "cores": MAX_VCPUS,
    "threads": MAX_VCPUS,
}


def _numbers(*names: str) -> dict[str, Value]:
    return {name: _up_to(BOUNDS[name]) for name in names}


def _plain(element: str, content: Value = WORD, *, withheld: bool = False) -> ElementSchema:
    return ElementSchema(element, text="value", content=content, withheld=withheld)


def _withheld(element: str) -> ElementSchema:
    return ElementSchema(element, withheld=True)


def _size(element: str) -> ElementSchema:
    return ElementSchema(element, _words("unit"), "value", SIZE)


ADDRESS = ElementSchema(
    "address",
    {
        **_words("type"),
        **_numbers("domain", "bus", "slot", "function"),
        **_words("multifunction"),
        **_numbers("controller", "target", "unit"),
        **_words("port"),
    },
)
ALIAS = ElementSchema("alias", _words("name"))
BOOT = ElementSchema("boot", _numbers("order"))
SOURCE = _withheld("source")
PORT = ElementSchema("target", {**_words("type"), **_numbers("port")})


def _device(
    element: str, attributes: Mapping[str, Value] | None = None, *, many: bool = True, **below: ElementSchema
) -> ElementSchema:
    device = {"address": ADDRESS, "alias": ALIAS, "boot": BOOT}
    return ElementSchema(element, attributes or {}, below={**device, **below}, many=many)


_DEVICES: dict[str, ElementSchema] = {
    "emulator": _withheld("emulator"),
    "disks": _device(
        "disk",
        _words("type", "device", "model"),
        driver=_withheld("driver"),
        source=SOURCE,
        target=ElementSchema("target", {"dev": DISK_NAME, **_words("bus", "tray")}),
        serial=_plain("serial", SERIAL),
        readonly=ElementSchema("readonly"),
        shareable=ElementSchema("shareable"),
    ),
    "controllers": _device(
        "controller",
        {**_words("type"), **_numbers("index"), **_words("model")},
        model=ElementSchema("model", _words("name")),
        target=ElementSchema("target", {**_numbers("chassis", "port", "chassisNr", "busNr"), **_words("hotplug")}),
    ),
    "interfaces": _device(
        "interface",
        _words("type"),
        mac=ElementSchema("mac", _words("address")),
        source=SOURCE,
        model=ElementSchema("model", _words("type")),
        link=ElementSchema("link", _words("state")),
    ),
    "serials": _device("serial", _words("type"), source=SOURCE, target=PORT),
    "consoles": ElementSchema(
        "console", _words("type"), many=True, below={"alias": ALIAS, "source": SOURCE, "target": PORT}
    ),
    "channels": _device(
        "channel", _words("type"), source=SOURCE, target=ElementSchema("target", _words("type", "name"))
    ),
    "inputs": _device("input", _words("type", "bus", "model")),
    "graphics": ElementSchema("graphics", _words("type"), many=True),
    "sounds": _device("sound", _words("model")),
    "videos": _device(
        "video",
        model=ElementSchema("model", {**_words("type"), **_numbers("vram", "heads"), **_words("primary")}),
    ),
    "watchdogs": _device("watchdog", _words("model", "action")),
    "rngs": _device("rng", _words("model"), backend=_withheld("backend")),
    "panics": _device("panic", _words("model")),
    "memballoon": _device("memballoon", _words("model"), many=False),
}

DOMAIN = ElementSchema(
    "domain",
    below={
        "uuid": _plain("uuid"),
        "memory": _size("memory"),
        "currentMemory": _size("currentMemory"),
        "vcpu": ElementSchema("vcpu", {**_words("placement"), **_numbers("current")}, "value", _up_to(MAX_VCPUS)),
        "os": ElementSchema(
            "os",
            below={
                "type": ElementSchema("type", _words("arch", "machine"), "os"),
                "bootOrder": ElementSchema("boot", _words("dev"), many=True),
                "kernel": _withheld("kernel"),
                "initrd": _withheld("initrd"),
                "cmdline": _withheld("cmdline"),
            },
        ),
        "features": ElementSchema("features", below={name: ElementSchema(name) for name in ("acpi", "apic", "pae")}),
        "cpu": ElementSchema(
            "cpu",
            _words("mode", "match", "check"),
            below={
                "model": ElementSchema("model", _words("fallback"), "name"),
                "topology": ElementSchema("topology", _numbers("sockets", "dies", "cores", "threads")),
                "features": ElementSchema("feature", _words("name", "policy"), many=True),
            },
        ),
        "clock": ElementSchema("clock", _words("offset")),
        "onPoweroff": _plain("on_poweroff"),
        "onReboot": _plain("on_reboot"),
        "onCrash": _plain("on_crash"),
        "devices": ElementSchema("devices", below=_DEVICES),
    },
)


# Placeholders for withheld elements, which libvirt does not open when it defines a domain.

_SOURCES: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("interface", "network"): {"network": "default"},
    ("interface", "bridge"): {"bridge": "bridge"},
    ("interface", "direct"): {"dev": "device", "mode": "vepa"},
    ("interface", "internal"): {"name": "network"},
    ("interface", "vdpa"): {"dev": "/source"},
    **{
        (element, kind): {"path": "/source"}
        for element in ("serial", "console", "channel")
        for kind in ("dev", "file", "pipe")
    },
    **{(element, "unix"): {"mode": "bind", "path": "/source"} for element in ("serial", "console", "channel")},
}
"""attributes of the source of a device, by its element and type; other types need no source"""


def _add_source(element: Element, given: Json) -> None:
    attributes = _SOURCES.get((element.tag, element.get("type", "")))
    if attributes is not None and given.get("source") is not None:
        xml.add(element, "source", **attributes)


def _complete_disk(element: Element, given: Json) -> None:
    attribute, kind = ("dev", "block") if element.get("device") == "lun" else ("file", "file")
    element.set("type", kind)
    if given.get("source") is not None:
        xml.add(element, "source", **{attribute: "/source"})


def _complete_rng(element: Element, given: Json) -> None:
    xml.add(element, "backend", "/dev/urandom", model="random")


def _complete_os(element: Element, given: Json) -> None:
    for name in ("kernel", "initrd"):
        if given.get(name) is not None:
            xml.add(element, name, f"/{name}")


_COMPLETE: Mapping[str, Callable[[Element, Json], None]] = {
    "disk": _complete_disk,
    "rng": _complete_rng,
    "os": _complete_os,
    **dict.fromkeys(("interface", "serial", "console", "channel"), _add_source),
}


def is_libvirt_vm(document: Json) -> bool:
    return document.get("apiVersion") == API_VERSION and document.get("kind") == "VM"


def validate(given: Any, schema: ElementSchema = DOMAIN, path: Path = ()) -> Iterator[FieldError]:
    if schema.plain and not isinstance(given, dict):
        yield from _text_errors(given, schema.content, path)
        return
    if not isinstance(given, dict):
        yield FieldError(path, "must be an object")
        return
    for key, allowed in (*schema.attributes.items(), *([(schema.text, schema.content)] if schema.text else ())):
        # If a key names an attribute and an element, an object sets the element.
        if given.get(key) is not None and not (key in schema.below and isinstance(given[key], dict)):
            yield from _text_errors(given[key], allowed, (*path, key))
    for key, inner, value in _elements(given, schema):
        if inner.many and not isinstance(value, list):
            yield FieldError((*path, key), "must be a list")
            continue
        if inner.many and len(value) > MAX_DEVICES:
            yield FieldError((*path, key), f"has {len(value)} entries; at most {MAX_DEVICES} are allowed")
            continue
        for index, item in enumerate(value) if inner.many else ((None, value),):
            yield from validate(item, inner, (*path, key) if index is None else (*path, key, index))


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
    complete = _COMPLETE.get(schema.element)
    if complete is not None:
        complete(element, given)


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
        if inner.withheld or (key in schema.attributes and key in result):
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
    return int(text) if schema.is_number and text and text.isdigit() else text


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
