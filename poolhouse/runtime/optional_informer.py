"""An informer of a resource that the cluster may not serve: it works while the resource is served.

KubeVirt may be installed after Poolhouse, with resources that Poolhouse reads.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Mapping
from typing import Any, Generic, NoReturn, TypeVar

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.backoff import Backoff
from poolhouse.runtime.errors import ApiError, Forbidden, NotFound
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.resource import Resource

log = logging.getLogger(__name__)

V = TypeVar("V")

POLL_SECONDS = 30.0
ABSENT = Backoff(base_seconds=1, cap_seconds=POLL_SECONDS, factor=1.5)
"""Pauses while the resource is absent since the start. A stack that starts serves its resources one after another, and
a program that has not seen KubeVirt yet answers as if there were none."""

Check = Callable[[], Awaitable[bool | None]]
"""Returns whether the resource is served. None if the API server did not answer: the informer stays as it is."""


async def run_while_present(
    check: Check,
    work: Callable[[], Coroutine[Any, Any, None]],
    *,
    poll_seconds: float,
    on_absent: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Starts `work` when the resource is served, and cancels it when the resource disappears. While it is absent, the
    pause between two checks grows to `poll_seconds`."""
    absent = 0
    while True:
        present = await check()
        absent = 1 if present else absent + 1
        if present:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(work(), name="work-while-present")
                while present is not False:
                    await asyncio.sleep(poll_seconds)
                    present = await check()
                task.cancel()
        if present is False:
            on_absent()
        await asyncio.sleep(min(poll_seconds, ABSENT.delay(absent)))


class OptionalInformer(Generic[V]):
    """An informer of a resource that the cluster may not serve.

    A plain informer of such a resource would never sync, and would log a warning every 30 seconds."""

    def __init__(
        self,
        api: Api,
        resource: Resource,
        view: Callable[[Json], V],
        *,
        indexes: Mapping[str, Callable[[V], Iterable[Hashable]]] | None = None,
        label_selector: str | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self.known = False
        """True once the cluster is known not to serve the resource, or once all its objects are listed."""
        self._api, self._resource, self._view, self._poll_seconds = api, resource, view, poll_seconds
        self._indexes, self._label_selector = indexes, label_selector
        self._following: Informer[V] | None = None
        """the running informer, synced or not"""
        self._informer: Informer[V] | None = None
        """the running informer, once it is synced"""
        self._subscribers: list[Callable[[], None]] = []
        self._on_served: list[Callable[[], None]] = []
        self._handlers: list[Callable[[V | None, V | None], None]] = []
        self._settled = asyncio.Event()
        self._running = asyncio.Lock()

    async def settled(self, timeout_seconds: float) -> bool:
        """Waits until `known` is true, or the API server refuses the right to list the objects. Returns `known`."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._settled.wait()
        except TimeoutError:
            log.warning("cannot read %s.%s yet", self._resource.plural, self._resource.group)
        return self.known

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Calls `changed()` when an object or `known` changes."""
        self._subscribers.append(changed)

    def subscribe_served(self, changed: Callable[[], None]) -> None:
        """Calls `changed()` once it is known whether the resource is served, and when this changes."""
        self._on_served.append(changed)

    def subscribe_objects(self, changed: Callable[[V | None, V | None], None]) -> None:
        """Calls `changed(old, new)` for each object, as `Informer.subscribe` does. Call it before `run`. The objects of
        a resource that disappears cause no call."""
        self._handlers.append(changed)

    @property
    def served(self) -> bool:
        return self._informer is not None

    @property
    def all(self) -> list[V]:
        return self._informer.store.all() if self._informer is not None else []

    def get(self, name: str, namespace: str = "") -> V | None:
        return self._informer.store.get((namespace, name)) if self._informer is not None else None

    def by(self, index: str, value: Hashable) -> list[V]:
        return self._informer.store.by(index, value) if self._informer is not None else []

    async def run(self) -> NoReturn:
        """Several users may run the informer. One of them works, and if it is cancelled, another one goes on."""
        async with self._running:
            try:
                await run_while_present(
                    self._is_served, self._follow, poll_seconds=self._poll_seconds, on_absent=self._absent
                )
            finally:
                # A later run must not use the objects of this run.
                self._informer, self.known = None, False
                self._settled.clear()

    async def _follow(self) -> None:
        informer = self._following = Informer(
            self._api, self._resource, self._view, indexes=self._indexes, label_selector=self._label_selector
        )
        informer.reflector.on_error.append(self._failed)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(informer.run())
                await informer.synced()
                self._informer, self.known = informer, True
                self._served_changed()
                informer.subscribe(lambda old, new: self._tell())
                for changed in self._handlers:
                    informer.subscribe(changed)
        finally:
            self._following = None

    def _failed(self, error: ApiError) -> None:
        if isinstance(error, Forbidden):  # a right that somebody grants later is noticed later
            self._settled.set()

    def _absent(self) -> None:
        if self._informer is not None or not self.known:
            self._informer, self.known = None, True
            self._served_changed()

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

    def _served_changed(self) -> None:
        self._settled.set()
        for changed in self._on_served:
            changed()
        self._tell()

    def _tell(self) -> None:
        for changed in self._subscribers:
            changed()
