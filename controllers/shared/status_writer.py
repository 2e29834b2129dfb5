"""Writes a changed status of an object, at most once a second, with the decisions since the last write."""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from controllers.shared.decisions import has_deletion, merge_decisions, without_recorded
from poolhouse.api.kinds.decisions import MAX_DECISIONS, Decision, LoggedStatus
from poolhouse.api.kinds.model import Model
from poolhouse.runtime.api import Api, JSONPatch
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.events import ObjectMeta
from poolhouse.runtime.resource import Resource

S = TypeVar("S", bound=Model)
S_co = TypeVar("S_co", bound=Model, covariant=True)

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0
PRUNED_SECONDS = 60.0
"""Time after which a status is written again of which the API server has dropped a field. No event shows that the CRD
has the field again."""
OWN_VERSIONS = 16
"""number of own writes whose events are recognized; a watch that is further behind shows older events as foreign"""


class View(ObjectMeta, Protocol[S_co]):
    """The part of an object's view that a status write needs."""

    @property
    def status(self) -> S_co: ...


@dataclass
class LastWrite:
    """The controller's memory of the writes of an object's status."""

    at: float = float("-inf")
    decisions: list[Decision] = field(default_factory=list)
    """decisions that the stored status may lack"""
    unwritten: list[Decision] = field(default_factory=list)
    """those that no write has contained. Each causes one write at most: the log is bounded, so that a decision that it
    does not have may have been written."""

    versions: deque[str] = field(default_factory=lambda: deque(maxlen=OWN_VERSIONS))
    """resourceVersions of the object after the last writes"""

    def is_foreign(self, resource_version: str) -> bool:
        """Whether an event shows no own write of the status. Another process may have written it, which also believes
        that it leads. A controller adopts counts and times that such a process has changed, because otherwise each
        process would replace the other's in the status by its own."""
        return resource_version not in self.versions

    def record(self, decisions: Iterable[Decision]) -> None:
        new = list(decisions)
        self.decisions = [*self.decisions, *new][-MAX_DECISIONS:]
        self.unwritten = [*self.unwritten, *new][-MAX_DECISIONS:]

    def forget_decisions(self) -> None:
        self.decisions.clear()
        self.unwritten.clear()

    def record_deletion(self, deletion: Decision, stored: LoggedStatus) -> None:
        """Records the deletion of one VM, unless the memory or the stored status has it for any reason."""
        if not has_deletion((*self.decisions, *stored.decisions), deletion.vms[0]):
            self.record([deletion])


@dataclass(frozen=True)
class StatusUpdate:
    written: bool = False
    wait_seconds: float | None = None
    """Time until the next write is allowed or useful, or None if the status is as it should be."""


@dataclass
class StatusWriter(Generic[S]):
    api: Api
    resource: Resource
    clock: Callable[[], float]
    interval_seconds: float = INTERVAL_SECONDS

    async def update(
        self, view: View[S], fresh: S, last: LastWrite, *, interval_seconds: float | None = None
    ) -> StatusUpdate:
        """Writes the status if it differs from the view's or there are new decisions, and if the last write is old
        enough. The interval is shorter for a status that something waits for."""
        if last.decisions and isinstance(view.status, LoggedStatus):
            last.decisions = without_recorded(last.decisions, view.status.decisions)
            last.unwritten = without_recorded(last.unwritten, view.status.decisions)
        if fresh == view.status and not last.unwritten:
            return StatusUpdate()
        wait = last.at + (self.interval_seconds if interval_seconds is None else interval_seconds) - self.clock()
        if wait > 0:
            return StatusUpdate(wait_seconds=wait)
        complete = await self.write(view, fresh, last)
        return StatusUpdate(written=True, wait_seconds=None if complete else PRUNED_SECONDS)

    async def write(self, view: View[S], fresh: S, last: LastWrite) -> bool:
        """Returns whether the CRD has all fields. Raises Invalid if the name now belongs to another object."""
        lost: set[str] = set()
        written = list(last.decisions)
        change = status_patch(_with_decisions(fresh, written), uid=view.uid)
        with suppress(NotFound):  # the object has been deleted
            stored = await self.api.patch(
                self.resource, view.namespace, view.name, change, kind="json", subresource="status"
            )
            last.versions.append(stored["metadata"]["resourceVersion"])
            lost = change[-1]["value"].keys() - (stored.get("status") or {}).keys()
        last.at = self.clock()
        # An event may have added one during the request.
        last.unwritten = without_recorded(last.unwritten, written)
        if lost:
            kind, fields = self.resource.kind, ", ".join(sorted(lost))
            log.warning("%s %s/%s: the CRD of another release drops status.%s", kind, view.namespace, view.name, fields)
        return not lost


def _with_decisions(status: S, decisions: list[Decision]) -> S:
    if not decisions or not isinstance(status, LoggedStatus):
        return status
    return status.model_copy(update={"decisions": merge_decisions(status.decisions, decisions)})


def status_patch(status: Model, *, uid: str = "", resource_version: str = "") -> JSONPatch:
    """The JSON patch of a whole status.

    With the UID, the API server refuses the patch (Invalid) for another object of the same name. A merge patch cannot
    do that, because a write of the status ignores all metadata except the resourceVersion. With the resourceVersion,
    the API server refuses the patch (Conflict) for a changed object."""
    known: JSONPatch = []
    if uid:
        known.append({"op": "test", "path": "/metadata/uid", "value": uid})
    if resource_version:
        known.append({"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version})
    return [*known, {"op": "add", "path": "/status", "value": status.json()}]
