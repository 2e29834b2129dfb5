"""Codecs: how a value is written in a VMI spec and in the XML of a domain, in both directions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from apimachinery.quantity import to_int

Xml = str | Mapping[str, str]


@dataclass(frozen=True)
class Codec:
    """`encode` returns a text, or all attributes of an element. `decode` is its inverse."""

    encode: Callable[[Any], Xml | None]
    decode: Callable[[Any], Any]
    accepts: Callable[[Any], bool]
    expected: str
    """what an error message says after "must be" """
    is_element: bool = False
    """encoded as all attributes of an element, with its text under the key "" """


# XML 1.0 cannot hold these characters, not even escaped.
INVALID_XML_CHARACTERS = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def is_xml_text(value: str) -> bool:
    return not INVALID_XML_CHARACTERS.search(value)


def _string(value: Any) -> bool:
    return isinstance(value, str) and is_xml_text(value)


def _same(value: Any) -> Any:
    return value


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def one_of(*values: str, renamed: Mapping[str, str] | None = None) -> Codec:
    """One of these words; `renamed` has the words that XML spells differently."""
    names = {**{value: value for value in values}, **(renamed or {})}
    back = {theirs: ours for ours, theirs in names.items()}
    return Codec(
        lambda value: names[value], back.get, lambda value: isinstance(value, str) and value in names, _list(names)
    )


def _list(names: Mapping[str, str]) -> str:
    return "one of " + ", ".join(sorted(names))


TEXT = Codec(_same, _same, _string, "a string without control characters")
COUNT = Codec(str, int, _count, "a whole number, not negative")


def switch(on: str, off: str) -> Codec:
    return Codec(
        lambda value: on if value else off,
        {on: True, off: False}.get,
        lambda value: isinstance(value, bool),
        "true or false",
    )


YES_NO = switch("yes", "no")
ON_OFF = switch("on", "off")


def enabled(on: str = "on", off: str = "off") -> Codec:
    """KubeVirt's `{}` and `{enabled: true}` both mean on."""
    return Codec(
        lambda value: on if value.get("enabled") is not False else off,
        lambda value: {} if value == on else {"enabled": False},
        lambda value: isinstance(value, dict) and isinstance(value.get("enabled"), bool | None),
        "an object such as {enabled: true}",
    )


STATE = enabled()


def _element(value: Any) -> Xml | None:
    return {} if value else None


# A field that says whether an element exists.
FLAG = Codec(_element, lambda value: value is not None, lambda value: isinstance(value, bool), "true or false")
FEATURE = Codec(
    lambda value: {} if value.get("enabled") is not False else None, lambda value: {}, STATE.accepts, STATE.expected
)


def has_alias(word: str) -> Codec:
    """An object whose existence is this word in the XML."""
    return Codec(lambda value: word, lambda value: {}, lambda value: isinstance(value, dict), "an object")


def _bytes(value: Any) -> bool:
    size = to_int(value)
    return size is not None and 0 < size < 2**63


BYTES = Codec(
    lambda value: {"unit": "b", "": str(to_int(value))},
    lambda value: f"{int(value[''])}Ki" if value.get("unit") == "KiB" else None,
    _bytes,
    "a quantity such as 2Gi",
    is_element=True,
)


_PCI = re.compile(r"([0-9a-fA-F]{4}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")
PCI_ADDRESS_PARTS = ("domain", "bus", "slot", "function")


def pci_attributes(value: str) -> dict[str, str]:
    match = _PCI.fullmatch(value)
    assert match is not None, value
    return {
        "type": "pci",
        **{part: f"0x{digits}" for part, digits in zip(PCI_ADDRESS_PARTS, match.groups(), strict=True)},
    }


def _pci_text(attributes: Mapping[str, str]) -> str | None:
    if attributes.get("type") != "pci" or not all(part in attributes for part in PCI_ADDRESS_PARTS):
        return None
    domain, bus, slot, function = (int(attributes[part], 16) for part in PCI_ADDRESS_PARTS)
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def normalize_address(address: Any) -> str:
    """A MAC address may have capitals and dashes, a PCI address capitals."""
    return str(address).lower().replace("-", ":")


PCI = Codec(
    pci_attributes,
    _pci_text,
    lambda value: isinstance(value, str) and _PCI.fullmatch(value) is not None,
    "a PCI address such as 0000:01:00.0",
    is_element=True,
)

_MAC = re.compile(r"[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}")
MAC = Codec(
    lambda value: value.replace("-", ":"),
    _same,
    lambda value: isinstance(value, str) and _MAC.fullmatch(value) is not None,
    "a MAC address such as 52:54:00:12:34:56",
)

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
UUID = Codec(
    _same,
    _same,
    lambda value: isinstance(value, str) and _UUID.fullmatch(value) is not None,
    "a UUID such as e4686d2c-6e8d-4335-b8fd-81bee22f4814",
)
