"""Remembers the service's answers by the shape of a new VM, so that a further VM of the shape needs no call.

New VMs have the same shape if their answers differ only in what the service derives from their names: MAC addresses,
firmware UUID and serial. Everything else in a VMI spec and in its annotations belongs to the shape, and so does what a
request says about the cluster. Only the texts in the sources of volumes do not: they differ between the VMs of a pool.

An answer is remembered only if the shape and the VM's name give exactly this answer again. That excludes services with
another seed, and random values.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import orjson

from apimachinery.unstructured import Json, at, entries, typed
from defaulter.field_record import DEFAULTED_FIELDS, Fields, read_record, show_path, with_record
from defaulter.identity import fill_mac_addresses, firmware_id
from defaulter.json_paths import DocumentEditor, Path, is_unset
from defaulter.vm_paths import VMLocation, locate, opted_out

REMEMBERED_SECONDS = 30.0
"""A new version of the service, or other settings of it, have an effect on known shapes after this time."""
MAX_SHAPES = 128
MAX_DOCUMENT_BYTES = 32 * 1024
_FIRMWARE: Path = ("domain", "firmware")
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

    changes: tuple[tuple[Path, Any], ...]
    """the values that defaulting sets, by path"""
    record: Fields
    """the record of these defaults, empty for a document that has none"""
    firmware_ids: tuple[Path, ...]
    """paths of the values that depend on the VM's name, among `changes`"""
    mac_addresses: tuple[Path, ...]
    warnings: tuple[str, ...]
    undecided: str

    def apply(self, vm: NewVM) -> Json:
        """The document with its defaults and the record of them. It shares parts with other documents."""
        editor, location = DocumentEditor(vm.document), vm.location
        for path, value in self.changes:
            editor.replace(path, value)
        for path in self.firmware_ids:
            editor.replace(path, firmware_id(vm.seed, location.namespace, location.name, str(path[-1])))
        for path in self.mac_addresses:
            editor.replace(path, None)
        fill_mac_addresses(editor, location, vm.seed, self.mac_addresses)
        if not self.record:
            return editor.document
        record, spec, below = dict(self.record), editor.get(location.spec), len(location.spec)
        for path in (*self.firmware_ids, *self.mac_addresses):
            record[show_path(spec, path[below:])] = editor.get(path)
        return with_record(editor.document, record)


class KnownShapes:
    """The answers of the last `REMEMBERED_SECONDS`, at most `MAX_SHAPES`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._answers: OrderedDict[bytes, tuple[float, KnownAnswer]] = OrderedDict()

    def find(self, vm: NewVM) -> KnownAnswer | None:
        until, answer = self._answers.get(vm.shape, (0.0, None))
        return answer if until > self._now() else None

    def learn(self, vm: NewVM, completed: Json, warnings: tuple[str, ...], undecided: str) -> None:
        """Remembers the answer to a VM, unless it could not be repeated. `completed` has the record of its defaults."""
        answer = _read_answer(vm, completed, warnings, undecided)
        if answer is None or not _is_same_text(answer.apply(vm), completed):
            return
        self._answers[vm.shape] = self._now() + REMEMBERED_SECONDS, answer
        self._answers.move_to_end(vm.shape)
        while len(self._answers) > MAX_SHAPES:
            self._answers.popitem(last=False)


def new_vm(document: Json, namespace: str | None, seed: str | None, circumstances: bytes) -> NewVM | None:
    """The VM of a document that is not stored yet; None if its answer is not to be remembered. `circumstances` is what
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
    return NewVM(document, location, seed or "", sha256(text + circumstances).digest())


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
    annotations = typed(dict, completed, *location.record[:-1]) or {}
    if found is None:
        return None
    changes = [((*location.spec, *path), value) for path, value in _changes(given, found, ())]
    changes += [
        ((*location.record[:-1], *path), text) for path, text in _changes(location.annotations, annotations, ())
    ]
    identity = [(*_FIRMWARE, name) for name in _FIRMWARE_IDS]
    macs: list[Path] = [(*_INTERFACES, index, "macAddress") for index, _ in entries(found, *_INTERFACES)]

    def filled(paths: list[Path]) -> tuple[Path, ...]:
        unset = (path for path in paths if is_unset(at(given, *path)) and not is_unset(at(found, *path)))
        return tuple((*location.spec, *path) for path in unset)

    record = read_record(completed, location) or {}
    return KnownAnswer(tuple(changes), record, filled(identity), filled(macs), warnings, undecided)


def _changes(before: Any, after: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """The values of `after` that `before` does not have, by path."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in after.items():
            yield from _changes(before.get(key), value, (*path, key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) <= len(after):
        for index, value in enumerate(after):
            yield from _changes(before[index] if index < len(before) else None, value, (*path, index))
    elif type(before) is not type(after) or before != after:
        yield path, after


def _is_same_text(one: Json, other: Json) -> bool:
    return orjson.dumps(one, option=orjson.OPT_SORT_KEYS) == orjson.dumps(other, option=orjson.OPT_SORT_KEYS)
