"""Templates of the past, compared by what they mean."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.pool.revisions import Revision, current, document, meaning, revision
from tests.controllers.pool.builders import template

OWNER = {"namespace": "default", "name": "web", "owner": {"uid": "u-web", "controller": True}}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param({"a": 1, "b": 2}, {"b": 2, "a": 1}, True, id="the order of keys means nothing"),
        pytest.param({"a": None}, {}, True, id="null is absent"),
        pytest.param({"a": []}, {}, True, id="an empty list is absent"),
        pytest.param({"a": {}}, {}, False, id="an empty object may be a choice"),
        pytest.param({"a": 2.0}, {"a": 2}, True, id="a whole float is its integer"),
        pytest.param({"a": "2"}, {"a": 2}, False, id="text is not a number"),
        pytest.param({"a": True}, {"a": 1}, False, id="truth is not a number"),
        pytest.param({"a": [1, 2]}, {"a": [2, 1]}, False, id="the order of a list means something"),
        pytest.param({"a": [{"b": None}]}, {"a": [{}]}, True, id="deep inside too"),
    ],
)
def test_what_templates_mean(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    assert (meaning(one) == meaning(other)) is same


def test_a_new_template_gets_the_next_number_and_an_old_one_is_found_again() -> None:
    first, saved = current("web", "u-web", template(), [])
    assert not saved
    assert first.number == 1
    second, saved = current("web", "u-web", template(running=False), [first])
    assert not saved
    assert second.number == 2
    assert current("web", "u-web", template(), [first, second]) == (first, True)


def test_what_is_written_down_is_read_as_the_same() -> None:
    made, _ = current("web", "u-web", template(), [])
    assert revision(document(made, OWNER, template())) == made


def test_a_pool_of_the_same_name_before_is_another_pool() -> None:
    old, _ = current("web", "u-old", template(), [])
    new, saved = current("web", "u-web", template(), [old])
    assert not saved
    assert new.name != old.name


def test_a_label_fits_whatever_the_pools_name() -> None:
    made, _ = current("w" * 60, "u-web", template(), [])
    assert len(made.label) == 10
    assert made.name.endswith(f"-{made.label}")


def test_a_revision_without_an_owner_is_nobodys() -> None:
    assert revision({"metadata": {"name": "x"}}) == Revision("x", "", 0, meaning({}))
