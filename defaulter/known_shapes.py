"""Remembers the service's answers by the shape of a new VM, so that a further VM of the shape needs no call.

New VMs have the same shape if their answers differ only in what the service derives from their names: MAC addresses,
firmware UUID and serial. Everything else in a VMI spec and in its annotations belongs to the shape, and so does what a
request says about the cluster. Only the texts in the sources of volumes do not: they differ between the VMs of a pool.

An answer is remembered only if the shape and the VM's name give exactly this answer again. That excludes services with
another seed, and random values.

A client that creates VMs can learn the answers from stored VMs, too, which the webhook has completed. Other webhooks
may have changed these VMs, and each VM in another way. Such shapes are not learned.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

import orjson

from defaulter.field_record import (
    DEFAULTED_FIELDS,
    Fields,
    flatten,
    is_same,
    read_record,
    show_path,
    with_record,
    without,
)
from defaulter.hook import HARDWARE_ANNOTATION
from defaulter.identity import firmware_id, mac_addresses
from defaulter.json_paths import Path, is_unset
from defaulter.vm_paths import VMLocation, locate, opted_out
from poolhouse.api.apimachinery.quantity import to_int
from poolhouse.api.apimachinery.unstructured import Json, at, entries, replaced, typed

REMEMBERED_SECONDS = 30.0
"""A new version of the service, or other settings of it, have an effect on known shapes after this time."""
IGNORED_SECONDS = 600.0
"""After another webhook has changed a stored VM, nothing is learned from VMs of its shape for this time."""
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
        self._answers: OrderedDict[bytes, tuple[float, KnownAnswer | None]] = OrderedDict()
        """by shape, until when the answer is remembered, and the answer; None for an ignored shape"""

    def __bool__(self) -> bool:
        return bool(self._answers)

    def find(self, vm: NewVM) -> KnownAnswer | None:
        until, answer = self._answers.get(vm.shape, (0.0, None))
        if until <= self._now() or answer is None:
            return None
        self._count("known")
        return answer

    def is_new(self, vm: NewVM) -> bool:
        """Whether nothing is remembered of the VM's shape, not even that it is ignored."""
        until, _ = self._answers.get(vm.shape, (0.0, None))
        return until <= self._now()

    def learn(self, vm: NewVM, completed: Json, warnings: tuple[str, ...], undecided: str) -> bool:
        """Remembers the answer to a VM, unless it could not be repeated. `completed` has the record of its defaults.
        Returns whether the answer is remembered."""
        answer = _read_answer(vm, completed, warnings, undecided)
        if answer is None or not _is_same_text(answer.apply(vm), completed):
            self._count("not_repeatable")
            return False
        self._count("learned")
        self._remember(vm, answer, REMEMBERED_SECONDS)
        return True

    def learn_stored(self, vm: NewVM, stored: Json) -> None:
        """Remembers what admission has set in a VM. `stored` is the API server's answer to its creation, or to a dry
        run of it. A shape from whose VMs nothing can be learned is ignored."""
        if not self.is_new(vm):
            return
        completed = _as_admitted(vm, stored)
        if completed is None or not self.learn(vm, completed, (), ""):
            self.ignore(vm)

    def confirm(self, vm: NewVM, sent: Json, stored: Json) -> bool:
        """Whether the API server has stored a VM with a known answer as it was sent, apart from MAC addresses that
        another webhook has assigned. If not, its shape is ignored."""
        paths = (vm.location.spec, vm.location.record[:-1], *_DECISIVE)
        recorded = at(stored, "metadata", "annotations", DEFAULTED_FIELDS) is not None
        if recorded and all(at(stored, *path) == at(sent, *path) for path in paths):
            return True
        found = _as_admitted(vm, stored)
        if found is not None and _is_same_text(found, sent):
            return True
        self.ignore(vm)
        return False

    def ignore(self, vm: NewVM) -> None:
        """Neither learns nor repeats an answer to VMs of this shape for ten minutes."""
        self._remember(vm, None, IGNORED_SECONDS)

    def _remember(self, vm: NewVM, answer: KnownAnswer | None, seconds: float) -> None:
        self._answers[vm.shape] = self._now() + seconds, answer
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


def _as_admitted(vm: NewVM, stored: Json) -> Json | None:
    """The VM with what admission has set in the stored object: Poolhouse's defaults, and what virt-api sets in each VM.
    MAC addresses of other webhooks are left out, because each VM gets its own. None without a record, and if another
    webhook has changed the VM: it may change the next one in another way."""
    location, record = vm.location, read_record(stored, vm.location)
    spec = typed(dict, stored, *location.spec)
    if not record or spec is None or any(at(stored, *path) != at(vm.document, *path) for path in _DECISIVE):
        return None
    before, now = flatten(at(vm.document, *location.spec)), flatten(spec)
    others = {path: value for path, value in now.items() if path not in before and path not in record}
    macs = {path: value for path, value in others.items() if path.endswith("].macAddress")}
    annotations = typed(dict, stored, *location.record[:-1]) or {}
    kept = _has_values(before, now, record) and location.annotations.items() <= annotations.items()
    kept = kept and _has_places(at(vm.document, *location.spec), spec)
    if not kept or others.keys() - macs - _OF_VIRT_API or annotations.keys() - location.annotations - _ANNOTATIONS:
        return None
    document = replaced(vm.document, without(spec, macs), *location.spec)
    if annotations:
        document = _merged(document, _nested(location.record[:-1], annotations))
    return with_record(document, record)


def _has_values(before: Fields, now: Fields, record: Fields) -> bool:
    """Whether all values are there that do not come from Poolhouse's defaults."""
    return all(path in record or _is_equal(path, value, now.get(path)) for path, value in before.items())


def _is_equal(path: str, before: Any, after: Any) -> bool:
    """Whether a value has not changed. virt-api writes amounts of memory anew, `1024Mi` as `1Gi`."""
    is_memory = path.startswith("domain.memory.") or path.endswith(".memory")
    return is_same(before, after) or (is_memory and to_int(before) == to_int(after) is not None)


def _has_places(before: Any, after: Any) -> bool:
    """Whether the named items of all lists have kept their places. Answers are remembered by place, and in another
    order a VM would get the volumes of the VM from which its answer was learned."""
    if isinstance(before, dict) and isinstance(after, dict):
        return all(_has_places(value, after.get(key)) for key, value in before.items())
    if isinstance(before, list) and isinstance(after, list):
        pairs = list(zip(before, after, strict=False))
        return len(pairs) == len(before) and all(at(a, "name") == at(b, "name") and _has_places(a, b) for a, b in pairs)
    return True


def without_answer(vm: NewVM, sent: Json, stored: Json) -> Json:
    """The stored VM without the defaults with which it was sent, as far as they are still there. The result has the
    changes of other webhooks, on which its defaults may depend."""
    location, record = vm.location, read_record(sent, vm.location) or {}
    document = replaced(stored, without(at(stored, *location.spec), record), *location.spec)
    annotations = typed(dict, stored, *location.record[:-1]) or {}
    if HARDWARE_ANNOTATION in annotations and HARDWARE_ANNOTATION not in location.annotations:
        others = {name: value for name, value in annotations.items() if name != HARDWARE_ANNOTATION}
        document = replaced(document, others, *location.record[:-1])
    return with_record(document, {})


_DECISIVE: tuple[Path, ...] = (("spec", "instancetype"), ("spec", "preference"))
_OF_VIRT_API = {
    "architecture",
    "domain.devices",
    "domain.features.acpi",
    "domain.machine",
    "domain.machine.type",
    "domain.resources",
}
_ANNOTATIONS = {HARDWARE_ANNOTATION, "kubevirt.io/pci-topology-version"}


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
