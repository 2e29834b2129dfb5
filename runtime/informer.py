"""What the API server has, kept near: list, then watch, for ever.

The store is never behind by more than a watch's delay for long, whatever the server does: an event that was missed is
found by the next full list, one that comes twice changes nothing, and one that comes late is known by its
resourceVersion.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Generic, NoReturn, TypeVar

from runtime.api import Api, Resource
from runtime.backoff import Backoff, fraction
from runtime.errors import ApiError, Expired, Unreachable
from runtime.resource import Key, key_of
from runtime.store import Store

__all__ = ["Informer", "Key", "Store"]

log = logging.getLogger(__name__)

V = TypeVar("V")

# The cap is what a store may be late after the API server was away for long.
PAUSES = Backoff(base_seconds=0.5, cap_seconds=10)
# A server that calls each of its own lists expired is not asked for the next one so soon: lists are dear.
LISTS = Backoff(base_seconds=0.5, cap_seconds=60)
# A watch that lived this long was a good one: the next failure is again a first one.
GOOD_SECONDS = 30.0
WATCH_SECONDS = 300.0
# Watches have lost events before (bugs of caches, etcd restored from a backup). What no event will ever repair is
# repaired by a full list, so rarely that it costs nothing.
RELIST_SECONDS = 1800.0
# So many watches in a row that the server refused: perhaps it is our resourceVersion that it can't serve.
REFUSED_LIMIT = 3
# Of 1,000 VMs of 6 KB: with 500 to a page the process keeps 30 MB that it needed once and the loop stands still for
# 0.15 s; with 200 it's 13 MB and 0.05 s.
PAGE = 200


class Informer(Generic[V]):
    def __init__(
        self,
        api: Api,
        resource: Resource,
        view: Callable[[dict[str, Any]], V],
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        indexes: Mapping[str, Callable[[V], Iterable[Hashable]]] | None = None,
        page: int = PAGE,
    ) -> None:
        """`view` makes the small frozen value that is kept of a document; the document itself is let go."""
        self.store: Store[V] = Store(indexes)
        self.resource = resource
        self.problem: str | None = "not listed yet"
        """Why it cannot see the server now, for whoever asks whether the service is ready."""
        self._api = api
        self._view = view
        self._namespace = namespace
        self._label_selector = label_selector
        self._page = page
        self._subscribers: list[Callable[[V | None, V | None], None]] = []
        self._synced = asyncio.Event()
        self._identity = f"{api.identity}/{resource.plural}"
        # The version to watch from; None when only a list will do.
        self._version: str | None = None
        self._listed_at = 0.0
        # Of every object kept, and of those deleted since the last bookmark: an event with a lower one is an old one.
        self._versions: dict[Key, str] = {}
        self._deleted: dict[Key, str] = {}
        self._failures = 0
        self._refused = 0
        self._expired = 0
        self._watches = 0
        metrics = api.metrics
        self._count = metrics.informer_objects.labels(resource.plural)
        self._lists = metrics.informer_lists
        self._events = metrics.informer_events
        self._contact = metrics.informer_contact.labels(resource.plural)

    def subscribe(self, changed: Callable[[V | None, V | None], None]) -> None:
        """Calls `changed(old, new)` for every view that there is and for every change; old is None for a new object,
        new is None for one that is gone. It must be quick, and whatever it raises is logged and forgotten."""
        self._subscribers.append(changed)
        for view in self.store.all():
            self._call(changed, None, view)

    async def synced(self) -> None:
        """Returns when the store has held everything once."""
        await self._synced.wait()

    @property
    def is_synced(self) -> bool:
        return self._synced.is_set()

    async def run(self) -> NoReturn:
        while True:
            pause = await self.turn()
            await asyncio.sleep(pause)

    async def turn(self) -> float:
        """One list if one is needed, one watch to its end; returns how long to pause before the next turn."""
        loop = asyncio.get_running_loop()
        watching_since: float | None = None
        seen = 0
        problem: ApiError | None = None
        try:
            if self._version is None or loop.time() - self._listed_at > self._relist_seconds():
                await self._list()
            watching_since = loop.time()
            seen = await self._follow()
        except ApiError as error:
            problem = error
            self._answer(error)
        # Not for having seen something: a server that gives one event and hangs up would be asked without a pause.
        if watching_since is not None and loop.time() - watching_since >= GOOD_SECONDS:
            self._failures = self._refused = self._expired = 0
        else:
            self._failures = 1 if seen and problem is None else self._failures + 1
        pause = PAUSES.delay(self._failures, self._identity)
        if problem is not None:
            pause = max(pause, LISTS.delay(self._expired, self._identity), problem.retry_after_seconds or 0.0)
            log.warning("%s: %s; again in %.1f s", self.resource.plural, problem, pause)
        return pause

    def _answer(self, error: ApiError) -> None:
        """What an error means for where to go on from."""
        self.problem = str(error)
        if isinstance(error, Expired):
            self._version = None
            self._expired += 1
        elif not isinstance(error, Unreachable):
            # 504 with this cause is how the server says that it has never heard of our version: it has gone back in
            # time.
            future = any(cause.get("reason") == "ResourceVersionTooLarge" for cause in error.causes)
            self._refused += 1
            if future or self._refused >= REFUSED_LIMIT:
                self._version, self._refused = None, 0

    # List

    async def _list(self) -> None:
        views: dict[Key, tuple[str, V]] = {}
        version = ""
        outcome = "failed"
        try:
            pages = self._api.pages(
                self.resource, self._namespace, label_selector=self._label_selector, page=self._page
            )
            async with aclosing(pages):
                async for items, version in pages:  # noqa: B007
                    for document in items:
                        self._gather(document, views)
                    del items  # the page is let go before the next one is asked for
            outcome = "done"
        finally:
            self._lists.labels(self.resource.plural, outcome).inc()
        self._version = version
        self._listed_at = asyncio.get_running_loop().time()
        self._deleted.clear()
        for key in [key for key in self._versions if key not in views]:
            self._forget(key)
        for key, (number, view) in views.items():
            self._keep(key, number, view)
        self._seen()
        self._synced.set()

    def _gather(self, document: dict[str, Any], views: dict[Key, tuple[str, V]]) -> None:
        try:
            key = key_of(document)
        except Exception:
            return self._unreadable(document)
        kept = self.store.get(key)
        number = str(document["metadata"].get("resourceVersion", ""))
        # The same version is the same object: the view we have serves, and nobody needs to hear of it.
        if kept is not None and number and self._versions[key] == number:
            views[key] = number, kept
            return None
        try:
            views[key] = number, self._view(document)
        except Exception:
            self._unreadable(document)
            # It exists, so the last view that could be made of it stays: gone would be worse than old.
            if kept is not None:
                views[key] = self._versions[key], kept

    def _relist_seconds(self) -> float:
        return RELIST_SECONDS * (1 + 0.2 * fraction(f"{self._identity}:relist"))

    # Watch

    async def _follow(self) -> int:
        """Applies a watch's events until it ends; returns how many there were."""
        assert self._version is not None
        self._watches += 1
        # Ends are spread, or all the watches that began together would all be renewed together.
        seconds = WATCH_SECONDS * (1 - 0.3 * fraction(f"{self._identity}#{self._watches}"))
        seen = 0
        events = self._api.watch(
            self.resource,
            self._namespace,
            resource_version=self._version,
            label_selector=self._label_selector,
            timeout_seconds=seconds,
        )
        async with aclosing(events):
            async for kind, document in events:
                self._apply(kind, document)
                self._events.labels(self.resource.plural, kind).inc()
                seen += 1
        self._seen()
        return seen

    def _apply(self, kind: str, document: dict[str, Any]) -> None:
        metadata = document.get("metadata")
        number = str(metadata.get("resourceVersion") or "") if isinstance(metadata, dict) else ""
        if not number:
            raise Unreachable(f"an event {kind} without a resourceVersion", call=f"watch {self.resource.plural}")
        if kind == "BOOKMARK":
            # Everything up to here was sent, so nothing older can still come.
            self._deleted.clear()
        else:
            self._change(kind, number, document)
        if self._version is None or not older(number, self._version):
            self._version = number
        self._seen()

    def _change(self, kind: str, number: str, document: dict[str, Any]) -> None:
        try:
            key = key_of(document)
            known = self._versions.get(key) or self._deleted.get(key)
            if known is not None and older(number, known):
                return
            if kind == "DELETED":
                self._forget(key)
                self._deleted[key] = number
            elif self._deleted.get(key) != number:
                self._deleted.pop(key, None)
                self._keep(key, number, self._view(document))
        except Exception:
            self._unreadable(document)

    # Store

    def _keep(self, key: Key, number: str, view: V) -> None:
        self._versions[key] = number
        old = self.store.put(key, view)
        self._count.set(len(self.store))
        if old is None or old != view:
            self._tell(old, view)

    def _forget(self, key: Key) -> None:
        self._versions.pop(key, None)
        old = self.store.drop(key)
        self._count.set(len(self.store))
        if old is not None:
            self._tell(old, None)

    def _tell(self, old: V | None, new: V | None) -> None:
        for changed in self._subscribers:
            self._call(changed, old, new)

    def _call(self, changed: Callable[[V | None, V | None], None], old: V | None, new: V | None) -> None:
        try:
            changed(old, new)
        except Exception:
            log.exception("%s: a subscriber failed", self.resource.plural)

    def _seen(self) -> None:
        self.problem = None
        self._contact.set(time.time())

    def _unreadable(self, document: dict[str, Any]) -> None:
        """One object that no view can be made of must not blind us to all the others."""
        metadata = document.get("metadata")
        name = (
            {k: metadata.get(k) for k in ("namespace", "name")} if isinstance(metadata, dict) else repr(document)[:200]
        )
        log.exception("%s: cannot read %s", self.resource.plural, name)


def older(number: str, than: str) -> bool:
    """Whether a resourceVersion is certainly the older one. Those of the API server are numbers that grow; what an
    aggregated server makes of them is its own affair and is taken as it comes."""
    return number.isdecimal() and than.isdecimal() and int(number) < int(than)
