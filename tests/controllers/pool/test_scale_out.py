"""Which VMs are created when a pool has too few."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.pool.actions import Create
from controllers.pool.plan import plan
from controllers.pool.snapshot import PoolSnapshot
from tests.controllers.pool.builders import NOW, a_pool, leaving, outline, snapshot, vm


def creates(*ordinals: int) -> list[tuple[str, str]]:
    return [("create", f"web-{ordinal}") for ordinal in ordinals]


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(snapshot(3), creates(1, 2, 3), id="a new pool makes all its VMs"),
        pytest.param(
            snapshot(3, revision_saved=False), [("save", "web-r1"), *creates(1, 2, 3)], id="the template is saved first"
        ),
        pytest.param(snapshot(0, revision_saved=False), [], id="a template that no VM has is not saved"),
        pytest.param(snapshot(3, vm(1), vm(3)), creates(2), id="a gap is filled first"),
        pytest.param(snapshot(4, vm(1), vm(3)), creates(2, 4), id="then the numbers go on"),
        pytest.param(snapshot(2, vm(1), taken_ordinals=[2, 3]), creates(4), id="names of foreign VMs are skipped"),
        pytest.param(
            snapshot(2, vm(1), vm("db-7")), [], id="a VM that was given to the pool counts, whatever its name"
        ),
        pytest.param(snapshot(5, burst=2), creates(1, 2), id="never more at once than the burst"),
        pytest.param(snapshot(2, vm(1), vm(2)), [], id="enough is enough"),
        pytest.param(snapshot(3, vm(1), synced=False), [], id="what was written must be seen before more is"),
        pytest.param(snapshot(a_pool(3, paused=True)), [], id="a paused pool makes nothing"),
        pytest.param(snapshot(a_pool(3, deleting=True)), [], id="a pool that is being deleted makes nothing"),
        pytest.param(snapshot(2, vm(1), leaving(2)), [], id="the name of a VM that is on its way out is waited for"),
        pytest.param(
            snapshot(2, vm(1), leaving(2, seconds=400)), creates(3), id="after a timeout another name takes its place"
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
    assert plan(snapshot(1, vm(1), leaving(2, seconds=100)), NOW).again_seconds is None


def test_a_recently_deleted_name_is_created_after_a_check_of_its_disks() -> None:
    actions = plan(snapshot(2, recently_deleted=frozenset({"web-1"})), NOW).actions
    assert {each.name: each.after_deletion for each in actions if isinstance(each, Create)} == {
        "web-1": True,
        "web-2": False,
    }
