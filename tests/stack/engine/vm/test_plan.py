from __future__ import annotations

from typing import Any

import pytest

from poolhouse.stack.engine.disk_objects import PVC, DataVolume
from poolhouse.stack.engine.objects import VM, VMI
from poolhouse.stack.engine.vm.hotplug import POD_NETWORK
from poolhouse.stack.engine.vm.plan import (
    Action,
    AddFinalizer,
    CreateDataVolume,
    CreateVMI,
    Delays,
    DeleteVMI,
    RemoveFinalizer,
    SetRunStrategyAlways,
    SyncDevices,
    plan_vm,
)
from tests.stack.engine.builders import NOW, RAN, ago, asked, disk, failed, pvc, vm, vmi


def kinds(actions: tuple[Action, ...]) -> list[type[Action]]:
    return [type(action) for action in actions]


@pytest.mark.parametrize(
    ("vm", "vmi", "disks", "wanted"),
    [
        pytest.param(vm(finalizers=()), None, {}, [AddFinalizer], id="the finalizer comes first"),
        pytest.param(vm(), None, {}, [CreateVMI], id="Always: start"),
        pytest.param(vm(), vmi(), {}, [], id="Always: a running VMI stays"),
        pytest.param(vm(devices=("nic a ",)), vmi(), {}, [SyncDevices], id="a running VMI gets the VM's devices"),
        pytest.param(vm(devices=("nic a ",)), vmi("Scheduled"), {}, [], id="not before it runs"),
        pytest.param(vm("Halted", devices=("nic a ",)), vmi(), {}, [DeleteVMI], id="not while it stops"),
        pytest.param(vm("Halted", devices=("nic a absent",)), None, {}, [SyncDevices], id="an absent NIC is removed"),
        pytest.param(vm(), vmi("Succeeded", status=RAN), {}, [DeleteVMI], id="Always: an ended VMI is deleted"),
        pytest.param(vm(), vmi("Failed", deleted=NOW), {}, [], id="a VMI is deleted only once"),
        pytest.param(vm("Halted"), vmi(), {}, [DeleteVMI], id="Halted: the VMI is deleted"),
        pytest.param(vm("Halted"), None, {}, [], id="Halted: no start"),
        pytest.param(
            vm("Halted", status=asked("Start")), None, {}, [SetRunStrategyAlways], id="Halted: a start request"
        ),
        pytest.param(vm("Manual"), None, {}, [], id="Manual: no start without a request"),
        pytest.param(vm("Manual", status=asked("Start")), None, {}, [CreateVMI], id="Manual: a start request"),
        pytest.param(vm("Manual"), vmi("Failed"), {}, [], id="Manual: a failed VMI stays"),
        pytest.param(
            vm("Manual", status=asked("Stop", "vmi-uid")), vmi(), {}, [DeleteVMI], id="Manual: a stop request"
        ),
        pytest.param(
            vm("Manual", status=asked("Stop", "other")), vmi(), {}, [], id="Manual: a stop request for another VMI"
        ),
        pytest.param(vm("Once"), None, {}, [CreateVMI], id="Once: start"),
        pytest.param(vm("Once"), vmi("Succeeded"), {}, [], id="Once: no second start"),
        pytest.param(vm("RerunOnFailure"), None, {}, [CreateVMI], id="RerunOnFailure: first start"),
        pytest.param(
            vm("RerunOnFailure", status={"runStrategy": "RerunOnFailure"}),
            None,
            {},
            [],
            id="RerunOnFailure: no restart without a request",
        ),
        pytest.param(
            vm("RerunOnFailure", status=asked("Start") | {"runStrategy": "RerunOnFailure"}),
            vmi("Failed", status=RAN),
            {},
            [DeleteVMI],
            id="RerunOnFailure: a failed VMI is deleted once a start is queued",
        ),
        pytest.param(
            vm("RerunOnFailure", status={"runStrategy": "RerunOnFailure"}),
            vmi("Failed", status=RAN),
            {},
            [],
            id="RerunOnFailure: a failed VMI stays until a start is queued",
        ),
        pytest.param(
            vm(data_volume_templates=("a", "b")),
            None,
            {"a": disk("a")},
            [CreateDataVolume],
            id="DataVolumes are created before the VMI",
        ),
        pytest.param(
            vm(data_volume_templates=("a",)),
            None,
            {"a": disk("a", "Pending")},
            [],
            id="the start waits for a DataVolume",
        ),
        pytest.param(vm(deleted=NOW), vmi(), {}, [DeleteVMI], id="a deleted VM deletes its VMI"),
        pytest.param(vm(deleted=NOW), None, {}, [RemoveFinalizer], id="the finalizer is removed after the VMI"),
        pytest.param(vm(), vmi("Failed"), {}, [], id="a failed start is recorded before its VMI is deleted"),
        pytest.param(
            vm(status=failed()), vmi("Failed"), {}, [DeleteVMI], id="a VMI with a recorded failure is deleted"
        ),
        pytest.param(vm(status=failed()), None, {}, [], id="the next start waits for the backoff"),
        pytest.param(
            vm(status=failed(retry="2026-01-01T11:59:59Z")),
            None,
            {},
            [CreateVMI],
            id="the next start follows the backoff",
        ),
    ],
)
def test_actions(vm: VM, vmi: VMI | None, disks: dict[str, DataVolume], wanted: list[type[Action]]) -> None:
    assert kinds(plan_vm(vm, vmi, disks, NOW).actions) == wanted


def test_a_start_after_failures_is_requeued_for_the_backoff() -> None:
    assert plan_vm(vm(status=failed()), None, {}, NOW).requeue_seconds == 30


@pytest.mark.parametrize(
    ("changes", "starts", "again"),
    [
        pytest.param({"created": ago(10)}, False, 20, id="a VM without defaults waits"),
        pytest.param({"created": ago(31)}, True, None, id="the wait ends"),
        pytest.param({"created": ago(10), "awaits_defaults": False}, True, None, id="a defaulted VM does not wait"),
        pytest.param(
            {"created": ago(10), "status": {"runStrategy": "Always"}}, True, None, id="a VM that has run does not wait"
        ),
    ],
)
def test_a_first_start_waits_for_the_defaulter(changes: dict[str, Any], starts: bool, again: float | None) -> None:
    made = plan_vm(vm(**({"awaits_defaults": True} | changes)), None, {}, NOW, delays=Delays(defaults_seconds=30))
    assert (bool(made.actions), made.requeue_seconds) == (starts, again)


def test_the_nics_that_kubevirt_chose_stay() -> None:
    """A VM that lists no NICs follows its VMI, to which KubeVirt has added one."""
    running = vmi(devices=("nic default ",), nics=(("default", "hash"), POD_NETWORK))
    made = plan_vm(vm(lists_nics=False), running, {}, NOW)
    assert made.actions == ()
    assert "RestartRequired" not in {each["type"] for each in made.status["conditions"]}


def test_transient_statuses_are_not_written() -> None:
    young = vmi("", created=ago(1), status={"conditions": []})
    starting = vm(created=ago(1))
    assert plan_vm(starting, young, {}, NOW).status["printableStatus"] == "Starting"
    made = plan_vm(starting, young, {}, NOW, delays=Delays(vm_settle_seconds=2))
    assert (made.status, made.requeue_seconds) == ({}, 2)
    assert plan_vm(starting, vmi(created=ago(1)), {}, NOW, delays=Delays(vm_settle_seconds=2)).status["ready"] is True


@pytest.mark.parametrize(
    ("before", "failure", "word"),
    [
        pytest.param("Provisioning", None, "Provisioning", id="ready DataVolumes, no VMI yet"),
        pytest.param("Stopped", None, "Stopped", id="stopped, no VMI yet"),
        pytest.param("Provisioning", ("FailedCreate", "no"), "Stopped", id="the start was refused"),
    ],
)
def test_a_starting_vm_is_never_reported_as_stopped(before: str, failure: Any, word: str) -> None:
    made = plan_vm(vm(status={"printableStatus": before}), None, {}, NOW, failure=failure)
    assert (kinds(made.actions), made.status["printableStatus"]) == ([CreateVMI], word)


def test_the_same_state_gives_the_same_status() -> None:
    first = plan_vm(vm(), vmi(), {}, NOW)
    again = plan_vm(vm(status=first.status), vmi(), {}, ago(-100))
    assert again.status == first.status
    assert not again.actions


@pytest.mark.parametrize(
    ("claim", "wanted"),
    [
        pytest.param(None, [CreateDataVolume], id="no disk yet"),
        pytest.param(pvc(controller_uid="vm-uid"), [CreateVMI], id="CDI has collected the DataVolume"),
        pytest.param(pvc(), [CreateVMI], id="a disk without an owner"),
        pytest.param(pvc(phase="Pending"), [CreateDataVolume], id="a disk without its data"),
        pytest.param(pvc(deleted=NOW), [CreateDataVolume], id="a disk that is being deleted"),
        pytest.param(
            pvc(data_volume_uid="gone", controller_uid="gone"),
            [CreateDataVolume],
            id="the disk of a deleted DataVolume",
        ),
        pytest.param(pvc(controller_uid="other"), [CreateDataVolume], id="the disk of another VM"),
    ],
)
def test_a_disk_without_its_datavolume(claim: PVC | None, wanted: list[type[Action]]) -> None:
    machine = vm(data_volume_templates=("disk",))
    plan = plan_vm(machine, None, {}, NOW, claims={"disk": claim} if claim else {})
    assert kinds(plan.actions) == wanted


def test_one_of_two_disks_without_its_datavolume() -> None:
    machine = vm(data_volume_templates=("collected", "disk"))
    claims = {"collected": pvc("collected", controller_uid="vm-uid")}
    assert plan_vm(machine, None, {}, NOW, claims=claims).actions == (CreateDataVolume("disk"),)
    importing = {"disk": disk(phase="ImportInProgress")}
    assert plan_vm(machine, None, importing, NOW, claims=claims).actions == ()
    assert kinds(plan_vm(machine, None, {"disk": disk()}, NOW, claims=claims).actions) == [CreateVMI]
