"""Names of a replica set's VMIs."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.replicaset.naming import LENGTH, base_name, free_names
from controllers.replicaset.observe import by_base_name
from controllers.shared.names import SUFFIX_CHARACTERS
from controllers.shared.vmi import VMI
from tests.controllers.replicaset.builders import a_set

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
