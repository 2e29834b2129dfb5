"""VMs that do not start: the same cause is one sentence, with the number of VMs and the message of the first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controllers.pool.causes import others_with_cause, why_not_started
from controllers.pool.data_volumes import DiskState
from controllers.pool.plan import plan
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.shared.vm import VM, LifecycleHold
from poolhouse.api.kinds.metav1 import Condition
from tests.controllers.pool.builders import NOW, a_pool, snapshot, vm, vmi

STARTING = {"ready": False}
MANY = ("ErrImagePull", "ErrorPvcNotFound", "CrashLoopBackOff", "Unknown", "ErrImagePull")


@pytest.mark.parametrize(
    ("vms", "said"),
    [
        pytest.param((vm(1),), "", id="a VM that is available"),
        pytest.param((vm(1, **STARTING, printable_status="Starting"),), "", id="a VM on its way"),
        pytest.param(
            (
                vm(1, **STARTING),
                vm(3, **STARTING, vmi=vmi("web-3", start_failure="Unschedulable", message="0/3 nodes are available")),
                vm(2, **STARTING, vmi=vmi("web-2", start_failure="Unschedulable", message="no node has 64Gi")),
            ),
            "2 VMs do not start, such as web-2: Unschedulable: no node has 64Gi",
            id="the number of VMs with a cause, and the message of the first",
        ),
        pytest.param(
            (
                vm(1, **STARTING, printable_status="ErrImagePull"),
                vm(2, **STARTING, vmi_exists=False, start_refusal='pods "a" is forbidden: exceeded quota: few'),
                vm(3, **STARTING, vmi_exists=False, start_refusal='pods "b" is forbidden: exceeded quota: few'),
            ),
            '2 VMs do not start, such as web-2: pods "a" is forbidden: exceeded quota: few; '
            "web-1 does not start: its image cannot be pulled",
            id="the cause of most VMs comes first",
        ),
        pytest.param(
            tuple(vm(n, **STARTING, printable_status=status) for n, status in enumerate(MANY, 1)),
            "2 VMs do not start, such as web-1: its image cannot be pulled; web-2 does not start: ErrorPvcNotFound; "
            "web-3 does not start: CrashLoopBackOff; 1 other VM does not start for other reasons",
            id="three causes are named",
        ),
        pytest.param(
            (vm(1, **STARTING, vmi_exists=False, start_refusal="exceeded quota"),),
            "web-1 does not start: exceeded quota",
            id="KubeVirt cannot create the VMI",
        ),
        pytest.param(
            (vm(1, **STARTING, start_failures=3, printable_status="Starting"),),
            "web-1 does not start: its VMI ends before it runs",
            id="a number that grows is not told",
        ),
        pytest.param(
            (vm(1, **STARTING, printable_status="ErrImagePull"),),
            "web-1 does not start: its image cannot be pulled",
            id="a pull that fails",
        ),
        pytest.param(
            (vm(1, **STARTING, printable_status="ImagePullBackOff"),),
            "web-1 does not start: its image cannot be pulled",
            id="the pause before the next pull has the same text",
        ),
        pytest.param(
            (vm(1, **STARTING, printable_status="ErrorPvcNotFound"),),
            "web-1 does not start: ErrorPvcNotFound",
            id="a missing disk",
        ),
        pytest.param((vm(1, **STARTING, should_run=False, start_refusal="x"),), "", id="a VM that should be halted"),
    ],
)
def test_why_vms_do_not_start(vms: tuple[VM, ...], said: str) -> None:
    assert why_not_started(snapshot(len(vms), *vms)) == said


def test_conditions_say_why_a_vm_does_not_start() -> None:
    found = snapshot(1, vm(1, **STARTING, vmi_exists=False, start_refusal="exceeded quota"))
    conditions = {each.type: each for each in pool_status(found, plan(found, NOW), NOW).conditions}
    cause = "web-1 does not start: exceeded quota"
    said = f"0 of 1 VM is available; {cause}"
    assert (conditions["Progressing"].message, conditions["Reconciling"].message) == (said, said)
    assert conditions["Available"].message == f"1 VM is unavailable, maxUnavailable is 1; {cause}"


def test_a_vm_that_waits_for_a_disk_says_what_the_data_volume_says() -> None:
    message = "Unable to connect to http data source: expected status code 200, got 404"
    waits = vm(1, ready=False, printable_status="DataVolumeError", disks=("root-1",), vmi=None)
    state = DiskState("ImportInProgress", message)
    found = replace(snapshot(1, waits), unready_disks={"root-1": state})
    said = f"web-1 does not start: DataVolume root-1 is not ready: ImportInProgress: {message}"
    assert why_not_started(found) == said


def test_a_disk_that_gets_its_data_is_no_failure_and_comes_last() -> None:
    waits = [vm(n, ready=False, printable_status="Provisioning", disks=(f"root-{n}",), vmi=None) for n in (1, 2)]
    found = snapshot(3, *waits, vm(3, **STARTING, printable_status="ErrImagePull"))
    disks = {f"root-{n}": DiskState("ImportInProgress", f"{n} %") for n in (1, 2)}
    assert why_not_started(replace(found, unready_disks=disks)) == (
        "web-3 does not start: its image cannot be pulled; "
        "2 VMs wait, such as web-1: DataVolume root-1 is not ready: ImportInProgress: 1 %"
    )
    assert ready_of(replace(found, unready_disks=disks)).reason == "ScalingVMs"


def test_why_knows_how_many_other_vms_have_the_cause() -> None:
    down = [vm(n, **STARTING, printable_status="ErrImagePull") for n in (1, 2, 3)]
    found = snapshot(4, *down, vm(4))
    assert [others_with_cause(found, each) for each in found.vms] == [2, 2, 2, 0]


def ready_of(found: PoolSnapshot) -> Condition:
    conditions = {each.type: each for each in pool_status(found, plan(found, NOW), NOW).conditions}
    return conditions["Ready"]


HOLD = LifecycleHold("Restarting", "2026-03-01T11:59:00Z", "run-web-1", ())
BROKEN = [vm(n, **STARTING, printable_status="ErrImagePull") for n in (1, 2)]
SAID = "2 VMs are unavailable, maxUnavailable is 1; 2 VMs do not start, such as web-1: its image cannot be pulled"


@pytest.mark.parametrize(
    ("found", "reason", "message"),
    [
        pytest.param(snapshot(4, *BROKEN, vm(3), vm(4)), "FailedStart", SAID, id="more VMs than maxUnavailable"),
        pytest.param(
            snapshot(4, BROKEN[0], vm(2), vm(3), vm(4)),
            "ScalingVMs",
            "3 of 4 VMs are available; web-1 does not start: its image cannot be pulled",
            id="no more VMs than maxUnavailable",
        ),
        pytest.param(
            snapshot(2, vm(1, revision="web-r0", hold=HOLD), vm(2)),
            "UpdatingVMs",
            "1 of 2 VMs has the template, 1 is available; web-1 waits for lifecycle hooks",
            id="a VM that is held",
        ),
        pytest.param(
            snapshot(4, vm(1, **STARTING), vm(2, **STARTING), vm(3), vm(4)),
            "ScalingVMs",
            "2 of 4 VMs are available",
            id="VMs that are starting",
        ),
        pytest.param(
            snapshot(4, *BROKEN, vm(3, revision="web-r0"), vm(4, revision="web-r0")),
            "FailedStart",
            SAID,
            id="an update does not hide it",
        ),
        pytest.param(
            snapshot(a_pool(4, paused=True), *BROKEN, vm(3), vm(4)),
            "FailedStart",
            f"{SAID}; spec.paused is true",
            id="a pause does not hide it",
        ),
    ],
)
def test_the_status_has_the_worst_truth(found: PoolSnapshot, reason: str, message: str) -> None:
    ready = ready_of(found)
    assert (ready.reason, ready.message) == (reason, message)
