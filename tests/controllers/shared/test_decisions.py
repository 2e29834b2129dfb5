"""The log of decisions in a status: what it keeps within its limits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controllers.shared.decisions import (
    DELETION_BYTES,
    OTHER_BYTES,
    decision,
    has_deletion,
    last_manager,
    merge_decisions,
    without_recorded,
)
from poolhouse.api.kinds.decisions import Decision


def deleted(time: int, *vms: str, message: str = "2 VMs exist, 1 is wanted") -> Decision:
    return decision(f"2026-03-01T12:{time // 60:02}:{time % 60:02}Z", "SuccessfulDelete", message, *vms)


def updated(time: int, *vms: str) -> Decision:
    return decision(f"2026-03-01T12:{time // 60:02}:{time % 60:02}Z", "SuccessfulUpdate", "outdated", *vms)


def size(found: tuple[Decision, ...]) -> int:
    return len(json.dumps([each.json() for each in found], separators=(",", ":"), ensure_ascii=False).encode())


@pytest.mark.parametrize(
    ("known", "new", "merged"),
    [
        pytest.param([], [deleted(1, "web-1/a")], [deleted(1, "web-1/a")], id="the first one"),
        pytest.param(
            [],
            [deleted(1, "web-1/a"), deleted(1, "web-2/b")],
            [deleted(1, "web-1/a", "web-2/b")],
            id="VMs of one decision share an entry",
        ),
        pytest.param([deleted(1, "web-1/a")], [deleted(1, "web-1/a")], [deleted(1, "web-1/a")], id="it is known"),
        pytest.param(
            [deleted(5, "web-1/a")],
            [updated(3, "web-2/b")],
            [updated(3, "web-2/b"), deleted(5, "web-1/a")],
            id="sorted by time",
        ),
        pytest.param(
            [],
            [deleted(1, *map(str, range(30))), deleted(1, *map(str, range(30, 60)))],
            [deleted(1, *map(str, range(50))), deleted(1, *map(str, range(50, 60)))],
            id="an entry has a limited number of VMs",
        ),
    ],
)
def test_new_decisions_are_merged(known: list[Decision], new: list[Decision], merged: list[Decision]) -> None:
    assert merge_decisions(known, new) == tuple(merged)


def test_an_update_of_a_thousand_vms_does_not_displace_a_deletion() -> None:
    known = merge_decisions((), [deleted(0, "web-1/1234abcd")])
    for time in range(1, 1001):
        known = merge_decisions(known, [updated(time, f"web-{time}/1234abcd")])
    assert known[0] == deleted(0, "web-1/1234abcd")
    assert known[-1] == updated(1000, "web-1000/1234abcd")
    assert size(known) <= DELETION_BYTES + OTHER_BYTES


def test_the_log_is_bounded_in_bytes_whatever_the_names_are() -> None:
    long = [deleted(time, *(f"{'é' * 60}{vm}/1234abcd" for vm in range(50)), message="é" * 900) for time in range(9)]
    found = merge_decisions((), long)
    assert found
    assert found[-1].time == long[-1].time
    assert size(found) <= DELETION_BYTES


def test_400_deletions_of_one_night_have_room() -> None:
    night = [deleted(time, *(f"web-{time}{vm}/1234abcd" for vm in range(40))) for time in range(10)]
    assert sum(len(each.vms) for each in merge_decisions((), night)) == 400


def test_what_a_stored_status_lacks() -> None:
    stored = [deleted(1, "web-1/a", "web-2/b")]
    assert without_recorded([deleted(1, "web-1/a"), deleted(1, "web-3/c")], stored) == [deleted(1, "web-3/c")]


def test_only_decisions_after_which_a_vm_is_gone_are_deletions() -> None:
    assert has_deletion([deleted(1, "web-1/a")], "web-1/a")
    assert not has_deletion([deleted(1, "web-1/a")], "web-1/b")
    assert not has_deletion([updated(1, "web-1/a")], "web-1/a")


def managed(manager: str, time: str, **fields: Any) -> dict[str, Any]:
    return {"manager": manager, "time": time, "fieldsV1": {"f:spec": {f"f:{key}": {} for key in fields}}}


@pytest.mark.parametrize(
    ("managers", "found"),
    [
        pytest.param([], "", id="nobody is known"),
        pytest.param([managed("argocd", "1", template=1)], "", id="it set another field"),
        pytest.param(
            [managed("argocd", "1", replicas=1), managed("kubectl-scale", "2", replicas=1)], "kubectl-scale", id="last"
        ),
        pytest.param(["?", {"manager": "x"}], "", id="an unknown form"),
    ],
)
def test_who_set_a_field_last(managers: list[Any], found: str) -> None:
    assert last_manager({"managedFields": managers}, "spec", "replicas") == found
