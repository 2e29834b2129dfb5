from __future__ import annotations

import pytest

from local.engine.conditions import find
from local.engine.status import PRINTABLE, start_backoff, status_of
from local.engine.views import Disk, Instance, Machine, Volume
from tests.local.engine.builders import NOW, RAN, asked, disk, failed, instance, machine

ERROR = {"type": "Running", "status": "False", "reason": "Error"}


def troubled(kind: str, reason: str) -> Instance:
    return instance("Scheduling", status={"conditions": [{"type": kind, "status": "False", "reason": reason}]})


ROWS = [
    ("Terminating", machine(deleted=NOW), instance(), {}),
    ("Stopping", machine(), instance(deleted=NOW), {}),
    ("Migrating", machine(), instance(status={"migrationState": {"startTimestamp": "x"}}), {}),
    ("Paused", machine(), instance(status={"conditions": [{"type": "Paused", "status": "True"}]}), {}),
    ("Running", machine(), instance(), {}),
    ("ErrorPvcNotFound", machine(), troubled("Synchronized", "FailedPvcNotFound"), {}),
    ("DataVolumeError", machine(disks=("d",)), None, {"d": disk("d", status={"conditions": [ERROR]})}),
    ("DataVolumeError", machine(disks=("d",)), None, {"d": disk("d", "Failed")}),
    ("ErrorUnschedulable", machine(), troubled("PodScheduled", "Unschedulable"), {}),
    ("Provisioning", machine(disks=("d",)), None, {"d": disk("d", "ImportInProgress")}),
    ("Provisioning", machine(volumes=(Volume("d", True),)), None, {"d": disk("d", "")}),
    ("ErrImagePull", machine(), troubled("Synchronized", "ErrImagePull"), {}),
    ("ImagePullBackOff", machine(), troubled("Synchronized", "ImagePullBackOff"), {}),
    ("Starting", machine(), instance("Scheduled"), {}),
    ("CrashLoopBackOff", machine(status=failed()), None, {}),
    ("CrashLoopBackOff", machine(), instance("Failed"), {}),
    ("Stopped", machine("Halted"), None, {}),
    ("Stopped", machine("Manual"), instance("Failed"), {}),
]


@pytest.mark.parametrize(("word", "vm", "vmi", "disks"), ROWS)
def test_the_word_for_it(word: str, vm: Machine, vmi: Instance | None, disks: dict[str, Disk]) -> None:
    assert status_of(vm, vmi, disks, NOW)["printableStatus"] == word


def test_every_word_is_tried() -> None:
    assert {word for word, _ in PRINTABLE} == {row[0] for row in ROWS}


def test_failed_starts_are_counted_once_each_and_end_with_a_run() -> None:
    first = status_of(machine(), instance("Failed"), {}, NOW)["startFailure"]
    assert (first["consecutiveFailCount"], first["lastFailedVMIUID"]) == (1, "vmi-uid")
    same = status_of(machine(status={"startFailure": first}), instance("Failed"), {}, NOW)["startFailure"]
    assert same == first
    second = status_of(machine(status={"startFailure": first}), instance("Failed", uid="next"), {}, NOW)
    assert second["startFailure"]["consecutiveFailCount"] == 2
    assert "startFailure" not in status_of(machine(status=second), instance(), {}, NOW)


def test_a_guest_that_ran_and_crashed_is_no_failed_start() -> None:
    crashed = instance("Failed", status=RAN)
    assert "startFailure" not in status_of(machine(), crashed, {}, NOW)


def test_the_pause_grows_to_five_minutes() -> None:
    pauses = [start_backoff(count, "x") for count in range(1, 8)]
    assert pauses == sorted(pauses)
    assert 10 <= pauses[0] <= 15
    assert pauses[-1] == 300


def test_answered_requests_are_dropped_one_at_a_time() -> None:
    both = {"stateChangeRequests": [{"action": "Stop", "uid": "vmi-uid"}, {"action": "Start"}]}
    assert len(status_of(machine(status=both), instance(), {}, NOW)["stateChangeRequests"]) == 2
    left = status_of(machine(status=both), None, {}, NOW)["stateChangeRequests"]
    assert left == [{"action": "Start"}]
    assert "stateChangeRequests" not in status_of(machine(status=asked("Start")), instance(), {}, NOW)


def test_a_changed_template_asks_for_a_restart() -> None:
    conditions = status_of(machine(template="t2"), instance(), {}, NOW)["conditions"]
    assert find(conditions, "RestartRequired") is not None
    assert find(status_of(machine(template="t2"), None, {}, NOW)["conditions"], "RestartRequired") is None


def test_what_others_wrote_stays() -> None:
    assert status_of(machine(status={"volumeSnapshotStatuses": [1]}), None, {}, NOW)["volumeSnapshotStatuses"] == [1]


def test_a_failed_create_is_told() -> None:
    status = status_of(machine(), None, {}, NOW, failure=("FailedCreate", "quota"))
    assert find(status["conditions"], "Failure")["message"] == "quota"  # type: ignore[index]
