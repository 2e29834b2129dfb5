from __future__ import annotations

from typing import Any

import pytest

from local.engine.objects import VM, VMI, DataVolume
from local.engine.vm.plan import (
    Action,
    AddFinalizer,
    CreateDataVolume,
    CreateVMI,
    Delays,
    DeleteVMI,
    RemoveFinalizer,
    SetRunStrategyAlways,
    plan_vm,
)
from tests.local.engine.builders import NOW, RAN, ago, asked, disk, failed, vm, vmi


def kinds(actions: tuple[Action, ...]) -> list[type[Action]]:
    return [type(action) for action in actions]


@pytest.mark.parametrize(
    ("vm", "vmi", "disks", "wanted"),
    [
        pytest.param(vm(finalizers=()), None, {}, [AddFinalizer], id="our finalizer comes first"),
        pytest.param(vm(), None, {}, [CreateVMI], id="a VM that is meant to run is started"),
        pytest.param(vm(), vmi(), {}, [], id="one that runs is left alone"),
        pytest.param(vm(), vmi("Succeeded", status=RAN), {}, [DeleteVMI], id="an ended VMI makes room"),
        pytest.param(vm(), vmi("Failed", deleted=NOW), {}, [], id="a VMI is deleted once"),
        pytest.param(vm("Halted"), vmi(), {}, [DeleteVMI], id="a halted VM's VMI goes"),
        pytest.param(vm("Halted"), None, {}, [], id="a halted VM is not started"),
        pytest.param(
            vm("Halted", status=asked("Start")), None, {}, [SetRunStrategyAlways], id="unless it was asked to"
        ),
        pytest.param(vm("Manual"), None, {}, [], id="a manual VM waits to be asked"),
        pytest.param(vm("Manual", status=asked("Start")), None, {}, [CreateVMI], id="and starts when it is"),
        pytest.param(vm("Manual"), vmi("Failed"), {}, [], id="a manual VM's failed VMI stays"),
        pytest.param(
            vm("Manual", status=asked("Stop", "vmi-uid")), vmi(), {}, [DeleteVMI], id="a stop is for that VMI"
        ),
        pytest.param(vm("Manual", status=asked("Stop", "other")), vmi(), {}, [], id="a stop of another VMI is ignored"),
        pytest.param(vm("Once"), None, {}, [CreateVMI], id="once starts"),
        pytest.param(vm("Once"), vmi("Succeeded"), {}, [], id="once does not start again"),
        pytest.param(vm("RerunOnFailure"), None, {}, [CreateVMI], id="rerun starts the first time"),
        pytest.param(
            vm("RerunOnFailure", status={"runStrategy": "RerunOnFailure"}),
            None,
            {},
            [],
            id="rerun does not start again by itself",
        ),
        pytest.param(
            vm("RerunOnFailure", status=asked("Start") | {"runStrategy": "RerunOnFailure"}),
            vmi("Failed", status=RAN),
            {},
            [DeleteVMI],
            id="rerun clears a failed VMI once the next start is noted",
        ),
        pytest.param(
            vm("RerunOnFailure", status={"runStrategy": "RerunOnFailure"}),
            vmi("Failed", status=RAN),
            {},
            [],
            id="and not before",
        ),
        pytest.param(
            vm(data_volume_templates=("a", "b")),
            None,
            {"a": disk("a")},
            [CreateDataVolume],
            id="disks come before the start",
        ),
        pytest.param(
            vm(data_volume_templates=("a",)), None, {"a": disk("a", "Pending")}, [], id="a disk is waited for"
        ),
        pytest.param(vm(deleted=NOW), vmi(), {}, [DeleteVMI], id="a VM that goes takes its VMI with it"),
        pytest.param(vm(deleted=NOW), None, {}, [RemoveFinalizer], id="and goes after it"),
        pytest.param(vm(), vmi("Failed"), {}, [], id="a failed start is counted before its VMI goes"),
        pytest.param(vm(status=failed()), vmi("Failed"), {}, [DeleteVMI], id="a counted one goes"),
        pytest.param(vm(status=failed()), None, {}, [], id="the next start waits for its time"),
        pytest.param(
            vm(status=failed(retry="2026-01-01T11:59:59Z")), None, {}, [CreateVMI], id="and comes when it is there"
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
        pytest.param({"created": ago(10)}, False, 20, id="an incomplete VM waits for the defaulter"),
        pytest.param({"created": ago(31)}, True, None, id="but not for ever"),
        pytest.param({"created": ago(10), "defaulted": True}, True, None, id="a complete one does not wait"),
        pytest.param({"created": ago(10), "status": {"runStrategy": "Always"}}, True, None, id="nor one that has run"),
    ],
)
def test_a_first_start_waits_for_the_defaulter(changes: dict[str, Any], starts: bool, again: float | None) -> None:
    made = plan_vm(vm(**({"defaulted": False} | changes)), None, {}, NOW, delays=Delays(defaults_seconds=30))
    assert (bool(made.actions), made.requeue_seconds) == (starts, again)


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
        pytest.param("Provisioning", None, "Provisioning", id="its disks are there and its VMI is next"),
        pytest.param("Stopped", None, "Stopped", id="a stopped one is stopped until it has a VMI"),
        pytest.param("Provisioning", ("FailedCreate", "no"), "Stopped", id="one that cannot be started is too"),
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
