"""Completes a VM: asks the defaulter, and writes its answer if the VM is still the one that was asked about."""

from __future__ import annotations

from typing import Any, Protocol

from controllers.defaulting.observe import MACHINES
from defaulter.contract import DefaultingResponse, ForbiddenChange, InvalidDocument, undefaulted_fields
from kinds.meta import UNDEFAULTED
from runtime.api import Api
from runtime.errors import Invalid
from runtime.events import EventRecorder, EventType, object_reference
from runtime.resource import Key

Json = dict[str, Any]


class Completes(Protocol):
    """`defaulter.contract.Defaulter`."""

    async def complete(
        self, document: Json, *, old: Json | None = None, namespace: str | None = None, seed: str | None = None
    ) -> DefaultingResponse: ...


class Apply:
    """The only code of this package that writes."""

    def __init__(self, api: Api, defaulter: Completes, events: EventRecorder, *, seed: str) -> None:
        self._api = api
        self._defaulter = defaulter
        self._events = events
        self._seed = seed or None

    async def ask(self, document: Json, asked: Json) -> Json | None:
        """The completed document; None, with an event, when there is none to be had. `asked` is the document with what
        is known of the guest besides. Raises `DefaulterUnavailable`."""
        try:
            answer = await self._defaulter.complete(asked, seed=self._seed)
        except (InvalidDocument, ForbiddenChange) as error:
            self._undecided(document, str(error))
            return None
        if answer.object == document:
            self._undecided(document, f"the defaulter leaves {', '.join(undefaulted_fields(document)[:3])} as it is")
            return None
        return without_note(answer.object)

    async def write(self, document: Json, completed: Json, reason: str) -> None:
        """Raises `Conflict` when the VM is not any more what it was when it was read."""
        try:
            # It carries the resourceVersion that it was read with: nobody's write in between is lost.
            await self._api.replace(MACHINES, completed)
        except Invalid as error:
            self._undecided(document, f"its completed form is refused: {error.message}")
            return
        filled = len(undefaulted_fields(document)) - len(undefaulted_fields(completed))
        self._say(document, "Normal", "HardwareDecided", f"{filled} hardware fields were decided: {reason}")

    async def drop_note(self, document: Json) -> None:
        await self._api.replace(MACHINES, without_note(document))

    async def say_double(self, key: Key, sentence: str) -> None:
        self._say(await self._api.get(MACHINES, *key), "Warning", "DuplicateMAC", sentence)

    def _undecided(self, document: Json, note: str) -> None:
        self._say(document, "Warning", "HardwareUndecided", note)

    def _say(self, document: Json, type: EventType, reason: str, note: str) -> None:
        self._events.emit(object_reference(document), type, reason, note, action="CompleteHardware")


def without_note(document: Json) -> Json:
    metadata = document["metadata"]
    kept = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != UNDEFAULTED}
    return {**document, "metadata": {**metadata, "annotations": kept}}
