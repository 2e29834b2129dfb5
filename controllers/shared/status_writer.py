"""Writes a changed status of an object, at most once a second."""

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
    """The part of an object's view that a status write needs."""

    @property
    def status(self) -> S_co: ...


@dataclass
class LastWrite:
    """The time of an object's last status write, in the controller's memory of the object."""

    at: float = float("-inf")


@dataclass(frozen=True)
class StatusUpdate:
    written: bool = False
    wait_seconds: float | None = None
    """Time until the next write is allowed, or None if this write was not postponed."""


@dataclass
class StatusWriter(Generic[S]):
    api: Api
    resource: Resource
    clock: Callable[[], float]
    interval_seconds: float = INTERVAL_SECONDS

    async def update(self, view: View[S], fresh: S, last: LastWrite) -> StatusUpdate:
        """Writes the status if it differs from the view's, and if the last write is old enough."""
        if fresh == view.status:
            return StatusUpdate()
        wait = last.at + self.interval_seconds - self.clock()
        if wait > 0:
            return StatusUpdate(wait_seconds=wait)
        await self.write(view, fresh, last)
        return StatusUpdate(written=True)

    async def write(self, view: View[S], fresh: S, last: LastWrite) -> None:
        with suppress(NotFound):  # the object has been deleted
            await self.api.patch(
                self.resource, view.namespace, view.name, status_patch(fresh, view.uid), subresource="status"
            )
        last.at = self.clock()


def status_patch(status: Model, uid: str, resource_version: str = "") -> Json:
    """The merge patch of a status.

    Absent fields are null, also inside objects, because a merge would keep their old values. The UID makes the API
    server refuse the patch
    for another object of the same name. The resourceVersion makes it refuse the patch for a changed object."""
    metadata: dict[str, Any] = {"uid": uid}
    if resource_version:
        metadata["resourceVersion"] = resource_version
    return {"metadata": metadata, "status": _with_nulls(status)}


def _with_nulls(model: Model) -> Json:
    written = model.json()
    found: Json = {}
    for name, alias in zip(type(model).model_fields, model.model_dump(by_alias=True), strict=True):
        value = getattr(model, name)
        found[alias] = _with_nulls(value) if isinstance(value, Model) else written.get(alias)
    return found
