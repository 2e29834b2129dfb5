"""Which VMs are created and deleted when a pool has too few or too many, and what happens to their disks."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.pool.actions import Create, Delete
from controllers.pool.plan import plan
from controllers.pool.snapshot import PoolSnapshot
from tests.controllers.pool.builders import NOW, a_pool, halted, leaving, outline, retained, snapshot, vm, vmi

OFFLINE = {"proactive": {"statePreservation": "Offline"}}
OLDEST = {"proactive": {"selectionPolicy": {"basePolicy": "Oldest"}}}
IDLE_FIRST = {
    "proactive": {
        "selectionPolicy": {
            "orderedPolicies": [{"labelSelector": {"matchLabels": {"tier": tier}}} for tier in ("idle", "test")],
            "basePolicy": "Newest",
        }
    }
}
TIERS = [
    vm(1, created_at="2026-01-01"),
    vm(2, created_at="2026-01-02", labels={"tier": "test"}),
    vm(3, created_at="2026-01-03", labels={"tier": "idle"}),
    vm(4, created_at="2026-01-04"),
]
HALF_DOWN = [vm(n, created_at=str(n), ready=n < 4) for n in range(1, 7)]
DOWN_AND_PROTECTED = [vm(n, ready=False, scale_in="Protect") for n in (1, 2)]


def test_a_vm_without_a_controller_in_its_owner_reference_is_adopted_and_counts() -> None:
    actions = plan(snapshot(2, vm(1), vm(2, adopted=False)), NOW).actions
    assert [(each.verb, each.name) for each in actions] == [("Adopt", "web-2")]


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            snapshot(
                a_pool(1, scaleInStrategy=OLDEST), vm(1, created_at="b"), vm(2, created_at="a"), vm(3, created_at="c")
            ),
            [("delete", "web-2"), ("delete", "web-1")],
            id="the base policy chooses",
            marks=pytest.mark.sentence("1.15", "1.46"),
        ),
        pytest.param(
            snapshot(a_pool(1, scaleInStrategy=IDLE_FIRST), *TIERS),
            [("delete", "web-3"), ("delete", "web-2"), ("delete", "web-4")],
            id="ordered policies choose in their order, then the base policy",
            marks=pytest.mark.sentence("1.46", "1.47", "1.49"),
        ),
        pytest.param(snapshot(1, vm(1), halted(2)), [("delete", "web-2")], id="by default what runs is the last to go"),
        pytest.param(
            snapshot(1, vm(1), vm(2, vmi=vmi("web-2", node="n1", evacuated=True)), vm(3, printable_status="Migrating")),
            [("delete", "web-2"), ("delete", "web-1")],
            id="a VM that must leave its node goes first, one that is moving last",
        ),
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
            marks=pytest.mark.sentence("1.19"),
        ),
        pytest.param(
            snapshot(a_pool(0, scaleInStrategy={"unmanaged": {}}), vm(1)),
            [],
            id="unmanaged deletes nothing",
            marks=pytest.mark.sentence("1.16"),
        ),
        pytest.param(
            snapshot(a_pool(0, scaleInStrategy={"opportunistic": {}}), vm(1), halted(2)),
            [("delete", "web-2")],
            id="opportunistic takes the halted only",
            marks=pytest.mark.sentence("1.17"),
        ),
        pytest.param(
            snapshot(a_pool(0, scaleInStrategy={"opportunistic": {"statePreservation": "Offline"}}), vm(1), halted(2)),
            [("delete and keep disks", "web-2")],
            id="opportunistic with Offline keeps their disks",
            marks=pytest.mark.sentence("1.61"),
        ),
        pytest.param(snapshot(a_pool(0, paused=True), vm(1)), [], id="a paused pool deletes nothing"),
        pytest.param(snapshot(0, vm(1), synced=False), [], id="what was deleted must be seen before more is"),
        pytest.param(
            snapshot(a_pool(0, scaleInStrategy=OLDEST), vm(1), vm(2), vm(3), burst=2),
            [("delete", "web-1"), ("delete", "web-2")],
            id="never more at once than the burst",
            marks=pytest.mark.sentence("1.44"),
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
            "1 VM is too many, 0 can be deleted: web-1, web-2 are protected by poolhouse.dev/scale-in",
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
            "1 VM is too many, 0 can be deleted now: 2 VMs are available, 2 must stay available, maxUnavailable is 1",
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
            "1 VM is too many, 0 can be deleted: the strategy is unmanaged: delete VMs yourself",
            id="unmanaged",
        ),
    ],
)
def test_why_scale_in_is_blocked(observed: PoolSnapshot, sentence: str) -> None:
    planned = plan(observed, NOW)
    assert planned.blocked == sentence
    assert not planned.waits, "no VM waits to be deleted: another one may go first"


def test_a_deletion_has_the_uid_and_resource_version_of_the_snapshot() -> None:
    (delete,) = plan(snapshot(0, vm(1, resource_version="42")), NOW).actions
    assert isinstance(delete, Delete)
    assert (delete.uid, delete.resource_version) == ("u-web-1", "42")


def test_vms_with_an_invalid_scale_in_are_found() -> None:
    given = snapshot(2, vm(1, scale_in="Protect"), vm(2, scale_in="protect"), vm(3, scale_in="First"))
    assert [m.name for m in given.active if m.has_invalid_scale_in] == ["web-2"]


def creates(*ordinals: int) -> list[tuple[str, str]]:
    return [("create", f"web-{ordinal}") for ordinal in ordinals]


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            snapshot(3), creates(1, 2, 3), id="a new pool makes all its VMs", marks=pytest.mark.sentence("1.1")
        ),
        pytest.param(
            snapshot(3, revision_saved=False), [("save", "web-r1"), *creates(1, 2, 3)], id="the template is saved first"
        ),
        pytest.param(snapshot(0, revision_saved=False), [], id="a template that no VM has is not saved"),
        pytest.param(
            snapshot(3, vm(1), vm(3)), creates(2), id="a gap is filled first", marks=pytest.mark.sentence("1.32")
        ),
        pytest.param(
            snapshot(4, vm(1), vm(3)), creates(2, 4), id="higher numbers after gaps", marks=pytest.mark.sentence("1.31")
        ),
        pytest.param(
            snapshot(2, vm(1), taken_ordinals=[2, 3]),
            creates(4),
            id="names of foreign VMs are skipped",
            marks=pytest.mark.sentence("1.30"),
        ),
        pytest.param(
            snapshot(2, vm(1), vm("db-7")), [], id="a VM that was given to the pool counts, whatever its name"
        ),
        pytest.param(
            snapshot(5, burst=2),
            creates(1, 2),
            id="never more at once than the burst",
            marks=pytest.mark.sentence("1.44"),
        ),
        pytest.param(snapshot(2, vm(1), vm(2)), [], id="enough is enough"),
        pytest.param(snapshot(3, vm(1), synced=False), [], id="what was written must be seen before more is"),
        pytest.param(snapshot(a_pool(3, paused=True)), [], id="a paused pool makes nothing"),
        pytest.param(snapshot(a_pool(3, deleting=True)), [], id="a pool that is being deleted makes nothing"),
        pytest.param(
            snapshot(2, vm(1), leaving(2)),
            [],
            id="the name of a VM that is on its way out is waited for",
            marks=pytest.mark.sentence("1.57"),
        ),
        pytest.param(
            snapshot(2, vm(1), leaving(2, seconds=400)),
            creates(3),
            id="after a timeout another name takes its place",
            marks=pytest.mark.sentence("1.57"),
        ),
        pytest.param(snapshot(2, vm(1), leaving(2, seconds=300)), creates(3), id="after five minutes"),
        pytest.param(snapshot(2, vm(1), leaving(2, seconds=299)), [], id="not a second before"),
        pytest.param(
            snapshot(2, vm(1), leaving(2, seconds=-3600)), creates(3), id="a deletion from before a clock was set back"
        ),
        pytest.param(
            snapshot(3, vm(1), leaving(2), taken_ordinals=[3]),
            creates(4),
            id="waiting for one does not hold up the others",
        ),
        pytest.param(snapshot(1, vm(2)), [], id="a high ordinal is as good as a low one"),
        pytest.param(
            snapshot(3, recently_deleted=frozenset({"web-1"})),
            creates(2, 3, 1),
            id="one that may find old disks holds up no other",
        ),
    ],
)
def test_which_vms_are_created(observed: PoolSnapshot, expected: list[Any]) -> None:
    assert list(map(outline, plan(observed, NOW).actions)) == expected


def test_the_pool_is_requeued_for_the_deletion_timeout() -> None:
    assert plan(snapshot(2, vm(1), leaving(2, seconds=100)), NOW).again_seconds == 200
    assert plan(snapshot(1, vm(1), leaving(2, seconds=100)), NOW).again_seconds == 200, "the status names it then"
    assert plan(snapshot(1, vm(1), leaving(2, seconds=301)), NOW).again_seconds is None


def test_a_recently_deleted_name_is_created_after_a_check_of_its_disks() -> None:
    actions = plan(snapshot(2, recently_deleted=frozenset({"web-1"})), NOW).actions
    assert {each.name: each.after_deletion for each in actions if isinstance(each, Create)} == {
        "web-1": True,
        "web-2": False,
    }


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            snapshot(1, vm(1), leaving(2, retains_disks=True, retained_by="u-web")),
            [("release", "web-2", ("root-2",), "u-web")],
            id="a VM that waits for its disks is released",
        ),
        pytest.param(
            snapshot(a_pool(1, paused=True), leaving(2, retains_disks=True, retained_by="u-web"), synced=False),
            [("release", "web-2", ("root-2",), "u-web")],
            id="whatever else holds",
        ),
        pytest.param(
            snapshot(a_pool(1, deleting=True), leaving(2, retains_disks=True, retained_by="u-web")),
            [("release", "web-2", ("root-2",), "u-web")],
            id="disks are retained while the pool is being deleted",
        ),
        pytest.param(
            snapshot(
                0, awaiting_release=(leaving(2, retains_disks=True, retained_by="u-old", owner_uid="", owner_name=""),)
            ),
            [("release", "web-2", ("root-2",), "u-old")],
            id="disks are retained without an owner, for the pool that retained them",
        ),
        pytest.param(
            snapshot(1, vm(1), retained_disks=(retained(1),)),
            [("return", "web-1", "root-1")],
            id="a VM that is back has its disk",
        ),
        pytest.param(
            snapshot(1, vm(1, disks=()), retained_disks=(retained(1),)),
            [],
            id="a disk that its VM no longer names stays kept",
        ),
        pytest.param(snapshot(1, vm(1), retained_disks=(retained(2),)), [], id="a kept disk waits for its VM"),
        pytest.param(
            snapshot(1, leaving(1), retained_disks=(retained(1),)),
            [],
            id="a VM that is on its way out gets nothing back",
        ),
        pytest.param(
            snapshot(2, vm(1, retains_disks=True), vm(2)),
            [("unmark", "web-1")],
            id="the finalizer of a VM that stays is removed",
        ),
    ],
)
def test_which_disks_are_retained_or_returned(observed: PoolSnapshot, expected: list[Any]) -> None:
    assert list(map(outline, plan(observed, NOW).actions)) == expected
