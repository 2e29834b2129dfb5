from __future__ import annotations

from typing import Any

import pytest

from local.engine.plan import Action, AddFinalizer, CreateDisk, DropFinalizer, Pace, RunAlways, Start, Stop, plan
from local.engine.views import Disk, Instance, Machine
from tests.local.engine.builders import NOW, RAN, ago, asked, disk, failed, instance, machine


def kinds(actions: tuple[Action, ...]) -> list[type[Action]]:
    return [type(action) for action in actions]


@pytest.mark.parametrize(
    ("vm", "vmi", "disks", "wanted"),
    [
        pytest.param(machine(finalizers=()), None, {}, [AddFinalizer], id="our finalizer comes first"),
        pytest.param(machine(), None, {}, [Start], id="a VM that is meant to run is started"),
        pytest.param(machine(), instance(), {}, [], id="one that runs is left alone"),
        pytest.param(machine(), instance("Succeeded", status=RAN), {}, [Stop], id="an ended VMI makes room"),
        pytest.param(machine(), instance("Failed", deleted=NOW), {}, [], id="a VMI is deleted once"),
        pytest.param(machine("Halted"), instance(), {}, [Stop], id="a halted VM's VMI goes"),
        pytest.param(machine("Halted"), None, {}, [], id="a halted VM is not started"),
        pytest.param(machine("Halted", status=asked("Start")), None, {}, [RunAlways], id="unless it was asked to"),
        pytest.param(machine("Manual"), None, {}, [], id="a manual VM waits to be asked"),
        pytest.param(machine("Manual", status=asked("Start")), None, {}, [Start], id="and starts when it is"),
        pytest.param(machine("Manual"), instance("Failed"), {}, [], id="a manual VM's failed VMI stays"),
        pytest.param(
            machine("Manual", status=asked("Stop", "vmi-uid")), instance(), {}, [Stop], id="a stop is for that VMI"
        ),
        pytest.param(
            machine("Manual", status=asked("Stop", "other")), instance(), {}, [], id="a stop of another VMI is ignored"
        ),
        pytest.param(machine("Once"), None, {}, [Start], id="once starts"),
        pytest.param(machine("Once"), instance("Succeeded"), {}, [], id="once does not start again"),
        pytest.param(machine("RerunOnFailure"), None, {}, [Start], id="rerun starts the first time"),
        pytest.param(
            machine("RerunOnFailure", status={"runStrategy": "RerunOnFailure"}),
            None,
            {},
            [],
            id="rerun does not start again by itself",
        ),
        pytest.param(
            machine("RerunOnFailure", status=asked("Start") | {"runStrategy": "RerunOnFailure"}),
            instance("Failed", status=RAN),
            {},
            [Stop],
            id="rerun clears a failed VMI once the next start is noted",
        ),
        pytest.param(
            machine("RerunOnFailure", status={"runStrategy": "RerunOnFailure"}),
            instance("Failed", status=RAN),
            {},
            [],
            id="and not before",
        ),
        pytest.param(machine(disks=("a", "b")), None, {"a": disk("a")}, [CreateDisk], id="disks come before the start"),
        pytest.param(machine(disks=("a",)), None, {"a": disk("a", "Pending")}, [], id="a disk is waited for"),
        pytest.param(machine(deleted=NOW), instance(), {}, [Stop], id="a VM that goes takes its VMI with it"),
        pytest.param(machine(deleted=NOW), None, {}, [DropFinalizer], id="and goes after it"),
        pytest.param(machine(), instance("Failed"), {}, [], id="a failed start is counted before its VMI goes"),
        pytest.param(machine(status=failed()), instance("Failed"), {}, [Stop], id="a counted one goes"),
        pytest.param(machine(status=failed()), None, {}, [], id="the next start waits for its time"),
        pytest.param(
            machine(status=failed(retry="2026-01-01T11:59:59Z")), None, {}, [Start], id="and comes when it is there"
        ),
    ],
)
def test_what_is_done(vm: Machine, vmi: Instance | None, disks: dict[str, Disk], wanted: list[type[Action]]) -> None:
    assert kinds(plan(vm, vmi, disks, NOW).actions) == wanted


def test_a_start_after_failures_is_looked_for_at_its_time() -> None:
    assert plan(machine(status=failed()), None, {}, NOW).again_seconds == 30


@pytest.mark.parametrize(
    ("changes", "starts", "again"),
    [
        pytest.param({"created": ago(10)}, False, 20, id="an incomplete VM waits for the defaulter"),
        pytest.param({"created": ago(31)}, True, None, id="but not for ever"),
        pytest.param({"created": ago(10), "complete": True}, True, None, id="a complete one does not wait"),
        pytest.param({"created": ago(10), "status": {"runStrategy": "Always"}}, True, None, id="nor one that has run"),
    ],
)
def test_a_first_start_waits_for_defaults(changes: dict[str, Any], starts: bool, again: float | None) -> None:
    made = plan(machine(**({"complete": False} | changes)), None, {}, NOW, pace=Pace(defaults_seconds=30))
    assert (bool(made.actions), made.again_seconds) == (starts, again)


def test_a_moment_of_starting_is_not_written_down_where_thousands_start() -> None:
    young = instance("", created=ago(1), status={"conditions": []})
    vm = machine(created=ago(1))
    assert plan(vm, young, {}, NOW).status["printableStatus"] == "Starting"
    made = plan(vm, young, {}, NOW, pace=Pace(machine_settle_seconds=2))
    assert (made.status, made.again_seconds) == ({}, 2)
    assert plan(vm, instance(created=ago(1)), {}, NOW, pace=Pace(machine_settle_seconds=2)).status["ready"] is True


@pytest.mark.parametrize(
    ("before", "failure", "word"),
    [
        pytest.param("Provisioning", None, "Provisioning", id="its disks are there and its VMI is next"),
        pytest.param("Stopped", None, "Stopped", id="a stopped one is stopped until it has a VMI"),
        pytest.param("Provisioning", ("FailedCreate", "no"), "Stopped", id="one that cannot be started is too"),
    ],
)
def test_what_is_on_its_way_does_not_stop_for_a_moment(before: str, failure: Any, word: str) -> None:
    made = plan(machine(status={"printableStatus": before}), None, {}, NOW, failure=failure)
    assert (kinds(made.actions), made.status["printableStatus"]) == ([Start], word)


def test_the_same_state_changes_nothing() -> None:
    first = plan(machine(), instance(), {}, NOW)
    again = plan(machine(status=first.status), instance(), {}, ago(-100))
    assert again.status == first.status
    assert not again.actions
