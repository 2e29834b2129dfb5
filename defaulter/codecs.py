"""Codecs convert values between a VMI spec and the XML of a domain."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from poolhouse.api.apimachinery import mac_address
from poolhouse.api.apimachinery.quantity import to_int

Xml = str | Mapping[str, str]


@dataclass(frozen=True)
class Codec:
    """Converts values of one type. `encode` returns a text or all attributes of an element; `decode` is its inverse."""

    encode: Callable[[Any], Xml | None]
    decode: Callable[[Any], Any]
    accepts: Callable[[Any], bool]
    expected: str
    """the allowed values, in an error message after "must be" """
    is_element: bool = False
    """whether `encode` returns all attributes of an element, with the element's text under the key "" """


# Characters that XML 1.0 cannot contain, not even escaped.
INVALID_XML_CHARACTERS = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def is_xml_text(value: str) -> bool:
    return not INVALID_XML_CHARACTERS.search(value)


def _same(value: Any) -> Any:
    return value


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_boolean(value: Any) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _is_size(value: Any) -> bool:
    size = to_int(value)
    return size is not None and 0 < size < 2**63


def one_of(*values: str, renamed: Mapping[str, str] | None = None) -> Codec:
    """A codec for one of these words. `renamed` maps words to their spelling in XML."""
    names = {**{value: value for value in values}, **(renamed or {})}
    back = {theirs: ours for ours, theirs in names.items()}
    expected = "one of " + ", ".join(sorted(names))
    return Codec(names.__getitem__, back.get, lambda value: isinstance(value, str) and value in names, expected)


def switch(on: str, off: str) -> Codec:
    return Codec(lambda value: on if value else off, {on: True, off: False}.get, _is_boolean, "true or false")


def enabled(on: str = "on", off: str = "off", key: str = "enabled") -> Codec:
    """A codec for an object that is on unless its `key` is false: KubeVirt's `{}` means on."""
    return Codec(
        lambda value: off if value.get(key) is False else on,
        lambda value: {} if value == on else {key: False},
        lambda value: isinstance(value, dict) and isinstance(value.get(key), bool | None),
        f"an object such as {{{key}: true}}",
    )


def has_alias(word: str) -> Codec:
    """A codec for an object in the spec that is this word in the XML."""
    return Codec(lambda value: word, lambda value: {}, _is_object, "an object")


def _matching(pattern: str, expected: str, encode: Callable[[Any], Xml] = _same) -> Codec:
    whole = re.compile(pattern)
    return Codec(encode, _same, lambda value: isinstance(value, str) and bool(whole.fullmatch(value)), expected)


TEXT = Codec(
    _same, _same, lambda value: isinstance(value, str) and is_xml_text(value), "a string without control characters"
)
COUNT = Codec(str, int, _is_count, "a whole number of at least 0")
YES_NO, ON_OFF, STATE = switch("yes", "no"), switch("on", "off"), enabled()
# A codec for a field that says whether an XML element exists.
FLAG = Codec(lambda value: {} if value else None, lambda value: value is not None, _is_boolean, "true or false")
FEATURE = Codec(
    lambda value: None if value.get("enabled") is False else {}, lambda value: {}, STATE.accepts, STATE.expected
)
BYTES = Codec(
    lambda value: {"unit": "b", "": str(to_int(value))},
    lambda value: f"{int(value[''])}Ki" if value.get("unit") == "KiB" else None,
    _is_size,
    "a quantity such as 2Gi",
    is_element=True,
)
MAC = _matching(
    mac_address.PATTERN,
    "a MAC address such as 52:54:00:12:34:56",
    lambda value: value if ":" in value else mac_address.normalize(value),
)
UUID = _matching(
    "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "a UUID such as e4686d2c-6e8d-4335-b8fd-81bee22f4814"
)

_PCI = re.compile(r"([0-9a-fA-F]{4}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")
_PCI_PARTS = ("domain", "bus", "slot", "function")


def pci_attributes(value: str) -> dict[str, str]:
    match = _PCI.fullmatch(value)
    assert match is not None, value
    return {"type": "pci", **{part: f"0x{digits}" for part, digits in zip(_PCI_PARTS, match.groups(), strict=True)}}


def format_pci_address(attributes: Mapping[str, str]) -> str | None:
    """A PCI address in the format of `lspci`; None for an address of another type."""
    if attributes.get("type") != "pci":
        return None
    domain, bus, slot, function = (int(attributes.get(part, "0"), 16) for part in _PCI_PARTS)
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


PCI = Codec(
    pci_attributes,
    format_pci_address,
    lambda value: isinstance(value, str) and _PCI.fullmatch(value) is not None,
    "a PCI address such as 0000:01:00.0",
    is_element=True,
)


def normalize_address(address: Any) -> str:
    """A MAC or PCI address in the notation of libvirt, in lower case."""
    return mac_address.normalize(address)
