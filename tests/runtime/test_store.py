from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from poolhouse.runtime.resource import Key
from poolhouse.runtime.store import OrderedIndex, Store


@given(st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 3)))))
def test_an_index_equals_a_linear_search(changes: list[tuple[str, int | None]]) -> None:
    store: Store[tuple[str, int]] = Store({"number": lambda view: [view[1], view[1] % 2 == 0]})
    for name, number in changes:
        if number is None:
            store.drop(("n", name))
        else:
            store.put(("n", name), (name, number))
    for value in [0, 1, 2, 3]:
        found = sorted(store.by("number", value))
        assert found == sorted(v for v in store.all() if value in (v[1], v[1] % 2 == 0))
    assert len(store) == len(store.all())


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.one_of(st.none(), st.integers(0, 5)))))
def test_the_first_of_an_ordered_index_is_the_first_of_a_search(changes: list[tuple[str, int | None]]) -> None:
    store: Store[tuple[str, int]] = Store({"even": OrderedIndex(lambda view: [view[1] % 2 == 0], lambda view: view[1])})
    for name, number in changes:
        if number is None:
            store.drop(("n", name))
        else:
            store.put(("n", name), (name, number))
        for even in (True, False):
            found = min((v for v in store.all() if (v[1] % 2 == 0) is even), key=lambda v: (v[1], v[0]), default=None)
            assert store.first("even", even) == found


def test_put_and_drop_return_the_old_view() -> None:
    store: Store[int] = Store()
    assert store.put(("n", "a"), 0) is None
    assert store.put(("n", "a"), 2) == 0
    assert store.drop(("n", "a")) == 2
    assert store.drop(("n", "a")) is None
    assert store.get(("n", "a")) is None


def test_an_index_may_yield_a_value_twice() -> None:
    store: Store[list[str]] = Store({"address": lambda view: view})
    store.put(("n", "a"), ["x", "x"])
    assert list(store.by("address", "x")) == [["x", "x"]]
    store.put(("n", "a"), ["x"])
    store.drop(("n", "a"))
    assert not list(store.by("address", "x"))


def test_a_follower_is_told_the_key_after_each_change() -> None:
    store, told = Store[int](), list[tuple[Key, int | None]]()
    store.follow(lambda key: told.append((key, store.get(key))))
    store.put(("n", "a"), 0)
    store.put(("n", "a"), 2)
    store.drop(("n", "a"))
    assert told == [(("n", "a"), 0), (("n", "a"), 2), (("n", "a"), None)]
