"""VMs whose VMIs fail after they have run, or that stay in a failing state. Each row is a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.actions import EndHold, Heal
from controllers.pool.data_volumes import parse_disk_state
from controllers.pool.healing_status import seconds_until_healing
from controllers.pool.plan import plan
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.shared.vm import VM, LifecycleHold
from tests.controllers.pool.builders import NOW, a_pool, ago, snapshot, vm, vmi

Json = dict[str, Any]
LEAVING = frozenset({"n1"})


def run(phase: str, *, uid: str = "new", started: float | None = 60, ended: float | None = 0) -> Any:
    """A VMI that started and ended this many seconds ago."""
    times = () if started is None else (("Running", ago(started)),)
    found = vmi("web-1", phase=phase, phase_times=times, ended_at=ago(ended) if phase == "Failed" and ended else "")
    object.__setattr__(found, "uid", uid)
    return found


def one(of: VM, *failures: Json, **healing: Any) -> PoolSnapshot:
    """A pool of three, of which two are well."""
    status = {"healing": {"failures": list(failures)}} if failures else {}
    pool = a_pool(3, autohealing=healing, status=status)
    return snapshot(pool, of, vm(2), vm(3))


def failed(run_: Any, **given: Any) -> VM:
    return vm(1, ready=False, vmi=run_, **given)


def counted(runs: int, uid: str = "old", **given: Any) -> Json:
    return {"name": "web-1", "failedRuns": runs, "lastVMI": uid, **given}


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(one(failed(run("Failed"))), [(1, "new")], id="the first VMI that failed after running"),
        pytest.param(one(failed(run("Failed")), counted(1)), [(2, "new")], id="the next one"),
        pytest.param(one(failed(run("Failed")), counted(1, "new")), [(1, "new")], id="each is counted once"),
        pytest.param(
            replace(one(failed(run("Running", uid="third"))), ended_vmis=(run("Failed", uid="first"), run("Failed"))),
            [(2, "new")],
            id="VMIs that KubeVirt has deleted meanwhile",
        ),
        pytest.param(
            replace(
                one(failed(run("Failed")), counted(1, "first")), ended_vmis=(run("Failed", uid="first"), run("Failed"))
            ),
            [(2, "new")],
            id="those that were seen are counted once",
        ),
        pytest.param(
            replace(
                one(failed(run("Failed")), counted(2, "new")), ended_vmis=(run("Failed", uid="first"), run("Failed"))
            ),
            [(2, "new")],
            id="the reconcile that counted both of them ended early",
        ),
        pytest.param(one(failed(run("Failed", started=None))), [], id="KubeVirt counts those that never ran"),
        pytest.param(one(failed(run("Running")), counted(1)), [(1, "old")], id="the next run proves nothing yet"),
        pytest.param(one(failed(run("Running", started=600)), counted(1)), [], id="after ten minutes it does"),
        pytest.param(
            one(failed(run("Failed", started=900, ended=1)), counted(2)), [(1, "new")], id="a long run ends the series"
        ),
        pytest.param(
            replace(one(failed(replace(run("Failed"), node="n1"))), leaving=LEAVING),
            [],
            id="a drain may have ended it",
        ),
        pytest.param(
            replace(one(failed(replace(run("Failed"), node="n2"))), leaving=LEAVING),
            [(1, "new")],
            id="another node is drained",
        ),
        pytest.param(
            replace(one(failed(replace(run("Failed"), node="n1", eviction_strategy="LiveMigrate"))), leaving=LEAVING),
            [(1, "new")],
            id="a drain moves it and ends nothing",
        ),
        pytest.param(one(failed(run("Succeeded"))), [], id="a shutdown is no failure"),
        pytest.param(one(vm(1, should_run=False, ready=False), counted(2)), [], id="a VM that shall not run"),
        pytest.param(snapshot(a_pool(3), failed(run("Failed"))), [], id="nothing is counted without autohealing"),
    ],
)
@pytest.mark.sentence("1.24")
def test_failed_runs_are_counted_in_the_status(observed: PoolSnapshot, expected: list[tuple[int, str]]) -> None:
    healing = pool_status(observed, plan(observed, NOW), NOW).healing
    found = healing.failures if healing else ()
    assert [(each.failed_runs, each.last_vmi) for each in found] == expected


def test_a_count_is_computed_once_from_an_old_status() -> None:
    """The store may show the status of an earlier reconcile, so the same VMI may be seen twice."""
    observed = one(failed(run("Failed")), counted(1))
    first = pool_status(observed, plan(observed, NOW), NOW)
    again = pool_status(observed, plan(observed, NOW), NOW)
    assert first.healing == again.healing


def terminating(seconds: float) -> LifecycleHold:
    return LifecycleHold("Terminating", ago(seconds), "old")


BROKEN = {"failingStatuses": ["DataVolumeError"]}


@pytest.mark.parametrize(
    ("observed", "reason"),
    [
        pytest.param(one(failed(run("Failed")), counted(1)), "", id="two of three"),
        pytest.param(
            one(failed(run("Failed"), printable_status="Starting"), counted(2)),
            "its VMI failed 3 times after it had run (Starting)",
            id="the third",
        ),
        pytest.param(one(failed(run("Failed"), start_failures=2), counted(2)), "its VMI failed 3", id="not their sum"),
        pytest.param(one(vm(1, vmi=run("Running")), counted(3)), "", id="a VM that is ready now"),
        pytest.param(
            one(vm(1, vmi=run("Running"), hold=terminating(90)), counted(3)),
            "its VMI failed 3 times after it had run",
            id="a VM that is ready now, and was held because it failed",
        ),
        pytest.param(
            one(vm(1, vmi=run("Running"), hold=terminating(30)), counted(3)),
            "",
            id="a VM that was ready when it was held, for another reason",
        ),
        pytest.param(
            one(vm(1, vmi=run("Running", started=600), hold=terminating(700)), counted(3)),
            "",
            id="a VM that has run for ten minutes in its hold",
        ),
        pytest.param(
            one(
                failed(None, printable_status="DataVolumeError"),
                counted(0, "", status="DataVolumeError", since=ago(300)),
            ),
            "",
            id="a state that the pool does not name",
        ),
        pytest.param(
            one(failed(None, printable_status="DataVolumeError"), **BROKEN), "", id="a state that has just begun"
        ),
        pytest.param(
            one(
                failed(None, printable_status="DataVolumeError"),
                counted(0, "", status="DataVolumeError", since=ago(300)),
                **BROKEN,
            ),
            "its status has been DataVolumeError for 300 s",
            id="a state that lasts",
        ),
        pytest.param(
            one(
                failed(None, printable_status="DataVolumeError"),
                counted(0, "", status="ErrImagePull", since=ago(300)),
                **BROKEN,
            ),
            "",
            id="another state since then",
        ),
    ],
)
def test_which_vms_are_replaced(observed: PoolSnapshot, reason: str) -> None:
    heals = [each for each in plan(observed, NOW).actions if isinstance(each, Heal)]
    assert [each.name for each in heals] == (["web-1"] if reason else [])
    assert all((reason in each.reason and not each.failed_starts) or each.failed_starts for each in heals)


BREAKER = {"open": True, "since": ago(60), "until": ago(-240), "reason": "Failing", "message": "3 VMs fail"}
CLOSED = [{"schedule": "0 13 * * *", "durationSeconds": 3600}]


@pytest.mark.parametrize(
    ("healing", "status", "disks", "action"),
    [
        pytest.param({}, {"breaker": BREAKER}, {}, EndHold, id="the circuit breaker is open"),
        pytest.param({}, {}, {"root-1": "a disk of db"}, EndHold, id="its disk belongs to another VM"),
        pytest.param({"onlyInMaintenanceWindows": True}, {}, {}, EndHold, id="the maintenance window has closed"),
        pytest.param({}, {}, {}, Heal, id="healing does not wait for the window"),
    ],
)
def test_a_vm_that_runs_again_is_left_alone_while_nothing_is_replaced(
    healing: Json, status: Json, disks: dict[str, str], action: type
) -> None:
    recorded = {"healing": {"failures": [counted(3)], **status}}
    pool = a_pool(3, autohealing=healing, status=recorded, maintenanceWindows=CLOSED)
    held = vm(1, vmi=run("Running"), hold=terminating(90))
    observed = snapshot(pool, held, vm(2), vm(3), foreign_disks=disks)
    assert [type(each) for each in plan(observed, NOW).actions] == [action]


def test_a_replaced_vm_begins_without_failures() -> None:
    observed = one(failed(run("Failed")), counted(2))
    healing = pool_status(observed, plan(observed, NOW), NOW).healing
    assert healing.failures == ()
    assert [each.name for each in healing.vms] == ["web-1"]


def test_the_controller_looks_again_when_a_state_has_lasted_long_enough() -> None:
    since = {"status": "DataVolumeError", "since": ago(100)}
    observed = one(failed(None, printable_status="DataVolumeError"), counted(0, "", **since), **BROKEN)
    assert seconds_until_healing(observed, NOW) == 200


@pytest.mark.parametrize(
    ("others", "replaced"),
    [
        pytest.param("ErrImagePull", True, id="a VM that waits for its image does not hold up the others"),
        pytest.param("Starting", False, id="a VM that is about to run does"),
    ],
)
def test_whether_a_failing_vm_is_replaced_beside_an_unavailable_one(others: str, replaced: bool) -> None:
    bad = vm(1, ready=False, start_failures=3, printable_status="CrashLoopBackOff")
    waits = vm(2, ready=False, printable_status=others)
    observed = snapshot(a_pool(3, autohealing={}, maxUnavailable=1), bad, waits, vm(3))
    assert any(isinstance(each, Heal) for each in plan(observed, NOW).actions) is replaced


@pytest.mark.parametrize(
    ("phase", "conditions", "expected"),
    [
        pytest.param(
            "ImportInProgress",
            [{"type": "Running", "status": "False", "reason": "Error", "message": "expected 200, got 404"}],
            "ImportInProgress: expected 200, got 404",
            id="the importer fails",
        ),
        pytest.param(
            "Pending",
            [
                {"type": "Running", "status": "False", "message": ""},
                {"type": "Bound", "status": "False", "message": "PVC root-1 Pending"},
            ],
            "Pending: PVC root-1 Pending",
            id="the claim is not bound",
        ),
        pytest.param(
            "CloneInProgress",
            [{"type": "Running", "status": "True", "message": "Cloning from default/a into default/b in progress"}],
            "CloneInProgress",
            id="it proceeds",
        ),
        pytest.param(
            "Succeeded", [{"type": "Running", "status": "False", "message": "Import Complete"}], "Succeeded", id="done"
        ),
        pytest.param(None, None, "its DataVolume does not exist yet", id="CDI has not looked at it"),
    ],
)
def test_the_state_of_a_data_volume(phase: str | None, conditions: Any, expected: str) -> None:
    volume = {"metadata": {"name": "root-1"}, "status": {"phase": phase, "conditions": conditions}}
    assert str(parse_disk_state(volume)) == expected
