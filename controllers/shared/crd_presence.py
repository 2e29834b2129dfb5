"""Runs work while a CRD exists, and restarts the work when the CRD is created again.

KubeVirt may be installed after Poolhouse, with CRDs that Poolhouse reads or that Poolhouse would otherwise own.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, Literal, NoReturn, TypeVar

from apimachinery.unstructured import Json
from kinds.kind import Kind
from kinds.meta import is_installed_by_us
from runtime.api import Api
from runtime.errors import ApiError, NotFound
from runtime.informer import Informer
from runtime.resource import Resource

log = logging.getLogger(__name__)

V = TypeVar("V")

POLL_SECONDS = 30.0
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)

Owner = Literal["ours", "foreign", "absent"]
MESSAGES: dict[Owner, str] = {
    "ours": "the CRD %s is Poolhouse's: the controller works",
    "foreign": "the CRD %s is not Poolhouse's: the controller does nothing",
    "absent": "the CRD %s is not installed: the controller waits for it",
}

Check = Callable[[], Awaitable[bool | None]]
"""Returns whether the CRD exists, or None if the API server did not answer. None changes nothing."""


async def run_while_present(
    check: Check,
    work: Callable[[], Coroutine[Any, Any, None]],
    *,
    poll_seconds: float,
    on_absent: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Starts `work` when the CRD exists, and cancels it when the CRD is deleted."""
    while True:
        present = await check()
        if present:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(work(), name="crd-work")
                while present is not False:
                    await asyncio.sleep(poll_seconds)
                    present = await check()
                task.cancel()
        if present is False:
            on_absent()
        await asyncio.sleep(poll_seconds)


class OwnCRD:
    """Checks whether the CRD of a kind is Poolhouse's. Two controllers of one object would both create its VMs."""

    def __init__(self, api: Api, kind: Kind) -> None:
        self._api, self._name = api, kind.crd_name
        self._known: Owner | None = None

    async def check(self) -> bool | None:
        try:
            owner: Owner = "ours" if is_installed_by_us(await self._api.get(CRDS, None, self._name)) else "foreign"
        except NotFound:
            owner = "absent"
        except ApiError as error:
            log.warning("cannot read the CRD %s: %s", self._name, error)
            return None
        if owner != self._known:
            self._known = owner
            log.info(MESSAGES[owner], self._name)
        return owner == "ours"


class OptionalInformer(Generic[V]):
    """An informer of a resource that the cluster may not serve.

    A plain informer of such a resource would never sync, and would log a warning every 30 seconds."""

    def __init__(
        self, api: Api, resource: Resource, view: Callable[[Json], V], *, poll_seconds: float = POLL_SECONDS
    ) -> None:
        self.known = False
        """True once the cluster is known not to serve the resource, or once all its objects are listed."""
        self._api, self._resource, self._view, self._poll_seconds = api, resource, view, poll_seconds
        self._following: Informer[V] | None = None
        """the running informer, synced or not"""
        self._informer: Informer[V] | None = None
        """the running informer, once it is synced"""
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Calls `changed()` when an object or `known` changes."""
        self._subscribers.append(changed)

    @property
    def served(self) -> bool:
        return self._informer is not None

    @property
    def all(self) -> list[V]:
        return self._informer.store.all() if self._informer is not None else []

    def get(self, name: str, namespace: str = "") -> V | None:
        return self._informer.store.get((namespace, name)) if self._informer is not None else None

    async def run(self) -> NoReturn:
        try:
            await run_while_present(
                self._is_served, self._follow, poll_seconds=self._poll_seconds, on_absent=self._absent
            )
        finally:
            # A later run must not use the objects of this run.
            self._informer, self.known = None, False

    async def _follow(self) -> None:
        informer = self._following = Informer(self._api, self._resource, self._view)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(informer.run())
                await informer.synced()
                self._informer, self.known = informer, True
                self._tell()
                informer.subscribe(lambda old, new: self._tell())
        finally:
            self._following = None

    def _absent(self) -> None:
        if self._informer is not None or not self.known:
            self._informer, self.known = None, True
            self._tell()

    async def _is_served(self) -> bool | None:
        # A working informer proves that the resource is served, without a request.
        if self._following is not None and self._following.problem is None:
            return True
        resource = self._resource
        try:
            found = await self._api.request("GET", f"/apis/{resource.group}/{resource.version}")
        except NotFound:
            return False
        except ApiError as error:
            log.warning("cannot discover %s.%s: %s", resource.plural, resource.group, error)
            return None
        return any(each.get("name") == resource.plural for each in found.get("resources") or ())

    def _tell(self) -> None:
        for changed in self._subscribers:
            changed()
