"""After every other webhook: whether hardware is still as it was decided.

The API server asks webhooks in the order of their names, and ours sorts last. Whoever sorts behind us all the same, or
is asked again, can put in a disk that nobody gave an address, or take an address away. Nothing is denied for it: what
is open is completed before the VM's next start, and a value that somebody has set is kept. But the one who set it up
should know.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from defaulter.contract import MACPolicy, defaulted_fields, undefaulted_fields
from kinds.meta import UNDEFAULTED
from webhook.defaulting import waits_for_stop
from webhook.review import AdmissionRequest, AdmissionResponse
from webhook.scope import annotations_of, metadata_of

OPENED = "OpenedLater"
CHANGED = "ChangedLater"
NEWS = {
    OPENED: "hardware that nobody decided came after us",
    CHANGED: "hardware that was decided is another now",
}
"""for the metrics: what was found, and what it means"""

REMEMBERED_SECONDS = 15.0
"""an API server gives up a request after ten"""
_MOST = 512
_SHOWN = 3

Key = tuple[str, str, str]
Fields = dict[str, Any]


class HardwareDrift:
    """Remembers what was answered lately, in this process: where there are several webhooks, each sees a part of what
    another changes, which is enough to find the one that does."""

    def __init__(self, *, now: Callable[[], float], macs: MACPolicy = "deterministic") -> None:
        self._now = now
        self._macs = macs
        self._answers: OrderedDict[Key, list[tuple[float, Fields]]] = OrderedDict()

    def remember(self, request: AdmissionRequest, document: dict[str, Any]) -> None:
        """What we made of an object, to be compared with what arrives at the end."""
        until, key = self._now() + REMEMBERED_SECONDS, _key(request)
        self._answers[key] = [*self._fresh(key), (until, defaulted_fields(document))]
        self._answers.move_to_end(key)
        while len(self._answers) > _MOST:
            self._answers.popitem(last=False)

    def check(self, request: AdmissionRequest) -> AdmissionResponse:
        document = request.object or {}
        if UNDEFAULTED in annotations_of(document) or waits_for_stop(request, self._macs):
            return AdmissionResponse()
        if paths := undefaulted_fields(document, macs=self._macs):
            sentence = f"{_shown(paths)} left open after hardware was decided; is another webhook asked later?"
            return AdmissionResponse(warnings=(sentence,), reason=OPENED)
        now = defaulted_fields(document)
        # Two requests for one object may be on their way at once; whichever answer this is, is as good as the other.
        found = [_changed(before, now) for _, before in self._fresh(_key(request))]
        if found and all(found):
            sentence = f"{_shown(found[-1])} changed after hardware was decided; is another webhook asked later?"
            return AdmissionResponse(warnings=(sentence,), reason=CHANGED)
        return AdmissionResponse()

    def _fresh(self, key: Key) -> list[tuple[float, Fields]]:
        return [(until, fields) for until, fields in self._answers.get(key, []) if until > self._now()]


def _key(request: AdmissionRequest) -> Key:
    name = request.name or metadata_of(request.object or {}).get("name") or ""
    return request.kind, request.namespace, str(name)


def _changed(before: Fields, now: Fields) -> list[str]:
    return [place for place, value in before.items() if place in now and now[place] != value]


def _shown(paths: Iterable[str]) -> str:
    found = list(paths)
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"{', '.join(found[:_SHOWN])}{more} {'was' if len(found) == 1 else 'were'}"
