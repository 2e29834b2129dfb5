"""Keeps a small frozen view of every object of a resource, with indexes, and calls handlers after changes.

Each informer has its own reflector, unless `shared_reflectors` gives several informers a common one.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Generic, NoReturn, TypeVar

from poolhouse.api.apimachinery.label_selectors import from_string, matches
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, NotServed
from poolhouse.runtime.reflector import PAGE_SIZE, Reflector, log_unreadable
from poolhouse.runtime.resource import Key, Resource
from poolhouse.runtime.store import Store

log = logging.getLogger(__name__)

V = TypeVar("V")


class Informer(Generic[V]):
    def __init__(
        self,
        api: Api,
        resource: Resource,
        view: Callable[[Json], V],
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        name: str | None = None,
        indexes: Mapping[str, Callable[[V], Iterable[Hashable]]] | None = None,
        page: int = PAGE_SIZE,
    ) -> None:
        """`view` converts a document to the value that the store keeps. With `name` the informer watches only that
        object, and needs no right to list others."""
        self.store: Store[V] = Store(indexes)
        self.resource, self.namespace, self.name = resource, namespace, name
        self.label_selector, self.field_selector = label_selector, field_selector
        self.reflector = Reflector(
            api,
            resource,
            [self],
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            name=name,
            page=page,
        )
        self.api, self._view = api, view
        self._selector = from_string(label_selector) if label_selector else {}
        self._handlers: list[Callable[[V | None, V | None], None]] = []
        self._synced, self._answered = asyncio.Event(), asyncio.Event()

    def subscribe(self, changed: Callable[[V | None, V | None], None]) -> None:
        """Calls `changed(old, new)` for each view in the store and for each later change. `old` is None for a new
        object, `new` for a deleted object. The handler must return quickly; the informer logs its exceptions."""
        self._handlers.append(changed)
        for view in self.store.all():
            self._call(changed, None, view)

    async def synced(self) -> None:
        """Waits until the first list is complete."""
        await self._synced.wait()

    async def answered(self) -> None:
        """Waits until the first list is complete, or the API server has said that it does not serve the resource."""
        self.reflector.on_error.append(self._failed)
        if self.error is not None:
            self._failed(self.error)
        await self._answered.wait()

    def _failed(self, error: ApiError) -> None:
        if isinstance(error, NotServed):
            self._answered.set()

    @property
    def is_synced(self) -> bool:
        return self._synced.is_set()

    @property
    def problem(self) -> str | None:
        """Why the informer cannot list or watch now, for /readyz; None if it can."""
        return self.reflector.problem

    @property
    def error(self) -> ApiError | None:
        """The error of `problem`; None also before the first answer."""
        return self.reflector.error

    async def run(self) -> NoReturn:
        await self.reflector.run()

    # The methods of a `ReflectorConsumer`

    def gather(self, key: Key, document: Json, gathered: dict[Key, V], *, known: bool) -> None:
        kept = self.store.get(key)
        if known and kept is not None:
            gathered[key] = kept
        elif self._selects(document):
            try:
                gathered[key] = self._view(document)
            except Exception:
                log_unreadable(self.resource, document)
                # The object still exists, so the store keeps its last valid view.
                if kept is not None:
                    gathered[key] = kept

    def replace(self, gathered: dict[Key, V]) -> None:
        for key in list(self.store.keys()):
            if key not in gathered:
                self.forget(key)
        for key, view in gathered.items():
            self._put(key, view)
        self._synced.set()
        self._answered.set()

    def change(self, key: Key, document: Json) -> None:
        if not self._selects(document):
            self.forget(key)
            return
        try:
            view = self._view(document)
        except Exception:
            log_unreadable(self.resource, document)
        else:
            self._put(key, view)

    def forget(self, key: Key) -> None:
        old = self.store.drop(key)
        if old is not None:
            self._notify(old, None)

    def _selects(self, document: Json) -> bool:
        # The API server does not select if the reflector is shared with an informer of other objects.
        return not self._selector or matches(self._selector, document["metadata"].get("labels"))

    def _put(self, key: Key, view: V) -> None:
        try:
            old = self.store.put(key, view)
        except Exception:  # an index cannot read the view: one object must not stop the others
            log.exception("%s: cannot index %s", self.resource.plural, key)
            return
        if old is None or old != view:
            self._notify(old, view)

    def _notify(self, old: V | None, new: V | None) -> None:
        for changed in self._handlers:
            self._call(changed, old, new)

    def _call(self, changed: Callable[[V | None, V | None], None], old: V | None, new: V | None) -> None:
        try:
            changed(old, new)
        except Exception:
            log.exception("%s: an event handler failed", self.resource.plural)


def shared_reflectors(informers: Iterable[Informer[Any]]) -> list[Reflector]:
    """Creates the reflectors of these informers: one for each resource, namespace and selector.

    If one of the informers has no label selector, the others select by label themselves; else the API server selects.
    The API server always selects by field. An informer of a single object keeps its own reflector.
    """
    all_informers = list(informers)
    alone = [i.reflector for i in all_informers if i.name]
    others = [i for i in all_informers if not i.name]
    unselected = {(i.resource, i.namespace, i.field_selector) for i in others if not i.label_selector}
    groups: dict[tuple[Resource, str | None, str | None, str | None], list[Informer[Any]]] = {}
    for i in others:
        selector = None if (i.resource, i.namespace, i.field_selector) in unselected else i.label_selector
        groups.setdefault((i.resource, i.namespace, i.field_selector, selector), []).append(i)
    return [*alone, *(_shared(group, selector) for (*_, selector), group in groups.items())]


def _shared(informers: list[Informer[Any]], label_selector: str | None) -> Reflector:
    first = informers[0]
    if len(informers) == 1:
        return first.reflector
    reflector = Reflector(
        first.api,
        first.resource,
        informers,
        namespace=first.namespace,
        label_selector=label_selector,
        field_selector=first.field_selector,
    )
    for informer in informers:
        informer.reflector = reflector
    return reflector
