"""The views that an informer keeps, with indexes, like client-go's `Indexer`."""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, KeysView, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

from poolhouse.runtime.resource import Key

V = TypeVar("V")


@dataclass(frozen=True)
class OrderedIndex(Generic[V]):
    """An index that knows the first of the views with a value."""

    values: Callable[[V], Iterable[Hashable]]
    order: Callable[[V], Any]
    """what views with the same value are sorted by"""

    def __call__(self, view: V) -> Iterable[Hashable]:
        return self.values(view)


class Store(Generic[V]):
    """The views by key. Only the informer of a store changes the store."""

    def __init__(self, indexes: Mapping[str, Callable[[V], Iterable[Hashable]]] | None = None) -> None:
        self._views: dict[Key, V] = {}
        self._indexes = dict(indexes or {})
        # The keys are in dicts because dicts are ordered. The same events therefore give the same lists and plans.
        self._keys: dict[str, dict[Hashable, dict[Key, None]]] = {name: {} for name in self._indexes}
        self._orders = {name: each.order for name, each in self._indexes.items() if isinstance(each, OrderedIndex)}
        self._sorted: dict[tuple[str, Hashable], list[tuple[Any, Key]]] = {}
        self._followers: list[Callable[[Key], None]] = []

    def follow(self, changed: Callable[[Key], None]) -> None:
        """Calls `changed(key)` after each change of a view, for what is derived from the views of several stores."""
        self._followers.append(changed)

    def get(self, key: Key) -> V | None:
        return self._views.get(key)

    def by(self, index: str, value: Hashable) -> list[V]:
        return [self._views[key] for key in self._keys[index].get(value, ())]

    def count(self, index: str, value: Hashable) -> int:
        return len(self._keys[index].get(value, ()))

    def first_of(self, index: str, value: Hashable, count: int) -> list[V]:
        """The first `count` of these views, in the order of an `OrderedIndex` or in that of `by`."""
        if index not in self._orders:
            return [self._views[key] for key in islice(self._keys[index].get(value, ()), count)]
        return [self._views[key] for _, key in self._sorted.get((index, value), ())[:count]]

    def first(self, index: str, value: Hashable) -> V | None:
        """The first of these views in the order of the `OrderedIndex`, or None."""
        return next(iter(self.first_of(index, value, 1)), None)

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
        orders = {name: order(view) for name, order in self._orders.items() if values[name]}
        old = self._take(key)
        self._views[key] = view
        for name, found in values.items():
            for value in found:
                self._keys[name].setdefault(value, {})[key] = None
                if name in orders:
                    insort(self._sorted.setdefault((name, value), []), (orders[name], key))
        self._tell(key)
        return old

    def drop(self, key: Key) -> V | None:
        view = self._take(key)
        self._tell(key)
        return view

    def _tell(self, key: Key) -> None:
        for changed in self._followers:
            changed(key)

    def _take(self, key: Key) -> V | None:
        view = self._views.pop(key, None)
        if view is not None:
            for name, index in self._indexes.items():
                for value in set(index(view)):  # an index may yield a value twice
                    keys = self._keys[name][value]
                    keys.pop(key, None)
                    if not keys:
                        del self._keys[name][value]
                    if name in self._orders:
                        self._drop_sorted((name, value), (self._orders[name](view), key))
        return view

    def _drop_sorted(self, place: tuple[str, Hashable], entry: tuple[Any, Key]) -> None:
        entries = self._sorted[place]
        del entries[bisect_left(entries, entry)]
        if not entries:
            del self._sorted[place]
