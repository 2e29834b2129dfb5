"""Names and ordinals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controllers.replicaset.observe import by_base_name
from controllers.shared.names import (
    LENGTH,
    SUFFIX_CHARACTERS,
    base_name,
    free_names,
    free_ordinals,
    name_of,
    ordinal_of,
    parent_and_ordinal,
)
from controllers.shared.vmi import VMI
from tests.controllers.replicaset.builders import a_set


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("web-3", ("web", 3), id="the postfix is the ordinal"),
        pytest.param("web-1-12", ("web-1", 12), id="only the last postfix counts"),
        pytest.param("web", ("web", None), id="a name without a postfix has no ordinal"),
        pytest.param("web-0", ("web", 0), id="pools that were imported from KubeVirt begin at 0"),
        pytest.param("web-03", ("web-03", None), id="no pool writes a zero in front"),
        pytest.param("web-x", ("web-x", None), id="a word is no ordinal"),
        pytest.param("-3", ("-3", None), id="a pool has a name"),
    ],
)
def test_parent_and_ordinal(name: str, expected: tuple[str, int | None]) -> None:
    assert parent_and_ordinal(name) == expected


def test_the_vm_of_a_pool_with_a_longer_name_is_not_a_member() -> None:
    assert ordinal_of("web", "web-1-2") is None
    assert ordinal_of("web-1", "web-1-2") == 2


@pytest.mark.parametrize(
    ("taken", "wanted", "expected"),
    [
        pytest.param((), 3, (1, 2, 3), id="the first is 1"),
        pytest.param((1, 3), 2, (2, 4), id="gaps come first"),
        pytest.param((1, 2, 9), 2, (3, 4), id="a high ordinal leaves the low ones free"),
        pytest.param((1,), 0, (), id="none are wanted"),
        pytest.param((1,), -2, (), id="fewer than none are wanted"),
    ],
)
def test_free_ordinals(taken: tuple[int, ...], wanted: int, expected: tuple[int, ...]) -> None:
    assert free_ordinals(set(taken), wanted) == expected


PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@PATIENT
@given(st.sets(st.integers(1, 60)), st.integers(0, 30))
def test_free_ordinals_are_the_lowest_that_are_not_taken(taken: set[int], wanted: int) -> None:
    found = free_ordinals(taken, wanted)
    assert len(found) == wanted
    assert not taken & set(found)
    assert not found or set(range(1, found[-1])) <= taken | set(found)


@PATIENT
@given(st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True), st.integers(1, 10**9))
def test_a_name_and_its_ordinal_are_inverse(pool: str, ordinal: int) -> None:
    assert ordinal_of(pool, name_of(pool, ordinal)) == ordinal


Json = dict[str, Any]


def test_names_are_stable() -> None:
    names = free_names("u-web", "web", (), 4)
    assert free_names("u-web", "web", {names[0], names[2]}, 2) == [names[1], names[3]]
    assert len(set(free_names("u-web", "web", (), 3000))) == 3000
    assert set(free_names("u-db", "web", (), 100)).isdisjoint(free_names("u-web", "web", (), 100))


def test_names_look_generated() -> None:
    for name in free_names("u-web", "we-b", (), 50):
        assert base_name(name) == "we-b"
        assert len(name.rpartition("-")[2]) == LENGTH
        assert set(name.rpartition("-")[2]) <= set(SUFFIX_CHARACTERS)


@pytest.mark.parametrize(
    ("metadata", "stem"),
    [({}, "web"), ({"name": "test"}, "test"), ({"generateName": "gen-"}, "gen"), ({"name": "x" * 99}, "x" * 57)],
)
def test_vmis_are_named_after_their_template_or_else_their_set(metadata: Json, stem: str) -> None:
    template = {"metadata": {"labels": {"app": "web"}, **metadata}, "spec": {"domain": {}}}
    found = a_set(1, template=template)
    assert found.base_name == stem
    (name,) = free_names(found.uid, found.base_name, (), 1)
    assert len(name) <= 63
    assert list(by_base_name(VMI("default", name, "u"))) == [("default", stem)]


def test_imported_pools_begin_at_0() -> None:
    assert (free_ordinals({1}, 2), free_ordinals({1}, 2, first=0)) == ((2, 3), (0, 2))
