"""JSON merge patches, and the three-way merge of `kubectl apply`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from poolhouse.api.apimachinery.merge_patch import (
    LAST_APPLIED,
    apply_patch,
    last_applied,
    merge_patch,
    three_way_patch,
    with_last_applied,
)


@pytest.mark.parametrize(
    ("original", "modified", "current", "patch"),
    [
        pytest.param({"a": 1}, {"a": 1}, {"a": 1, "b": 2}, {}, id="a field that only another client has set stays"),
        pytest.param({"a": 1, "b": 2}, {"a": 1}, {"a": 1, "b": 3}, {"b": None}, id="a field that left the file goes"),
        pytest.param({}, {"a": 1}, {"a": 1, "b": 3}, {}, id="without a last manifest nothing is removed"),
        pytest.param({"a": 1}, {"a": 2}, {"a": 1}, {"a": 2}, id="a changed field"),
        pytest.param({"a": 1}, {"a": 1}, {"a": 5}, {"a": 1}, id="a field that another client has changed is set back"),
        pytest.param({"a": 1}, {"a": 1}, {}, {"a": 1}, id="a field that another client has removed is set again"),
        pytest.param(
            {"s": {"a": 1, "b": 2}}, {"s": {"a": 1}}, {"s": {"a": 1, "b": 2, "c": 3}}, {"s": {"b": None}}, id="nested"
        ),
        pytest.param(
            {"l": [1, 2]}, {"l": [1]}, {"l": [1, 2, 3]}, {"l": [1]}, id="a list is replaced, with others' entries"
        ),
        pytest.param({}, {"a": None}, {"a": 1}, {"a": None}, id="null in the file removes a field"),
        pytest.param({"a": None}, {"a": None}, {"a": 1}, {}, id="null in both manifests changes nothing"),
        pytest.param({}, {"a": {}}, {}, {"a": {}}, id="an empty object is a value"),
        pytest.param({"a": {"b": 1}}, {"a": {}}, {"a": {"b": 1}}, {"a": {"b": None}}, id="an emptied object"),
        pytest.param({"a": {"b": 1}}, {}, {"a": {"b": 1, "c": 2}}, {"a": None}, id="an object that left the file goes"),
        pytest.param({"a": 1}, {"a": True}, {"a": 1}, {"a": True}, id="1 is not true"),
        pytest.param({"a": {"b": 1}}, {"a": "x"}, {"a": {"b": 1}}, {"a": "x"}, id="an object becomes a text"),
    ],
)
def test_the_three_way_merge(original: Any, modified: Any, current: Any, patch: Any) -> None:
    assert three_way_patch(original, modified, current) == patch


@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [
        pytest.param({"a": 1, "b": 2}, {"a": None, "c": {"d": 3, "e": None}}, {"b": 2, "c": {"d": 3}}, id="an object"),
        pytest.param({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}, id="a nested object"),
        pytest.param({"a": [1]}, {"a": {"b": 1}}, {"a": {"b": 1}}, id="a list becomes an object"),
        pytest.param({"a": 1}, [2], [2], id="a patch that is no object"),
    ],
)
def test_applying_a_patch(document: Any, patch: Any, result: Any) -> None:
    assert apply_patch(document, patch) == result


def test_a_patch_leads_from_one_document_to_the_other() -> None:
    old, new = {"a": {"b": 1, "c": [1]}, "d": 1}, {"a": {"b": 2, "c": [1, 2]}, "e": {}}
    assert merge_patch(old, new) == {"a": {"b": 2, "c": [1, 2]}, "d": None, "e": {}}
    assert apply_patch(old, merge_patch(old, new)) == new


def test_the_last_manifest_is_recorded_as_by_kubectl() -> None:
    document = {"kind": "Pool", "metadata": {"name": "web", "annotations": {"mine": "ü", LAST_APPLIED: "old"}}}
    made = with_last_applied(document)
    text = made["metadata"]["annotations"][LAST_APPLIED]
    assert text == '{"kind":"Pool","metadata":{"annotations":{"mine":"ü"},"name":"web"}}\n'
    assert last_applied(made) == json.loads(text)
    assert with_last_applied(made) == made
    assert with_last_applied({"metadata": {"name": "web"}})["metadata"]["annotations"][LAST_APPLIED] == (
        '{"metadata":{"annotations":{},"name":"web"}}\n'
    )


@pytest.mark.parametrize("text", ["", "{", "[1]", None, pytest.param("[" * 100_000, id="lists in lists")])
def test_without_a_usable_last_manifest_there_is_none(text: str | None) -> None:
    assert last_applied({"metadata": {"annotations": {LAST_APPLIED: text}}}) == {}
