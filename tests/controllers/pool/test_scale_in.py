"""Which VMs are deleted when a pool has too many, and why scale-in waits."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.pool.actions import Delete
from controllers.pool.plan import plan
from controllers.pool.scale_in import with_invalid_scale_in
from controllers.pool.snapshot import PoolSnapshot
from tests.controllers.pool.builders import NOW, a_pool, halted, leaving, outline, snapshot, vm

OFFLINE = {"proactive": {"statePreservation": "Offline"}}
OLDEST = {"proactive": {"selectionPolicy": {"basePolicy": "Oldest"}}}
HALF_DOWN = [vm(n, created_at=str(n), ready=n < 4) for n in range(1, 7)]
DOWN_AND_PROTECTED = [vm(n, ready=False, scale_in="Protect") for n in (1, 2)]


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            snapshot(
                a_pool(1, scaleInStrategy=OLDEST), vm(1, created_at="b"), vm(2, created_at="a"), vm(3, created_at="c")
            ),
            [("delete", "web-2"), ("delete", "web-1")],
            id="the base policy chooses",
        ),
        pytest.param(snapshot(1, vm(1), halted(2)), [("delete", "web-2")], id="by default what runs is the last to go"),
        pytest.param(
            snapshot(1, vm(1), vm(2, ready=False)),
            [("delete", "web-2")],
            id="by default what is not ready goes before what is",
        ),
        pytest.param(
            snapshot(1, vm(1, printable_status="Migrating"), vm(2)),
            [("delete", "web-2")],
            id="by default what is just being moved is left alone",
        ),
        pytest.param(
            snapshot(1, vm(1), vm(2, ready=False), leaving(3, ready=False)),
            [("delete", "web-2")],
            id="a VM that is on its way out is neither counted nor chosen",
        ),
        pytest.param(
            snapshot(2, leaving(1), leaving(2), leaving(3), vm(4), vm(5)),
            [],
            id="deletes under way are not done twice when the target changes",
        ),
        pytest.param(
            snapshot(1, vm(1, scale_in="Protect"), vm(2), vm(3, scale_in="Protect")),
            [("delete", "web-2")],
            id="the protected stay",
        ),
        pytest.param(
            snapshot(0, vm(1, scale_in="protect"), vm(2)),
            [("delete", "web-2")],
            id="an invalid value protects as well",
        ),
        pytest.param(
            snapshot(a_pool(3, scaleInStrategy=OLDEST, maxUnavailable=1), *HALF_DOWN),
            [("delete", "web-1"), ("delete", "web-4"), ("delete", "web-5")],
            id="what is available goes only while enough others are",
        ),
        pytest.param(
            snapshot(2, halted(1), vm(2, scale_in="First"), halted(3)),
            [("delete", "web-2")],
            id="First is deleted first",
        ),
        pytest.param(
            snapshot(a_pool(1, scaleInStrategy=OFFLINE), vm(1), halted(2)),
            [("delete and keep disks", "web-2")],
            id="Offline keeps disks",
        ),
        pytest.param(snapshot(a_pool(0, scaleInStrategy={"unmanaged": {}}), vm(1)), [], id="unmanaged deletes nothing"),
        pytest.param(
            snapshot(a_pool(0, scaleInStrategy={"opportunistic": {}}), vm(1), halted(2)),
            [("delete", "web-2")],
            id="opportunistic takes the halted only",
        ),
        pytest.param(snapshot(a_pool(0, paused=True), vm(1)), [], id="a paused pool deletes nothing"),
        pytest.param(snapshot(0, vm(1), synced=False), [], id="what was deleted must be seen before more is"),
        pytest.param(
            snapshot(a_pool(0, scaleInStrategy=OLDEST), vm(1), vm(2), vm(3), burst=2),
            [("delete", "web-1"), ("delete", "web-2")],
            id="never more at once than the burst",
        ),
        pytest.param(
            snapshot(a_pool(1, scaleInStrategy=OFFLINE), halted(1), vm(2, retains_disks=True)),
            [("delete and keep disks", "web-2")],
            id="a deletion that was begun is finished before another is",
        ),
    ],
)
def test_which_vms_are_deleted(observed: PoolSnapshot, expected: list[Any]) -> None:
    assert list(map(outline, plan(observed, NOW).actions)) == expected


@pytest.mark.parametrize(
    ("observed", "sentence"),
    [
        pytest.param(snapshot(1, vm(1)), "", id="nothing to say"),
        pytest.param(
            snapshot(1, vm(1, scale_in="Protect"), vm(2, scale_in="Protect")),
            "1 VMs are too many, 0 can be deleted: web-1, web-2 are protected by poolhouse.dev/scale-in",
            id="protected",
        ),
        pytest.param(
            snapshot(0, *(vm(n, scale_in="Protect") for n in range(1, 8))),
            "7 VMs are too many, 0 can be deleted: web-1, web-2, web-3, web-4, web-5 and 2 more are protected by "
            "poolhouse.dev/scale-in",
            id="many protected",
        ),
        pytest.param(
            snapshot(a_pool(3, maxUnavailable=1), *DOWN_AND_PROTECTED, vm(3), vm(4)),
            "1 VMs are too many, 0 can be deleted now: 2 must stay available",
            id="those that could go are the last that are available",
        ),
        pytest.param(
            snapshot(a_pool(0, scaleInStrategy={"opportunistic": {}}), vm(1), halted(2)),
            "2 VMs are too many, 1 can be deleted: the strategy is opportunistic, and the other VMs are not halted or "
            "are protected",
            id="running",
        ),
        pytest.param(
            snapshot(a_pool(0, scaleInStrategy={"unmanaged": {}}), vm(1)),
            "1 VMs are too many, 0 can be deleted: the strategy is unmanaged: delete VMs yourself",
            id="unmanaged",
        ),
    ],
)
def test_why_scale_in_is_blocked(observed: PoolSnapshot, sentence: str) -> None:
    assert plan(observed, NOW).blocked == sentence


def test_a_deletion_has_the_uid_and_resource_version_of_the_snapshot() -> None:
    (delete,) = plan(snapshot(0, vm(1, resource_version="42")), NOW).actions
    assert isinstance(delete, Delete)
    assert (delete.uid, delete.resource_version) == ("u-web-1", "42")


def test_vms_with_an_invalid_scale_in_are_found() -> None:
    given = snapshot(2, vm(1, scale_in="Protect"), vm(2, scale_in="protect"), vm(3, scale_in="First"))
    assert [m.name for m in with_invalid_scale_in(given)] == ["web-2"]
