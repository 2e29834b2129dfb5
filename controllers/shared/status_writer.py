"""Writes the status of objects: only when it has changed, and at most once a second for each object."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from apimachinery.unstructured import Json
from kinds.model import Model
from runtime.api import Api
from runtime.errors import NotFound
from runtime.events import ObjectMeta
from runtime.resource import Resource

S = TypeVar("S", bound=Model)
S_co = TypeVar("S_co", bound=Model, covariant=True)

INTERVAL_SECONDS = 1.0


class View(ObjectMeta, Protocol[S_co]):
    """What a status write needs of the view of an object."""

    @property
    def status(self) -> S_co: ...


@dataclass
class LastWrite:
    """When the status of one object was written last. It belongs to the controller's memory of the object."""

    at: float = float("-inf")


@dataclass(frozen=True)
class StatusUpdate:
    written: bool = False
    wait_seconds: float | None = None
    """Time until the next write is allowed, if this one came too early."""


@dataclass
class StatusWriter(Generic[S]):
    api: Api
    resource: Resource
    clock: Callable[[], float]
    interval_seconds: float = INTERVAL_SECONDS

    async def update(self, view: View[S], fresh: S, last: LastWrite) -> StatusUpdate:
        """Writes a status that differs from the one in the view, unless the last write was a moment ago."""
        if fresh == view.status:
            return StatusUpdate()
        wait = last.at + self.interval_seconds - self.clock()
        if wait > 0:
            return StatusUpdate(wait_seconds=wait)
        await self.write(view, fresh, last)
        return StatusUpdate(written=True)

    async def write(self, view: View[S], fresh: S, last: LastWrite) -> None:
        with suppress(NotFound):  # the object has been deleted since
            await self.api.patch(
                self.resource, view.namespace, view.name, status_patch(fresh, view.uid), subresource="status"
            )
        last.at = self.clock()


def status_patch(status: Model, uid: str, resource_version: str = "") -> Json:
    """The merge patch of a status.

    Absent fields are null, or a merge would keep their old values. With the UID, the API server refuses the patch for
    another object of the same name; with the resourceVersion, for an object that has changed since."""
    metadata: dict[str, Any] = {"uid": uid}
    if resource_version:
        metadata["resourceVersion"] = resource_version
    nothing = dict.fromkeys(status.model_dump(by_alias=True))
    return {"metadata": metadata, "status": {**nothing, **status.json()}}
