"""The views that an informer keeps, with indexes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, KeysView, Mapping
from typing import Generic, TypeVar

from runtime.resource import Key

V = TypeVar("V")


class Store(Generic[V]):
    """Read by everyone, written by its informer alone."""

    def __init__(self, indexes: Mapping[str, Callable[[V], Iterable[Hashable]]] | None = None) -> None:
        self._views: dict[Key, V] = {}
        self._indexes = dict(indexes or {})
        # Keys are kept as a dict for its order: the same events give the same lists, and so the same plans.
        self._found: dict[str, dict[Hashable, dict[Key, None]]] = {name: {} for name in self._indexes}

    def get(self, key: Key) -> V | None:
        return self._views.get(key)

    def by(self, index: str, value: Hashable) -> list[V]:
        return [self._views[key] for key in self._found[index].get(value, ())]

    def all(self) -> list[V]:
        return list(self._views.values())

    def keys(self) -> KeysView[Key]:
        return self._views.keys()

    def __len__(self) -> int:
        return len(self._views)

    def __iter__(self) -> Iterator[V]:
        return iter(self.all())

    def put(self, key: Key, view: V) -> V | None:
        """Returns what was there."""
        old = self.drop(key) if key in self._views else None
        self._views[key] = view
        for name, index in self._indexes.items():
            for value in index(view):
                self._found[name].setdefault(value, {})[key] = None
        return old

    def drop(self, key: Key) -> V | None:
        view = self._views.pop(key, None)
        if view is None:
            return None
        for name, index in self._indexes.items():
            for value in index(view):
                keys = self._found[name][value]
                keys.pop(key, None)
                if not keys:
                    del self._found[name][value]
        return view
