"""Detects hardware that another webhook changed after the defaulting webhook.

The API server calls webhooks in the order of their names, and Poolhouse's names sort last. A webhook that sorts later,
or is reinvoked, can still add a disk without an address or change an address. Such a VM is admitted with a warning. A
controller fills the missing fields before the next start, and keeps values that are set.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from apimachinery.unstructured import at
from defaulter.contract import MACPolicy, defaulted_fields, undefaulted_fields
from kinds.meta import UNDEFAULTED
from webhook.defaulting import runs_undefaulted
from webhook.reasons import DriftReason
from webhook.review import AdmissionRequest, AdmissionResponse, annotations_of

REMEMBERED_SECONDS = 15.0
"""Longer than an admission request can last: API servers wait ten seconds."""
_MAX_OBJECTS = 512
_MAX_PATHS = 3

Key = tuple[str, str, str]
Fields = dict[str, Any]


class HardwareDrift:
    """Compares objects with recent responses of this process. Each replica gets only a part of the requests, which is
    enough to find a webhook that changes hardware."""

    def __init__(self, *, now: Callable[[], float], macs: MACPolicy = "deterministic") -> None:
        self._now, self._macs = now, macs
        self._answers: OrderedDict[Key, list[tuple[float, Fields]]] = OrderedDict()

    def remember(self, request: AdmissionRequest, fields: Fields) -> None:
        """Records the `defaulted_fields` of the defaulted object."""
        until, key = self._now() + REMEMBERED_SECONDS, _key(request)
        self._answers[key] = [*self._fresh(key), (until, fields)]
        self._answers.move_to_end(key)
        while len(self._answers) > _MAX_OBJECTS:
            self._answers.popitem(last=False)

    def check(self, request: AdmissionRequest) -> AdmissionResponse:
        document = request.object or {}
        if UNDEFAULTED in annotations_of(document) or runs_undefaulted(request, self._macs):
            return AdmissionResponse()
        # The defaulter leaves an address of a device open that KubeVirt hotplugs into the VMI.
        updates_vmi = request.kind == "VirtualMachineInstance" and request.old is not None
        if not updates_vmi and (paths := undefaulted_fields(document, macs=self._macs)):
            return _drifted(paths, "left without a default", DriftReason.HARDWARE_UNDEFAULTED)
        now = defaulted_fields(document)
        # Two requests for an object may be in flight. The object is unchanged if it equals one of the responses.
        changes = [_changed(before, now) for _, before in self._fresh(_key(request))]
        if changes and all(changes):
            return _drifted(changes[-1], "changed", DriftReason.HARDWARE_CHANGED)
        return AdmissionResponse()

    def _fresh(self, key: Key) -> list[tuple[float, Fields]]:
        return [(until, fields) for until, fields in self._answers.get(key, []) if until > self._now()]


def _key(request: AdmissionRequest) -> Key:
    name = request.name or at(request.object, "metadata", "name") or ""
    return request.kind, request.namespace, str(name)


def _changed(before: Fields, now: Fields) -> list[str]:
    return [path for path, value in before.items() if path in now and now[path] != value]


def _drifted(paths: Iterable[str], how: str, reason: DriftReason) -> AdmissionResponse:
    found = list(paths)
    more = f" and {len(found) - _MAX_PATHS} more" if len(found) > _MAX_PATHS else ""
    verb = "was" if len(found) == 1 else "were"
    warning = f"{', '.join(found[:_MAX_PATHS])}{more} {verb} {how} after defaulting; does another webhook run later?"
    return AdmissionResponse(warnings=(warning,), reason=reason)
