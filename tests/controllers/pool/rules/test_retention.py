"""Retained disks: which ones the pool deletes, and when. Each row is a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.actions import DateDisk, DeleteDisks
from controllers.pool.plan import plan
from controllers.pool.simulate import rows, simulate
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.shared.vm import RetainedDisk
from tests.controllers.pool.builders import NOW, a_pool, ago, snapshot, vm, vmi

Json = dict[str, Any]
HOUR = 3600
TTL: Json = {"ttlSeconds": HOUR}


def disk(ordinal: int, age: float, entry: str = "root", **given: Any) -> RetainedDisk:
    name = f"{entry}-{ordinal}"
    facts = {"uid": f"u-{name}", "retained_at": ago(age), **given}
    return RetainedDisk("default", name, "u-web", f"web-{ordinal}", **facts)


def pool(limits: Json, *disks: RetainedDisk, vms: Any = (), replicas: int | None = None, **given: Any) -> PoolSnapshot:
    found = a_pool(len(vms) if replicas is None else replicas, retainedDisks=limits, **given)
    return snapshot(found, *vms, retained_disks=disks)


def deleted(observed: PoolSnapshot) -> list[tuple[str, ...]]:
    found = (each for each in plan(observed, NOW).actions if isinstance(each, DeleteDisks))
    return [tuple(name for name, _ in each.disks) for each in found]


OLD, YOUNG = HOUR + 1, HOUR - 1


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(pool({}, disk(1, 99 * HOUR)), [], id="without limits, disks stay for ever"),
        pytest.param(pool(TTL, disk(1, YOUNG)), [], id="a young disk stays"),
        pytest.param(pool(TTL, disk(1, HOUR)), [("root-1",)], id="a disk goes when its time has ended"),
        pytest.param(
            pool(TTL, disk(1, OLD), disk(1, YOUNG, "data")),
            [],
            id="disks of a VM wait for the one that was retained last",
        ),
        pytest.param(pool(TTL, disk(1, OLD), disk(1, HOUR, "data")), [("root-1", "data-1")], id="disks go together"),
        pytest.param(
            pool(TTL, disk(1, OLD, replaced=True), disk(1, YOUNG, "data", replaced=True)),
            [("root-1",)],
            id="disks that updates replaced go alone",
        ),
        pytest.param(pool(TTL, disk(1, OLD, retained_at="")), [], id="a disk without a time gets one first"),
        pytest.param(pool(TTL, disk(1, OLD, retained_at="soon")), [], id="a damaged time is replaced first"),
        pytest.param(
            pool(TTL, disk(1, OLD, retained_at="9999-12-31T23:59:59Z")), [], id="a time without an end is replaced"
        ),
        pytest.param(pool(TTL, disk(1, OLD, deleting=True)), [], id="a disk that is being deleted"),
        pytest.param(pool(TTL, disk(1, OLD), vms=[vm(1)]), [], id="a disk that returns to its VM stays"),
        pytest.param(
            pool(TTL, disk(1, OLD), vms=[vm(1, disks=())]), [], id="a disk whose VM exists again stays for it"
        ),
        pytest.param(pool(TTL, disk(3, OLD), vms=[vm(1)]), [("root-3",)], id="a disk of another VM goes"),
        pytest.param(pool(TTL, disk(3, OLD), vms=[vm(1)], replicas=2), [], id="a VM is about to be created"),
        pytest.param(
            pool(TTL, disk(2, OLD), vms=[vm(1, revision="r0")], updateStrategy={"proactive": {"maxSurge": 1}}),
            [],
            id="a VM more is about to be created for an update",
        ),
        pytest.param(
            pool(TTL, disk(1, OLD, "old", replaced=True), vms=[vm(1)]),
            [("old-1",)],
            id="a replaced disk does not return",
        ),
        pytest.param(
            pool(
                TTL, disk(1, OLD, "old", replaced=True), vms=[vm(1, vmi=vmi("web-1", revision="r1", disks=("old-1",)))]
            ),
            [],
            id="the VMI still uses the replaced disk",
        ),
        pytest.param(
            pool(TTL, disk(1, OLD, "old", replaced=True), vms=[vm(1, disks=("old-1",))]),
            [],
            id="the VM has gone back to it",
        ),
        pytest.param(
            pool(TTL, disk(1, OLD, used_at=ago(HOUR - 1))), [], id="a disk that was in use is left for an hour"
        ),
        pytest.param(pool(TTL, disk(1, OLD, used_at=ago(HOUR))), [("root-1",)], id="a disk in use goes an hour later"),
        pytest.param(pool(TTL, disk(1, OLD), paused=True), [], id="a paused pool deletes none"),
        pytest.param(pool({"max": 2}, disk(1, 3), disk(2, 2)), [], id="as many as may be"),
        pytest.param(
            pool({"max": 2}, disk(1, 1), disk(2, 3), disk(3, 2)), [("root-2",)], id="the oldest is one too many"
        ),
        pytest.param(
            pool({"max": 2}, disk(1, 9), disk(1, 9, "data"), disk(2, 2), disk(2, 2, "data")),
            [("data-1", "root-1")],
            id="all disks of the VM that left first",
        ),
        pytest.param(
            pool({"max": 1}, disk(1, 9, used_at=ago(1)), disk(2, 5), disk(3, 2)),
            [("root-2",), ("root-3",)],
            id="one in use does not save the others",
        ),
        pytest.param(
            pool({"max": 1, "ttlSeconds": HOUR}, disk(1, OLD), disk(2, YOUNG)), [("root-1",)], id="both limits hold"
        ),
    ],
)
def test_which_disks_go(observed: PoolSnapshot, expected: list[tuple[str, ...]]) -> None:
    assert deleted(observed) == expected


def test_an_undated_disk_gets_the_time_at_which_the_pool_first_sees_it() -> None:
    (found,) = plan(pool(TTL, disk(1, 0, retained_at="")), NOW).actions
    assert isinstance(found, DateDisk)
    assert (found.disk, found.disk_uid, found.time) == ("root-1", "u-root-1", ago(0))


def test_the_pool_comes_back_when_the_next_time_ends() -> None:
    assert plan(pool(TTL, disk(1, HOUR - 5), disk(2, HOUR - 9)), NOW).again_seconds == 5
    assert plan(pool(TTL, disk(1, OLD, used_at=ago(HOUR - 7))), NOW).again_seconds == 7
    assert plan(pool({}, disk(1, OLD)), NOW).again_seconds is None


def test_the_status_says_when_a_disk_goes() -> None:
    observed = pool(TTL, disk(1, 600))
    (kept,) = pool_status(observed, plan(observed, NOW), NOW).retained
    assert (kept.name, kept.expires_at) == ("root-1", ago(600 - HOUR))


def test_a_plan_shows_the_disks_that_go() -> None:
    observed = pool(TTL, disk(1, OLD))
    (row,) = rows(simulate(observed, NOW))
    assert (row["action"], row["vm"]) == ("DeleteDisks", "web-1")
    assert row["reason"].startswith("it was retained at")
    assert not deleted(replace(observed, retained_disks=()))
