"""Fills what a libvirt-shaped spec leaves unset, with the values of libvirt's domain or of the stored spec.

A value that is set never changes. The items of a list are matched by their aliases. libvirt drops some aliases, and a
stored spec has only those of its author. An item without one is matched with the item of the most equal values among
those that contradict none of its values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from defaulter.libvirt_schema import ALIAS, DOMAIN, SIZE, ElementSchema
from defaulter.xml import Element
from poolhouse.api.apimachinery.unstructured import Json, at, typed

_OUR_ALIAS = "ua-given-"
KEPT = ("controllers", "hubs", "memballoon")
"""devices that libvirt adds for others. Those of the stored VM stay, because addresses of devices depend on them."""


def our_alias(key: str, index: int) -> str:
    """The alias of a device without one, by which the device is found in libvirt's domain."""
    return f"{_OUR_ALIAS}{key}-{index}"


def read(element: Element, schema: ElementSchema = DOMAIN) -> Any:
    """The element as JSON, as far as the table has it."""
    if schema.plain:
        return _value(element.text, schema)
    found: Json = {key: element.get(key) for key in schema.attributes if element.get(key) is not None}
    if schema.text and element.text:
        found[schema.text] = _value(element.text, schema)
    for key, inner in schema.below.items():
        # If a key names an attribute and an element, an object sets the element.
        if not inner.withheld and key not in found:
            items = [read(each, inner) for each in element.iterfind(inner.element)]
            if items:
                found[key] = items if inner.many else items[0]
    return found


def _value(text: str | None, schema: ElementSchema) -> Any:
    return int(text) if schema.is_number and text and text.isdigit() else text


def with_libvirt_values(given: Json, domain: Element) -> Json:
    """The spec with every value that libvirt chose, and with the devices that libvirt added."""
    return _fill(given, read(domain), DOMAIN, _fill_devices)


FillList = Callable[[str, list[Any], list[Any], ElementSchema], Iterator[Any]]


def _fill(given: Json, found: Json, schema: ElementSchema, fill_list: FillList) -> Json:
    result = dict(given)
    for key, value in found.items():
        inner, present = schema.below.get(key), result.get(key)
        if inner is None:
            result[key] = value if present is None else present
        elif inner.many:
            result[key] = list(fill_list(key, present or [], value, inner))
        elif present is None or _is_unit_alone(present, inner):
            result[key] = value
        elif isinstance(present, dict) and not inner.withheld:
            below: Json = value if isinstance(value, dict) else {inner.text or "": value}
            result[key] = _fill(present, below, inner, fill_list)
    return result


def _is_unit_alone(size: Any, schema: ElementSchema) -> bool:
    """Whether a size has no value, so that libvirt's value would get another unit than libvirt's."""
    return schema.content is SIZE and isinstance(size, dict) and size.get(schema.text or "") is None


def _fill_devices(key: str, given: list[Any], found: list[Any], schema: ElementSchema) -> Iterator[Any]:
    """The items of the spec, then those that libvirt added. A console that libvirt added comes first: it is a serial
    port, and only the first console can be one."""
    matches = match(given, found, schema, lambda index: our_alias(key, index))
    added = [_without_our_alias(each) for index, each in enumerate(found) if index not in matches]
    if key == "consoles":
        yield from added
    for item, at_index in zip(given, matches, strict=True):
        yield item if at_index is None else _fill(item, _without_our_alias(found[at_index]), schema, _fill_devices)
    if key != "consoles":
        yield from added


def _without_our_alias(item: Any) -> Any:
    if str(at(item, "alias", "name") or "").startswith(_OUR_ALIAS):
        return {key: value for key, value in item.items() if key != "alias"}
    return item


def with_stored_values(given: Json, old: Json) -> Json:
    """The spec with the values of the stored one. An object whose values the author changed is chosen anew."""
    if (
        equal_values(at(given, "os", "type") or {}, at(old, "os", "type") or {}, DOMAIN.below["os"].below["type"])
        is None
    ):
        old = _identity(old)  # the devices of another machine have other addresses
    result = dict(given)
    for key, value in old.items():
        schema = DOMAIN.below.get(key)
        if schema is None or schema.withheld or (key == "currentMemory" and _differ(given, old, "memory")):
            continue
        if key == "devices":
            result[key] = _stored_devices(typed(dict, given, key) or {}, typed(dict, old, key) or {})
        elif given.get(key) is None:
            result[key] = value
        elif isinstance(value, dict) and not _differ(given, old, key):
            result[key] = _fill(given[key], value, schema, _fill_stored_items)
    return result


def _identity(old: Json) -> Json:
    nics = typed(list, old, "devices", "interfaces") or []
    known = [{key: each[key] for key in ("mac", "alias", "source", "type") if key in each} for each in nics]
    return {"uuid": old.get("uuid"), "devices": {"interfaces": known}}


def _differ(given: Json, old: Json, key: str) -> bool:
    return equal_values(given.get(key) or {}, old.get(key) or {}, DOMAIN.below[key]) is None


def _stored_devices(given: Json, old: Json) -> Json:
    result = dict(given)
    for key, value in old.items():
        schema = DOMAIN.below["devices"].below.get(key)
        if schema is None or schema.withheld or (given.get(key) is None and key not in KEPT):
            continue
        if not schema.many:
            differs = equal_values(given.get(key) or {}, value, schema) is None
            result[key] = given[key] if differs else _fill(given.get(key) or {}, value, schema, _fill_stored_items)
        elif given.get(key) is None:
            result[key] = value
        elif isinstance(given[key], list) and isinstance(value, list):
            result[key] = list(_fill_stored_items(key, given[key], value, schema))
    return result


def _fill_stored_items(key: str, given: list[Any], found: list[Any], schema: ElementSchema) -> Iterator[Any]:
    matches = match(given, found, schema)
    for item, at_index in zip(given, matches, strict=True):
        stored = found[at_index] if at_index is not None else {}
        differs = equal_values(item, stored, schema) is None
        yield item if differs else _fill(item, stored, schema, _fill_stored_items)
    if key in KEPT:
        yield from (each for index, each in enumerate(found) if index not in matches)


def match(
    given: list[Any], found: list[Any], schema: ElementSchema, alias_of: Callable[[int], str] = lambda index: ""
) -> list[int | None]:
    """For each item of one list, the index of the same item in the other list. `alias_of` is the alias of an item that
    has none."""
    matches: list[int | None] = [None] * len(given)
    if "alias" in schema.below:
        by_alias = {name: index for index, each in enumerate(found) if (name := at(each, "alias", "name"))}
        for index, item in enumerate(given):
            matches[index] = by_alias.pop(str(at(item, "alias", "name") or alias_of(index)), None)
    open_items = [index for index, known in enumerate(matches) if known is None]
    free = [index for index in range(len(found)) if index not in matches]
    scores = (
        (-score, index, other)
        for index in open_items
        for other in free
        if (score := equal_values(given[index], found[other], schema)) is not None
    )
    taken = set[int]()
    for _, index, other in sorted(scores):
        if matches[index] is None and other not in taken:
            matches[index] = other
            taken.add(other)
    return matches


def equal_values(one: Any, other: Any, schema: ElementSchema) -> int | None:
    """How many values are equal; None if a value that the guest sees differs. Aliases and lists do not count."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return 1 if _is_same(one, other) else None
    count = 0
    for key in one.keys() & other.keys():
        inner, mine, theirs = schema.below.get(key, schema), one[key], other[key]
        if inner.withheld:
            count += mine == theirs
        elif inner is not ALIAS and not _is_incomparable(mine, theirs):
            found = equal_values(mine, theirs, inner)
            if found is None:
                return None
            count += found
    return count


def _is_incomparable(one: Any, other: Any) -> bool:
    """Whether one of the values is unset or a list, or only one is an object."""
    unset = one is None or other is None or isinstance(one, list)
    return unset or isinstance(one, dict) is not isinstance(other, dict)


def _is_same(one: Any, other: Any) -> bool:
    return bool(_normalized(one) == _normalized(other))


def _normalized(value: Any) -> Any:
    """Numbers have several notations, and letters of MAC addresses and UUIDs two."""
    text = str(value).lower()
    try:
        return int(text, 16 if text.startswith("0x") else 10)
    except ValueError:
        return text
