"""Reads, searches and writes XML. Reading opens no file, network address or entity."""

import re
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


_STEP = re.compile(r"([\w-]+)(?:\[@([\w-]+)='([^']*)'\])?")


@cache
def split_path(path: str) -> tuple[str, str | None]:
    """The path of an element and the attribute with the value. The attribute is None if the text is the value."""
    above, _, last = path.rpartition("/")
    return (above, last[1:]) if last.startswith("@") else (path, None)


def find_or_create(parent: Element, path: str) -> Element:
    """The element at a path. Creates the element and its parents if they do not exist."""
    for step in path.split("/") if path else ():
        child = parent.find(step)
        if child is None:
            match = _STEP.fullmatch(step)
            assert match is not None, path
            child = etree.SubElement(parent, match[1], {match[2]: match[3]} if match[2] else {})
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
