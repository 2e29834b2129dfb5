"""The events that all kinds of sets have."""

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from controllers.sets.write_batches import Failure, error_message, failure
from controllers.shared.invalid_spec import InvalidSpec
from poolhouse.runtime.events import EventRecorder, EventType, ObjectMeta, view_reference
from poolhouse.runtime.resource import Resource

O_contra = TypeVar("O_contra", bound=ObjectMeta, contravariant=True)


@dataclass
class SetEvents(Generic[O_contra]):
    resource: ClassVar[Resource]
    recorder: EventRecorder

    def succeeded(self, found: O_contra, action: Any) -> None:
        self.emit(found, "Normal", action.succeeded, f"{action.past} {action.name}: {action.reason}", action.verb)

    def failed(self, found: O_contra, action: Any, error: Exception) -> Failure:
        message = f"{action.verb} {action.name}: {error_message(error)}"
        self.emit(found, "Warning", action.failed, message, action.verb)
        return failure(action.failed, message)

    def invalid_spec(self, found: InvalidSpec[Any]) -> None:
        self.emit(found, "Warning", "InvalidSpec", found.problem, "Read")

    def emit(self, found: ObjectMeta, kind: EventType, reason: str, note: str, action: str) -> None:
        self.recorder.emit(view_reference(self.resource, found), kind, reason, note, action=action)
