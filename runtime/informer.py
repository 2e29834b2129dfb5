"""What the API server has, kept near: a small frozen view of every object, with indexes, and those who want to hear.

An informer alone has a feed of its own. Who connects several lets those of one resource share one: see `shared`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Generic, NoReturn, TypeVar

from apimachinery.label_selectors import from_string, matches
from runtime.api import Api
from runtime.reflector import PAGE, Document, Reflector, log_unreadable
from runtime.resource import Key, Resource
from runtime.store import Store

log = logging.getLogger(__name__)

V = TypeVar("V")


class Informer(Generic[V]):
    def __init__(
        self,
        api: Api,
        resource: Resource,
        view: Callable[[Document], V],
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        name: str | None = None,
        indexes: Mapping[str, Callable[[V], Iterable[Hashable]]] | None = None,
        page: int = PAGE,
    ) -> None:
        """`view` makes the small frozen value that is kept of a document; the document itself is let go. With `name`
        it follows that object alone, for who may see no other."""
        self.store: Store[V] = Store(indexes)
        self.resource = resource
        self.namespace = namespace
        self.label_selector = label_selector
        self.name = name
        self.reflector = Reflector(
            api, resource, [self], namespace=namespace, label_selector=label_selector, name=name, page=page
        )
        self.api = api
        self._view = view
        self._selector = from_string(label_selector) if label_selector else {}
        self._subscribers: list[Callable[[V | None, V | None], None]] = []
        self._synced = asyncio.Event()

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

    @property
    def problem(self) -> str | None:
        """Why it cannot see the server now, for whoever asks whether the service is ready."""
        return self.reflector.problem

    async def run(self) -> NoReturn:
        await self.reflector.run()

    # What its feed has

    def gather(self, key: Key, document: Document, gathered: dict[Key, V], *, known: bool) -> None:
        kept = self.store.get(key)
        if known and kept is not None:
            gathered[key] = kept
        elif self._selects(document):
            try:
                gathered[key] = self._view(document)
            except Exception:
                log_unreadable(self.resource, document)
                # It exists, so the last view that could be made of it stays: gone would be worse than old.
                if kept is not None:
                    gathered[key] = kept

    def replace(self, gathered: dict[Key, V]) -> None:
        for key in list(self.store.keys()):
            if key not in gathered:
                self.forget(key)
        for key, view in gathered.items():
            self._keep(key, view)
        self._synced.set()

    def change(self, key: Key, document: Document) -> None:
        if not self._selects(document):
            self.forget(key)
            return
        try:
            view = self._view(document)
        except Exception:
            log_unreadable(self.resource, document)
        else:
            self._keep(key, view)

    def forget(self, key: Key) -> None:
        old = self.store.drop(key)
        if old is not None:
            self._tell(old, None)

    def _selects(self, document: Document) -> bool:
        # The server has left out what only others want, unless the feed is theirs too.
        return not self._selector or matches(self._selector, document["metadata"].get("labels"))

    def _keep(self, key: Key, view: V) -> None:
        old = self.store.put(key, view)
        if old is None or old != view:
            self._tell(old, view)

    def _tell(self, old: V | None, new: V | None) -> None:
        for changed in self._subscribers:
            self._call(changed, old, new)

    def _call(self, changed: Callable[[V | None, V | None], None], old: V | None, new: V | None) -> None:
        try:
            changed(old, new)
        except Exception:
            log.exception("%s: a subscriber failed", self.resource.plural)


def shared_reflectors(informers: Iterable[Informer[Any]]) -> list[Reflector]:
    """What is to run instead of the informers: one feed for all of a resource. Those that want a part of it by labels
    take that part themselves then; where nobody wants the whole, it is still the server that leaves the rest out. Who
    follows one object shares with nobody."""
    found = list(informers)
    alone, every = [i.reflector for i in found if i.name], [i for i in found if not i.name]
    whole = {(i.resource, i.namespace) for i in every if not i.label_selector}
    together: dict[tuple[Resource, str | None, str | None], list[Informer[Any]]] = {}
    for i in every:
        selector = None if (i.resource, i.namespace) in whole else i.label_selector
        together.setdefault((i.resource, i.namespace, selector), []).append(i)
    return [*alone, *(_joined(some, selector) for (_, _, selector), some in together.items())]


def _joined(informers: list[Informer[Any]], label_selector: str | None) -> Reflector:
    first = informers[0]
    if len(informers) == 1:
        return first.reflector
    feed = Reflector(first.api, first.resource, informers, namespace=first.namespace, label_selector=label_selector)
    for informer in informers:
        informer.reflector = feed
    return feed
