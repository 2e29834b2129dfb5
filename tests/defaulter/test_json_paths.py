from __future__ import annotations

from copy import deepcopy

import pytest

from defaulter.json_paths import DocumentEditor
from poolhouse.api.apimachinery.problem import format_path


def test_filling_never_changes_the_original() -> None:
    document = {"a": {"b": [{"c": 1}, {"c": 2}]}, "untouched": {"x": 1}}
    before = deepcopy(document)
    draft = DocumentEditor(document)
    assert draft.fill(("a", "b", 1, "d"), 3)
    assert document == before
    assert draft.document["a"]["b"] == [{"c": 1}, {"c": 2, "d": 3}]
    assert draft.document["untouched"] is document["untouched"], "what is not filled is not copied"


@pytest.mark.parametrize("value", ["set", False, {}, [], 7])
def test_a_value_that_is_set_is_not_filled(value: object) -> None:
    draft = DocumentEditor({"a": value})
    assert not draft.fill(("a",), "other")
    assert draft.document == {"a": value}


@pytest.mark.parametrize("value", [None, "", 0])
def test_a_value_that_a_go_client_omits_is_filled(value: object) -> None:
    draft = DocumentEditor({"a": value})
    assert draft.fill(("a",), "other")


@pytest.mark.parametrize("value", ["text", 1, [1]])
def test_nothing_is_filled_below_a_value_that_is_not_an_object(value: object) -> None:
    assert not DocumentEditor({"a": value}).fill(("a", "b", "c"), 1)


def test_an_item_is_added_to_a_list_or_to_a_new_list() -> None:
    draft = DocumentEditor({"a": [1], "b": "text"})
    assert draft.append(("a",), 2)
    assert draft.append(("c", "d"), 3)
    assert not draft.append(("b",), 4), "the value is no list"
    assert not draft.append(("b", "c"), 5), "the value above is no object"
    assert draft.document == {"a": [1, 2], "b": "text", "c": {"d": [3]}}


def test_missing_objects_are_created() -> None:
    draft = DocumentEditor({})
    draft.fill(("a", "b", "c"), 1)
    assert draft.document == {"a": {"b": {"c": 1}}}


def test_paths_are_formatted_as_in_kubernetes() -> None:
    assert format_path(("spec", "disks", 0, "bus")) == "spec.disks[0].bus"
