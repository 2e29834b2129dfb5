"""What changes of VMIs and of their sets teach a controller."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.sets.records import Memory, Records
from controllers.sets.write_batches import WriteBatches
from controllers.shared.vmi import VMI
from poolhouse.runtime.expectations import Expectations
from tests.controllers.replicaset.builders import NOW, a_set, vmi

A = vmi("a")
GOING, FREE = vmi("a", deleting=True), replace(A, owner_uid="")
OTHER = replace(A, uid="u-other")


def records(**expected: Any) -> Records[VMI, Memory]:
    found: Records[VMI, Memory] = Records(
        "replica set",
        WriteBatches(None, Expectations(), lambda: 0.0),
        lambda _: Memory(),
        lambda each: each.owner_uid,
        lambda each: a_set(3) if each.owner_uid == "u-web" else None,
        lambda: NOW,
    )
    if expected:
        found.expectations.expect("u-web", now=0.0, **expected)
    return found


@pytest.mark.parametrize(
    ("expected", "change", "met"),
    [
        pytest.param({"creates": ["a"]}, (None, A), True, id="a VMI was created"),
        pytest.param({"creates": ["a", "b"]}, (None, A), False, id="another one is still missing"),
        pytest.param({"deletes": ["u-a"]}, (A, GOING), True, id="a deletion begins"),
        pytest.param({"deletes": ["u-a"]}, (A, None), True, id="a VMI is gone"),
        pytest.param({"deletes": ["u-a"]}, (A, OTHER), True, id="another VMI has its name"),
        pytest.param({"deletes": ["u-a"]}, (A, FREE), True, id="a VMI was released"),
        pytest.param({"creates": ["a"]}, (FREE, A), True, id="a VMI was adopted"),
        pytest.param({"deletes": ["u-a"]}, (A, replace(A, ready=False)), False, id="another change"),
        pytest.param({}, (None, A), False, id="nothing was expected"),
    ],
)
def test_the_last_expected_event(expected: Any, change: tuple[VMI | None, VMI | None], met: bool) -> None:
    assert records(**expected).changed(*change) is met


@pytest.mark.parametrize(
    ("change", "own", "recorded"),
    [
        pytest.param((A, GOING), [], True, id="a deletion begins"),
        pytest.param((A, None), [], True, id="a VMI is gone at once"),
        pytest.param((A, OTHER), [], True, id="another VMI has its name"),
        pytest.param((A, GOING), ["u-a"], False, id="the set deletes it"),
        pytest.param((GOING, None), [], False, id="the deletion began before"),
        pytest.param((FREE, None), [], False, id="no set owns it"),
    ],
)
def test_deletions_by_others_are_recorded(
    change: tuple[VMI | None, VMI | None], own: list[str], recorded: bool
) -> None:
    found = records(deletes=own) if own else records()
    found.changed(*change)
    decisions = found.memory(a_set(3)).last_status_write.decisions
    assert [(each.reason, *each.vms) for each in decisions] == ([("DeletedByOther", "a/u-a")] if recorded else [])
    found.begin()
    assert found.memory(a_set(3)).last_status_write.decisions == [], "the leader before has recorded them"


@pytest.mark.parametrize(
    ("new", "forgotten"),
    [(None, True), (replace(a_set(3), uid="u-new"), True), (a_set(4), False)],
    ids=["deleted", "replaced by another of its name", "changed"],
)
def test_the_memory_ends_with_the_set(new: Any, forgotten: bool) -> None:
    found = records(creates=["a"])
    before = found.memory(a_set(3))
    assert not found.synced(["u-web"])
    found.set_changed(a_set(3), new)
    assert (found.memory(a_set(3)) is not before) is forgotten
    assert not found.synced(["u-web"]), "another set may wait for its writes"


def test_the_next_reconcile_is_at_the_end_of_the_shortest_wait() -> None:
    assert records().seconds_until_next(["u-web"], None, None) is None
    assert records().seconds_until_next(["u-web"], None, 7.0) == 7.0
    assert records(creates=["a"]).seconds_until_next(["u-web"], 1000.0) == 300.0
