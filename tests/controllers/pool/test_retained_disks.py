"""When disks are retained, returned or released."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.pool.plan import plan
from controllers.pool.snapshot import PoolSnapshot
from tests.controllers.pool.builders import NOW, a_pool, leaving, outline, retained, snapshot, vm


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
            id="even while the pool is being deleted",
        ),
        pytest.param(
            snapshot(
                0, awaiting_release=(leaving(2, retains_disks=True, retained_by="u-old", owner_uid="", owner_name=""),)
            ),
            [("release", "web-2", ("root-2",), "u-old")],
            id="even without an owner, for the pool that retained them",
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
