"""Asks the defaulter for a VM's hardware and writes the answer, unless the VM has changed since."""

from __future__ import annotations

from typing import Protocol

from apimachinery.unstructured import Json
from controllers.defaulting.reasons import VMEvent
from defaulter.contract import DefaultingResponse, ForbiddenChange, InvalidDocument, undefaulted_fields
from kinds.meta import UNDEFAULTED
from runtime.api import Api
from runtime.errors import Invalid
from runtime.events import EventRecorder, EventType, object_reference
from runtime.resource import VMS, Key


class DefaulterClient(Protocol):
    """The part of `defaulter.contract.Defaulter` that this package uses."""

    async def complete(
        self, document: Json, *, old: Json | None = None, namespace: str | None = None, seed: str | None = None
    ) -> DefaultingResponse: ...


class DefaultingWriter:
    def __init__(self, api: Api, defaulter: DefaulterClient, events: EventRecorder, *, seed: str) -> None:
        self._api = api
        self._defaulter = defaulter
        self._events = events
        self._seed = seed or None

    async def fill(self, document: Json, request: Json) -> Json | None:
        """The VM with all hardware fields; None, with an event, if the defaulter cannot fill them.

        `request` is the document that is sent, with known facts about the guest. Raises DefaulterUnavailable."""
        try:
            answer = await self._defaulter.complete(request, seed=self._seed)
        except (InvalidDocument, ForbiddenChange) as error:
            self._undecided(document, str(error))
            return None
        if answer.object == document:
            self._undecided(document, f"the defaulter leaves {', '.join(undefaulted_fields(document)[:3])} empty")
            return None
        return without_annotation(answer.object)

    async def write(self, document: Json, filled: Json, reason: str) -> None:
        """Raises Conflict if the VM has changed since it was read."""
        try:
            # The document carries the resourceVersion that was read, so no other write is lost.
            await self._api.replace(VMS, filled)
        except Invalid as error:
            self._undecided(document, f"the API server refuses the filled VM: {error.message}")
            return
        count = len(undefaulted_fields(document)) - len(undefaulted_fields(filled))
        self._emit(document, "Normal", VMEvent.HARDWARE_DECIDED, f"filled {count} hardware fields: {reason}")

    async def remove_annotation(self, document: Json) -> None:
        await self._api.replace(VMS, without_annotation(document))

    async def report_duplicate(self, key: Key, message: str) -> None:
        self._emit(await self._api.get(VMS, *key), "Warning", VMEvent.DUPLICATE_MAC, message)

    def _undecided(self, document: Json, note: str) -> None:
        self._emit(document, "Warning", VMEvent.HARDWARE_UNDECIDED, note)

    def _emit(self, document: Json, type: EventType, reason: VMEvent, note: str) -> None:
        self._events.emit(object_reference(document), type, reason, note, action="CompleteHardware")


def without_annotation(document: Json) -> Json:
    metadata = document["metadata"]
    kept = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != UNDEFAULTED}
    return {**document, "metadata": {**metadata, "annotations": kept}}
