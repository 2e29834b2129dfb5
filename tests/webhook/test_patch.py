"""The patch between two documents: it leads exactly there, is small, and does not fit another document."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.webhook.json_patch import Mismatch, apply
from webhook.patch import diff, same

scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text(alphabet="a~/ é\x00", max_size=3)
keys = st.text(alphabet="ab~/0-", max_size=2) | st.just("name")
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=25
)


@settings(max_examples=400, deadline=None)
@given(documents, documents)
def test_a_patch_leads_from_one_document_to_the_other(before: Any, after: Any) -> None:
    assert same(apply(before, diff(before, after)), after)


@given(documents)
def test_equal_documents_need_no_patch(document: Any) -> None:
    assert diff(document, document) == []


@given(documents, documents)
def test_applying_leaves_the_document_given_as_it_was(before: Any, after: Any) -> None:
    copy = repr(before)
    apply(before, diff(before, after))
    assert repr(before) == copy


def vm(*disks: dict[str, Any], **domain: Any) -> dict[str, Any]:
    return {"spec": {"domain": {**domain, "devices": {"disks": list(disks)}}}}


DISKS = "/spec/domain/devices/disks"
ROOT = {"name": "root", "disk": {"bus": "virtio"}}
DATA = {"name": "data", "disk": {"bus": "virtio"}}
PLACED = {"name": "data", "disk": {"bus": "virtio", "pciAddress": "0000:07:00.0"}}


@pytest.mark.parametrize(
    ("before", "after", "operations"),
    [
        pytest.param(
            vm(ROOT, DATA),
            vm(ROOT, PLACED),
            [
                {"op": "test", "path": f"{DISKS}/1/name", "value": "data"},
                {"op": "add", "path": f"{DISKS}/1/disk/pciAddress", "value": "0000:07:00.0"},
            ],
            id="a device is named before it is changed",
        ),
        pytest.param(
            vm(machine={"type": "q35"}),
            vm(machine={"type": "pc-q35-7.2"}),
            [
                {"op": "test", "path": "/spec/domain/machine/type", "value": "q35"},
                {"op": "replace", "path": "/spec/domain/machine/type", "value": "pc-q35-7.2"},
            ],
            id="a value is tested before it is replaced",
        ),
        pytest.param(
            vm(ROOT),
            vm(ROOT, DATA),
            [{"op": "add", "path": f"{DISKS}/-", "value": DATA}],
            id="a device is appended",
        ),
        pytest.param(
            {"a": 1, "b": 2},
            {"b": 2},
            [{"op": "test", "path": "/a", "value": 1}, {"op": "remove", "path": "/a"}],
            id="a value is tested before it is removed",
        ),
        pytest.param({"a": None}, {"a": 1}, [{"op": "add", "path": "/a", "value": 1}], id="null counts as absent"),
        pytest.param(
            {"a": 0.1},
            {"a": 0.2},
            [{"op": "replace", "path": "/a", "value": 0.2}],
            id="floats are not tested: the API server compares them as text",
        ),
        pytest.param({}, {"a": {"b": []}}, [{"op": "add", "path": "/a", "value": {"b": []}}], id="with absent parents"),
        pytest.param(
            {"metadata": {"annotations": {}}},
            {"metadata": {"annotations": {"poolhouse.dev/a~b": "x"}}},
            [{"op": "add", "path": "/metadata/annotations/poolhouse.dev~1a~0b", "value": "x"}],
            id="slashes in keys are escaped",
        ),
    ],
)
def test_patches_are_small_and_guarded(before: Any, after: Any, operations: list[Any]) -> None:
    assert diff(before, after) == operations


def test_a_patch_does_not_fit_once_a_device_was_inserted() -> None:
    patch = diff(vm(ROOT, DATA), vm(ROOT, PLACED))
    with pytest.raises(Mismatch):
        apply(vm({"name": "new", "disk": {}}, ROOT, DATA), patch)


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/nowhere"},
        {"op": "test", "path": "/a/b/c", "value": 1},
        {"op": "replace", "path": "/list/7", "value": 1},
        {"op": "replace", "path": "/list/x", "value": 1},
        {"op": "test", "path": "", "value": 1},
    ],
    ids=lambda operation: str(operation["path"]),
)
def test_a_path_that_does_not_exist_is_a_mismatch(operation: dict[str, Any]) -> None:
    with pytest.raises(Mismatch):
        apply({"a": {"b": 1}, "list": [1]}, [operation])


@pytest.mark.parametrize(("one", "other"), [(1, True), (1, 1.0), (0, False), ([], {}), ("1", 1), (None, {})])
def test_values_of_two_types_are_never_the_same(one: Any, other: Any) -> None:
    assert not same(one, other)


@pytest.mark.parametrize(
    ("text", "tests"),
    [("alice", 1), ("alice & bob", 0), ("<alice>", 0), ("line\u2028line", 0), ("line\u2029line", 0)],
)
def test_a_text_that_the_api_server_writes_otherwise_is_not_tested(text: str, tests: int) -> None:
    """It would compare the escape `\\u0026` with `&`, and refuse the request with an internal error."""
    operations = diff({"requester": text}, {"requester": "carol"})
    assert [each["op"] for each in operations] == ["test"] * tests + ["replace"]
