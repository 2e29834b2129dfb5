"""What a plan says about the disks of the VMs that it deletes."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.pool.disk_fates import disk_fates, disk_lines
from controllers.pool.simulate import simulate
from controllers.pool.snapshot import PoolSnapshot
from poolhouse.api.kinds.pool_lifecycle import RetainedDisks
from tests.controllers.pool.builders import NOW, a_pool, snapshot, vm

OFFLINE = {"proactive": {"statePreservation": "Offline", "selectionPolicy": {"basePolicy": "Oldest"}}}
DISABLED = {"proactive": {"selectionPolicy": {"basePolicy": "Oldest"}}}


def scaled_in(strategy: dict[str, Any]) -> PoolSnapshot:
    return snapshot(a_pool(0, scaleInStrategy=strategy), vm(1, disks=("root-1", "data-1")), vm(2, disks=()))


@pytest.mark.parametrize(
    ("observed", "fates"),
    [
        pytest.param(scaled_in(DISABLED), [("web-1", ["root-1", "data-1"], "Deleted")], id="deleted"),
        pytest.param(scaled_in(OFFLINE), [("web-1", ["root-1", "data-1"], "Retained")], id="retained"),
        pytest.param(snapshot(2, vm(1, disks=("root-1",)), vm(2)), [], id="no VM is deleted"),
    ],
)
def test_the_disks_of_deleted_vms(observed: PoolSnapshot, fates: list[tuple[Any, ...]]) -> None:
    found = disk_fates(observed, simulate(observed, NOW))
    assert [(each["vm"], each["disks"], each["after"]) for each in found] == fates


LONG = {"vm": "web-1", "disks": [f"d{number}" for number in range(12)], "after": "Retained"}


@pytest.mark.parametrize(
    ("fate", "limits", "line"),
    [
        pytest.param({"vm": "web-1", "disks": ["a"], "after": "Deleted"}, {}, "1 disk is deleted: a", id="deleted"),
        pytest.param(
            {"vm": "web-1", "disks": ["a", "b"], "after": "Retained"},
            {},
            "2 disks are retained without a time limit, for the next VM of the same name: a, b",
            id="no limit",
        ),
        pytest.param(
            LONG,
            {"ttlSeconds": 3600, "max": 5},
            "12 disks are retained for 3600 s (spec.retainedDisks.ttlSeconds) and while the pool has at most 5 retained"
            " disks (spec.retainedDisks.max), for the next VM of the same name: d0, d1, d2, d3, d4, d5, d6, d7, d8, d9"
            " and 2 more",
            id="limits",
        ),
    ],
)
def test_the_sentences_about_disks(fate: dict[str, Any], limits: dict[str, Any], line: str) -> None:
    assert list(disk_lines([fate], RetainedDisks.model_validate(limits))) == [line]
