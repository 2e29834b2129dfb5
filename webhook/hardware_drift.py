"""Detects hardware that another webhook changed after the defaulting webhook.

The API server calls webhooks in the order of their names, and Poolhouse's names sort last. A webhook that sorts later,
or is reinvoked, can still add a disk without an address or change an address. Such a VM is admitted with a warning. A
controller fills the missing fields before the next start, and keeps values that are set.

The API server calls the defaulting webhook again for an object that another webhook has changed, so `/mutate` finds
changed fields. It calls `/validate` only for objects that lack defaults after all webhooks, which spares most VMs a
second call.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import orjson

from defaulter.contract import DEFAULTED_FIELDS, MACPolicy, defaulted_fields, undefaulted_fields
from poolhouse.api.apimachinery.counting import join_first
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds.meta import UNDEFAULTED
from webhook.defaulting import runs_undefaulted
from webhook.reasons import DriftReason
from webhook.review import AdmissionRequest, AdmissionResponse, annotations_of

REMEMBERED_SECONDS = 15.0
"""Longer than an admission request can last: API servers wait ten seconds."""
_MAX_OBJECTS = 512
_MAX_ANSWERS = 8
"""for one object: a client may ask for the same name again and again"""
_MAX_PATHS = 2
_MAX_SPEC_BYTES = 128 * 1024
"""The spec of a VM with 256 disks has about 100 kB."""

LATER = "after defaulting; does another webhook run later?"
UNANSWERED = (
    "because the defaulting webhook did not answer in time, or another webhook ran later; "
    "a controller fills them before the next start"
)
"""what is known without an answer of this process; another replica may have answered"""

Fields = dict[str, Any]


class Key(NamedTuple):
    """What the calls of the webhook for one request have in common."""

    kind: str
    namespace: str
    name: str
    version: str
    """the resourceVersion that an update replaces"""
    user: str
    dry_run: bool


class Answer(NamedTuple):
    spec: bytes
    """the text of the defaulted spec"""
    asked: tuple[tuple[str, Any], ...]
    """the hardware fields that the request sets, with their values"""

    def is_for(self, fields: Fields, answered: Fields) -> bool:
        """Whether an object with these fields may come from the same request. A dry run, a refused update and one
        without a change leave the resourceVersion as it is, so that the next request has the same key. Where the
        answer replaced a value, such as the alias of a machine type, the same request now has the answer's value."""
        return all(path in fields and fields[path] == answered.get(path, value) for path, value in self.asked)


class HardwareDrift:
    """Compares objects with recent responses of this process. Each replica gets only a part of the requests, which is
    enough to find a webhook that changes hardware."""

    def __init__(self, *, now: Callable[[], float], macs: MACPolicy = "deterministic") -> None:
        self._now, self._macs = now, macs
        self._answers: OrderedDict[Key, dict[bytes, tuple[Answer, float]]] = OrderedDict()
        """by object and text, the answers, and until when each is remembered"""

    def remember(self, request: AdmissionRequest, document: Json) -> None:
        """Records the spec of the defaulted object, if it is not too long. An update that sets no hardware field is not
        recorded: nothing tells it from the next request."""
        spec = spec_text(document)
        asked = _asked(request) if len(spec) <= _MAX_SPEC_BYTES else {}
        if len(spec) > _MAX_SPEC_BYTES or (request.old is not None and not asked):
            return
        now, key = self._now(), _key(request)
        others = {text: kept for text, kept in self._answers.get(key, {}).items() if kept[1] > now and text != spec}
        answer = Answer(spec, tuple(asked.items()))
        self._answers[key] = {**dict([*others.items()][1 - _MAX_ANSWERS :]), spec: (answer, now + REMEMBERED_SECONDS)}
        self._answers.move_to_end(key)
        while len(self._answers) > _MAX_OBJECTS:
            self._answers.popitem(last=False)

    def since_answer(self, request: AdmissionRequest) -> AdmissionResponse:
        """What another webhook has changed since this process answered the same request, if the API server has called
        the webhook again. The object then has the record of its defaults, which the first answer adds to a new one."""
        document, key = request.object or {}, _key(request)
        # Objects with a generated name have the same key.
        again = key.name and DEFAULTED_FIELDS in annotations_of(document)
        answers = self._fresh(key, self._now()) if again else {}
        if not answers or spec_text(document) in answers:
            return AdmissionResponse()
        return _changed_by_all(answers.values(), document)

    def check(self, request: AdmissionRequest) -> AdmissionResponse:
        document = request.object or {}
        if UNDEFAULTED in annotations_of(document) or runs_undefaulted(request, self._macs):
            return AdmissionResponse()
        answers = self._fresh(_key(request), self._now())
        if answers and spec_text(document) in answers:
            return AdmissionResponse()
        # The defaulter leaves an address of a device open that KubeVirt hotplugs into the VMI.
        updates_vmi = request.kind == "VirtualMachineInstance" and request.old is not None
        if not updates_vmi and (paths := undefaulted_fields(document, macs=self._macs)):
            how = f"left without a default {LATER if answers else UNANSWERED}"
            return _drifted(paths, how, DriftReason.HARDWARE_UNDEFAULTED)
        return _changed_by_all(answers.values(), document)

    def _fresh(self, key: Key, now: float) -> dict[bytes, Answer]:
        return {text: answer for text, (answer, until) in self._answers.get(key, {}).items() if until > now}


def spec_text(document: Json) -> bytes:
    """The spec as JSON text, which is equal for equal specs. Most objects come back as they were answered, which their
    text shows in a tenth of the time of a comparison by fields."""
    spec = document.get("spec")
    try:
        return orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)
    except (TypeError, RecursionError):  # an integer beyond 64 bits, half a surrogate pair, or too many levels
        return json.dumps(spec, sort_keys=True).encode()


def _key(request: AdmissionRequest) -> Key:
    name = request.name or at(request.object, "metadata", "name") or ""
    version, user = at(request.old, "metadata", "resourceVersion"), request.user.get("username")
    return Key(request.kind, request.namespace, str(name), str(version or ""), str(user or ""), request.dry_run)


def _asked(request: AdmissionRequest) -> Fields:
    before = defaulted_fields(request.old or {})
    return {
        path: value
        for path, value in defaulted_fields(request.object or {}).items()
        if value not in ({}, [], "", None) and (path not in before or before[path] != value)
    }


def _changed_by_all(answers: Iterable[Answer], document: Json) -> AdmissionResponse:
    """The fields that differ from each answer. Two requests for an object may be in flight, and the object is unchanged
    if it equals one of the answers."""
    now = defaulted_fields(document)
    answered = ((each, defaulted_fields({**document, "spec": json.loads(each.spec)})) for each in answers)
    changes = [_changed(fields, now) for answer, fields in answered if answer.is_for(now, fields)]
    if changes and all(changes):
        return _drifted(changes[-1], f"changed {LATER}", DriftReason.HARDWARE_CHANGED)
    return AdmissionResponse()


def _changed(before: Fields, now: Fields) -> list[str]:
    return [path for path, value in before.items() if path in now and now[path] != value]


def _drifted(paths: Iterable[str], how: str, reason: DriftReason) -> AdmissionResponse:
    found = list(paths)
    verb = "was" if len(found) == 1 else "were"
    warning = f"{join_first(found, _MAX_PATHS)} {verb} {how}"
    return AdmissionResponse(warnings=(warning,), drift=reason)
