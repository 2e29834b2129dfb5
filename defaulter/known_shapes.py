"""Remembers the service's answers by the shape of a new VM, so that a further VM of the shape needs no call.

New VMs have the same shape if their answers differ only in what the service derives from their names: MAC addresses,
firmware UUID and serial. Everything else in a VMI spec and in its annotations belongs to the shape, and so does what a
request says about the cluster. Only the texts in the sources of volumes do not: they differ between the VMs of a pool.

An answer is remembered only if the shape and the VM's name give exactly this answer again. That excludes services with
another seed, and random values.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

import orjson

from defaulter.field_record import DEFAULTED_FIELDS, Fields, read_record, show_path, with_record
from defaulter.identity import firmware_id, mac_addresses
from defaulter.json_paths import Path, is_unset
from defaulter.vm_paths import VMLocation, locate, opted_out
from poolhouse.api.apimachinery.unstructured import Json, at, entries, replaced, typed

REMEMBERED_SECONDS = 30.0
"""A new version of the service, or other settings of it, have an effect on known shapes after this time."""
MAX_SHAPES = 128
ShapeResult = Literal["known", "learned", "not_repeatable"]
"""Whether the shape of a new VM gave the answer, or whether the service's answer was remembered."""
MAX_DOCUMENT_BYTES = 32 * 1024
_FIRMWARE_IDS = ("uuid", "serial")
_INTERFACES: Path = ("domain", "devices", "interfaces")


@dataclass(frozen=True)
class NewVM:
    """A document that is not stored yet, and whose answer may be known."""

    document: Json
    location: VMLocation
    seed: str
    shape: bytes


@dataclass(frozen=True)
class KnownAnswer:
    """The service's answer to all VMs of one shape."""

    changes: Json
    """the values that defaulting sets: nested objects in the form of the document, with indexes as the keys of lists"""
    record: Fields
    """the record of these defaults, empty for a document that has none"""
    firmware_ids: Mapping[str, str]
    """path in the record of each firmware ID among these defaults, by its field"""
    mac_addresses: Mapping[int, str]
    """path in the record of each MAC address among these defaults, by the index of its interface"""
    warnings: tuple[str, ...]
    undecided: str

    def apply(self, vm: NewVM) -> Json:
        """A document with its defaults and the record of them. It may share objects with the given one, which stays as
        it is: where the author wrote `macAddress: ""`, `changes` has nothing, so that `_merged` copies nothing."""
        document: Json = _merged(vm.document, self.changes)
        location, record = vm.location, dict(self.record)
        for name, shown in self.firmware_ids.items():
            value = record[shown] = firmware_id(vm.seed, location.namespace, location.name, name)
            document = replaced(document, value, *location.spec, "domain", "firmware", name)
        for index, value in mac_addresses(vm.seed, location, document, self.mac_addresses):
            record[self.mac_addresses[index]] = value
            document = replaced(document, value, *location.spec, *_INTERFACES, index, "macAddress")
        return with_record(document, record) if self.record else document


def _merged(given: Any, changes: Any) -> Any:
    """The value with the changes. Each object and list that has a change is a new one."""
    if not isinstance(changes, dict):
        return changes
    if isinstance(next(iter(changes), None), int):
        items = list(given or ())
        for index, change in changes.items():
            items[index : index + 1] = [_merged(items[index] if index < len(items) else None, change)]
        return items
    merged = dict(given) if isinstance(given, dict) else {}
    for key, change in changes.items():
        merged[key] = _merged(merged.get(key), change)
    return merged


class KnownShapes:
    """The answers of the last `REMEMBERED_SECONDS`, at most `MAX_SHAPES`."""

    def __init__(self, now: Callable[[], float], count: Callable[[ShapeResult], None] = lambda result: None) -> None:
        self._now, self._count = now, count
        self._answers: OrderedDict[bytes, tuple[float, KnownAnswer]] = OrderedDict()
        """by shape, until when the answer is remembered, and the answer"""

    def __bool__(self) -> bool:
        return bool(self._answers)

    def find(self, vm: NewVM) -> KnownAnswer | None:
        until, answer = self._answers.get(vm.shape, (0.0, None))
        if until <= self._now() or answer is None:
            return None
        self._count("known")
        return answer

    def learn(self, vm: NewVM, completed: Json, warnings: tuple[str, ...], undecided: str) -> None:
        """Remembers the answer to a VM, unless it could not be repeated. `completed` has the record of its defaults."""
        answer = _read_answer(vm, completed, warnings, undecided)
        if answer is None or not _is_same_text(answer.apply(vm), completed):
            self._count("not_repeatable")
            return
        self._count("learned")
        self._answers[vm.shape] = self._now() + REMEMBERED_SECONDS, answer
        self._answers.move_to_end(vm.shape)
        while len(self._answers) > MAX_SHAPES:
            self._answers.popitem(last=False)


def new_vm(document: Json, namespace: str | None, seed: str | None, other_fields: bytes) -> NewVM | None:
    """The VM of a document that is not stored yet; None if its answer is not to be remembered. `other_fields` is what
    the request contains apart from the document, the namespace and the seed."""
    location = locate(document, namespace)
    spec = typed(dict, document, *location.spec) if location is not None else None
    if location is None or spec is None or opted_out(document):
        return None
    # The identity of a VM without name and seed is random. A record belongs to the VM that the document is a copy of.
    if not (location.name or seed) or at(document, "metadata", "annotations", DEFAULTED_FIELDS) is not None:
        return None
    vm_spec = at(document, *location.vm, "spec") if location.vm is not None else None
    disks = typed(list, vm_spec, "dataVolumeTemplates")
    shape = (
        (document.get("apiVersion"), document.get("kind"), seed is None),
        (at(vm_spec, "instancetype"), at(vm_spec, "preference"), None if disks is None else len(disks)),
        location.annotations,
        *_without_names(spec),
    )
    try:
        if len(orjson.dumps(document)) > MAX_DOCUMENT_BYTES:
            return None
        text = orjson.dumps(shape, option=orjson.OPT_SORT_KEYS)
    except (TypeError, RecursionError):  # an integer beyond 64 bits, half a surrogate pair, or too many levels
        return None
    return NewVM(document, location, seed or "", sha256(text + other_fields).digest())


def _without_names(spec: Json) -> tuple[Any, ...]:
    """The spec without valid firmware IDs and without the texts in the sources of volumes, and the names of these IDs.
    The service checks the IDs of each VM, but none of its values depends on them."""
    blank, (domain, volumes) = dict(spec), (spec.get("domain"), spec.get("volumes"))
    firmware, given = typed(dict, domain, "firmware"), dict[str, str]()
    if isinstance(domain, dict) and firmware is not None:
        given = {name: "" for name in _FIRMWARE_IDS if _is_uuid(firmware.get(name))}
        blank["domain"] = {**domain, "firmware": {**firmware, **given}}
    if isinstance(volumes, list):
        blank["volumes"] = [
            {name: value if name == "name" else _without_texts(value) for name, value in volume.items()}
            if isinstance(volume, dict)
            else volume
            for volume in volumes
        ]
    return blank, list(given)


def _is_uuid(value: Any) -> bool:
    if not isinstance(value, str) or len(value) != 36:
        return False
    parts = value.split("-")
    return [len(part) for part in parts] == [8, 4, 4, 4, 12] and set("".join(parts)) <= _HEX_DIGITS


_HEX_DIGITS = frozenset("0123456789abcdef")


def _without_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_texts(inner) for key, inner in value.items()}
    return "" if isinstance(value, str) else value


def _read_answer(vm: NewVM, completed: Json, warnings: tuple[str, ...], undecided: str) -> KnownAnswer | None:
    location = vm.location
    given, found = at(vm.document, *location.spec), typed(dict, completed, *location.spec)
    if found is None:
        return None
    firmware_ids: dict[str, str] = {}
    macs: dict[int, str] = {}
    of_shape, path = found, _INTERFACES
    for name in _FIRMWARE_IDS:
        if _is_filled(given, found, path := ("domain", "firmware", name)):
            firmware_ids[name] = show_path(found, path)
            of_shape = replaced(of_shape, "", *path)
    for index, _ in entries(found, *_INTERFACES):
        if _is_filled(given, found, path := (*_INTERFACES, index, "macAddress")):
            macs[index] = show_path(found, path)
            of_shape = replaced(of_shape, "", *path)
    changes = _nested(location.spec, _changes(given, of_shape))
    annotations = typed(dict, completed, *location.record[:-1]) or {}
    if (added := _changes(location.annotations, annotations)) is not None:
        changes = _merged(changes, _nested(location.record[:-1], added))
    return KnownAnswer(changes, read_record(completed, location) or {}, firmware_ids, macs, warnings, undecided)


def _is_filled(given: Any, found: Json, path: Path) -> bool:
    return is_unset(at(given, *path)) and not is_unset(at(found, *path))


def _nested(path: Path, changes: Any) -> Json:
    for step in reversed(path[1:]):
        changes = {step: changes}
    return {str(path[0]): changes}


def _changes(before: Any, after: Any) -> Any:
    """What `_merged` needs to turn one value into the other; None if they are equal."""
    if isinstance(after, dict) and isinstance(before, dict | None):
        found = {key: _changes(at(before, key), value) for key, value in after.items()}
    elif isinstance(after, list) and after and isinstance(before, list | None) and len(before or ()) <= len(after):
        found = {index: _changes(at(before, index), value) for index, value in enumerate(after)}
    else:
        return None if type(before) is type(after) and before == after else after
    found = {key: change for key, change in found.items() if change is not None}
    return found if found or before is None else None


def _is_same_text(one: Json, other: Json) -> bool:
    return orjson.dumps(one, option=orjson.OPT_SORT_KEYS) == orjson.dumps(other, option=orjson.OPT_SORT_KEYS)
