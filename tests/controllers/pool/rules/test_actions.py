"""Actions of the rules with all their values: the reason is what users read in an event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from controllers.pool.actions import (
    Action,
    Adopt,
    AdoptRevision,
    Create,
    DateDisk,
    Delete,
    DeleteDisks,
    LabelVMI,
    PruneRevision,
    ReleaseDisks,
    RemoveFinalizer,
    ReturnDisk,
    SaveRevision,
)
from controllers.pool.plan import plan
from controllers.pool.rules.membership import adopt
from controllers.pool.rules.retention import delete_disks, release_disks, return_disks
from controllers.pool.rules.scale_in import cancel_deletions
from controllers.pool.rules.scale_out import save_new_revision
from controllers.pool.rules.stored_revisions import adopt_revisions, label_vmis, prune_revisions
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.vm import RetainedDisk
from tests.controllers.pool.builders import LIGHT, NOW, OLD, REVISION, a_pool, ago, leaving, retained, snapshot, vm, vmi

UNSAVED = snapshot(1, revision_saved=False)


def of(ordinal: int) -> RetainedDisk:
    return replace(retained(ordinal), uid=f"u-root-{ordinal}", retained_at=ago(120))


KEPT = of(1)
LEAVING = leaving(
    1, retains_disks=True, disk_templates="root=abc", persists_state=True, retained_by="u-former", disks=("root-1", "b")
)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(
            adopt(snapshot(2, vm(1), vm(2, adopted=False)), NOW),
            [Adopt("web-2", "u-web-2", "its owner reference to the pool lacks controller: true")],
            id="a VM without a controller",
        ),
        pytest.param(
            save_new_revision(UNSAVED, [Adopt("web-1", "u-web-1", "")]),
            [SaveRevision("web-r1", 1, "the template is new")],
            id="the first VM with a template",
        ),
        pytest.param(save_new_revision(UNSAVED, []), [], id="no VM gets the template yet"),
        pytest.param(
            save_new_revision(snapshot(1, revision_saved=True), [Adopt("web-1", "u-web-1", "")]), [], id="already saved"
        ),
        pytest.param(
            cancel_deletions(snapshot(2, vm(1), vm(2, retains_disks=True)), NOW),
            [RemoveFinalizer("web-2", "u-web-2", "7", "it stays")],
            id="a deletion that an earlier process began",
        ),
        pytest.param(
            cancel_deletions(snapshot(1, vm(1), vm(2, retains_disks=True)), NOW), [], id="it may still be deleted"
        ),
        pytest.param(
            delete_disks(snapshot(a_pool(0, retainedDisks={"max": 1}), retained_disks=(retained(1),)), NOW),
            [DateDisk("web-1", "root-1", "", "2026-03-01T12:00:00Z", "it has no time of retention")],
            id="a disk without a time",
        ),
        pytest.param(
            delete_disks(snapshot(a_pool(0, retainedDisks={"max": 1}), retained_disks=(KEPT, of(2), of(3))), NOW),
            [
                DeleteDisks(
                    "web-1", (("root-1", "u-root-1"),), "u-web", "3 disks are retained, retainedDisks.max is 1"
                ),
                DeleteDisks(
                    "web-2", (("root-2", "u-root-2"),), "u-web", "2 disks are retained, retainedDisks.max is 1"
                ),
            ],
            id="too many disks",
        ),
        pytest.param(
            delete_disks(snapshot(a_pool(0, retainedDisks={"ttlSeconds": 120}), retained_disks=(KEPT,)), NOW),
            [
                DeleteDisks(
                    "web-1",
                    (("root-1", "u-root-1"),),
                    "u-web",
                    "it was retained at 2026-03-01T11:58:00Z, retainedDisks.ttlSeconds is 120",
                )
            ],
            id="a disk whose time has ended",
        ),
        pytest.param(
            delete_disks(snapshot(a_pool(0, retainedDisks={"ttlSeconds": 121}), retained_disks=(KEPT,)), NOW),
            [],
            id="a disk whose time ends in a second",
        ),
        pytest.param(
            release_disks(snapshot(0, LEAVING), NOW),
            [ReleaseDisks("web-1", "u-web-1", ("root-1", "b"), "root=abc", True, "u-former", "its disks are retained")],
            id="disks that another pool retains",
        ),
        pytest.param(
            release_disks(snapshot(0, replace(LEAVING, retained_by="")), NOW),
            [ReleaseDisks("web-1", "u-web-1", ("root-1", "b"), "root=abc", True, "u-web", "its disks are retained")],
            id="disks that this pool retains",
        ),
        pytest.param(
            return_disks(snapshot(1, vm(1), retained_disks=(KEPT,)), NOW),
            [ReturnDisk("web-1", "u-web-1", "root-1", "web-1 exists again")],
            id="the VM of a retained disk exists again",
        ),
        pytest.param(
            adopt_revisions(snapshot(1, revisions=(replace(OLD, uid="u-r0", owned=False), REVISION)), NOW),
            [AdoptRevision("web-r0", "u-r0", "it has no owner")],
            id="a revision without an owner",
        ),
        pytest.param(
            prune_revisions(snapshot(a_pool(1, revisionHistoryLimit=0), vm(1), revisions=(OLD, REVISION)), NOW),
            [PruneRevision("web-r0", "revisionHistoryLimit is 0")],
            id="a revision too many",
        ),
        pytest.param(
            label_vmis(snapshot(1, vm(1, vmi=vmi("web-1", revision=LIGHT.label))), NOW),
            [LabelVMI("web-1", "run-web-1", 1, LIGHT.label, "the change needs no restart")],
            id="a VMI that has all but the labels",
        ),
    ],
)
def test_actions_with_their_reasons(found: Iterator[Action], expected: list[Action]) -> None:
    assert list(found) == expected


@pytest.mark.parametrize(
    ("replicas", "count", "reason"),
    [
        pytest.param(0, 1, "1 VM exists, 0 are wanted", id="one VM"),
        pytest.param(1, 2, "2 VMs exist, 1 is wanted", id="one replica"),
        pytest.param(2, 3, "3 VMs exist, 2 are wanted", id="several"),
    ],
)
def test_a_deletion_says_how_many_vms_are_wanted(replicas: int, count: int, reason: str) -> None:
    pool = a_pool(replicas, scaleInStrategy={"proactive": {"selectionPolicy": {"basePolicy": "Oldest"}}})
    vms = [vm(n, created_at=ago(100 - n)) for n in range(count)]
    assert plan(snapshot(pool, *vms), NOW).actions == (Delete("web-0", "u-web-0", "7", reason, False, False),)


@pytest.mark.parametrize(
    ("observed", "reason"),
    [
        pytest.param(snapshot(1), "0 of 1 VM exists", id="one replica"),
        pytest.param(snapshot(3, vm(0)), "1 of 3 VMs exists", id="several replicas"),
        pytest.param(snapshot(3, vm(0), vm(1)), "2 of 3 VMs exist", id="one is missing"),
        pytest.param(
            snapshot(a_pool(1, updateStrategy={"proactive": {"maxSurge": 1}}), vm(1, revision=OLD.label)),
            "1 of 2 VMs exists, 1 more than replicas during the update",
            id="a new VM first",
        ),
    ],
)
def test_a_creation_says_how_many_vms_exist(observed: PoolSnapshot, reason: str) -> None:
    created = [each for each in plan(observed, NOW).actions if isinstance(each, Create)]
    assert {each.reason for each in created} == {reason}
