"""Reads, searches and writes XML. Reading opens no file, network address or entity."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from lxml import etree

Element = etree._Element

_PARSER = etree.XMLParser(
    resolve_entities=False,
    no_network=True,
    load_dtd=False,
    dtd_validation=False,
    huge_tree=False,
    remove_comments=True,
    remove_pis=True,
    remove_blank_text=True,
)


def read(text: str) -> Element:
    return etree.fromstring(text.encode(), _PARSER)


def write(element: Element, *, pretty: bool = False) -> str:
    if pretty:
        etree.indent(element)
    return etree.tostring(element, encoding="unicode")


@dataclass(frozen=True)
class Step:
    tag: str
    attribute: str | None = None
    value: str | None = None

    def matches(self, element: Element) -> bool:
        return element.tag == self.tag and (self.attribute is None or element.get(self.attribute) == self.value)


@dataclass(frozen=True)
class XmlPath:
    """The path of a value below an element: elements, then an attribute or the text of the last element."""

    steps: tuple[Step, ...]
    attribute: str | None


_STEP = re.compile(r"([\w-]+)(?:\[@([\w-]+)='([^']*)'\])?")


@cache
def path(text: str) -> XmlPath:
    *steps, last = text.split("/")
    attribute = last[1:] if last.startswith("@") else None
    if attribute is None:
        steps.append(last)
    matches = [_STEP.fullmatch(step) for step in steps]
    return XmlPath(tuple(Step(*match.groups()) for match in matches if match is not None), attribute)


def find(parent: Element, steps: tuple[Step, ...]) -> Element | None:
    current: Element | None = parent
    for step in steps:
        current = next((child for child in current if step.matches(child)), None) if current is not None else None
    return current


def find_or_create(parent: Element, steps: tuple[Step, ...]) -> Element:
    """The element at a path; creates it, and the elements above it, where it does not exist."""
    for step in steps:
        child = next((child for child in parent if step.matches(child)), None)
        if child is None:
            child = etree.SubElement(parent, step.tag)
            if step.attribute is not None:
                child.set(step.attribute, step.value or "")
        parent = child
    return parent


def add(parent: Element, tag: str, text: str | None = None, **attributes: str) -> Element:
    child = etree.SubElement(parent, tag, attributes)
    child.text = text
    return child


def element(tag: str, text: str | None = None, **attributes: str) -> Element:
    made = etree.Element(tag, attributes)
    made.text = text
    return made
