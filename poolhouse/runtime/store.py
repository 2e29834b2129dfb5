"""The views that an informer keeps, with indexes, like client-go's `Indexer`."""

from collections.abc import Callable, Hashable, Iterable, Iterator, KeysView, Mapping
from typing import Generic, TypeVar

from poolhouse.runtime.resource import Key

V = TypeVar("V")


class Store(Generic[V]):
    """The views by key. Only the informer of a store changes the store."""

    def __init__(self, indexes: Mapping[str, Callable[[V], Iterable[Hashable]]] | None = None) -> None:
        self._views: dict[Key, V] = {}
        self._indexes = dict(indexes or {})
        # The keys are in dicts because dicts are ordered. The same events therefore give the same lists and plans.
        self._keys: dict[str, dict[Hashable, dict[Key, None]]] = {name: {} for name in self._indexes}

    def get(self, key: Key) -> V | None:
        return self._views.get(key)

    def by(self, index: str, value: Hashable) -> list[V]:
        return [self._views[key] for key in self._keys[index].get(value, ())]

    def all(self) -> list[V]:
        return list(self._views.values())

    def keys(self) -> KeysView[Key]:
        return self._views.keys()

    def __len__(self) -> int:
        return len(self._views)

    def __iter__(self) -> Iterator[V]:
        return iter(self.all())

    def put(self, key: Key, view: V) -> V | None:
        """Stores a view. Returns the view that it replaces, or None. The store stays as it is if an index raises."""
        values = {name: set(index(view)) for name, index in self._indexes.items()}
        old = self.drop(key)
        self._views[key] = view
        for name, found in values.items():
            for value in found:
                self._keys[name].setdefault(value, {})[key] = None
        return old

    def drop(self, key: Key) -> V | None:
        view = self._views.pop(key, None)
        if view is not None:
            for name, index in self._indexes.items():
                for value in set(index(view)):  # an index may yield a value twice
                    keys = self._keys[name][value]
                    keys.pop(key, None)
                    if not keys:
                        del self._keys[name][value]
        return view
