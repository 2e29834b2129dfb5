from __future__ import annotations

import pytest

from poolhouse.stack.engine.disk_objects import DataVolume
from poolhouse.stack.engine.objects import VM, VMI, Volume
from poolhouse.stack.engine.resources import find_condition
from poolhouse.stack.engine.vm.status import PRINTABLE, start_backoff, vm_status
from tests.stack.engine.builders import NOW, RAN, asked, disk, failed, vm, vmi

ERROR = {"type": "Running", "status": "False", "reason": "Error"}


def troubled(kind: str, reason: str) -> VMI:
    return vmi("Scheduling", status={"conditions": [{"type": kind, "status": "False", "reason": reason}]})


ROWS = [
    ("Terminating", vm(deleted=NOW), vmi(), {}),
    ("Stopping", vm(), vmi(deleted=NOW), {}),
    ("Migrating", vm(), vmi(status={"migrationState": {"startTimestamp": "x"}}), {}),
    ("Paused", vm(), vmi(status={"conditions": [{"type": "Paused", "status": "True"}]}), {}),
    ("Running", vm(), vmi(), {}),
    ("ErrorPvcNotFound", vm(), troubled("Synchronized", "FailedPvcNotFound"), {}),
    ("DataVolumeError", vm(data_volume_templates=("d",)), None, {"d": disk("d", status={"conditions": [ERROR]})}),
    ("DataVolumeError", vm(data_volume_templates=("d",)), None, {"d": disk("d", "Failed")}),
    ("ErrorUnschedulable", vm(), troubled("PodScheduled", "Unschedulable"), {}),
    ("Provisioning", vm(data_volume_templates=("d",)), None, {"d": disk("d", "ImportInProgress")}),
    ("Provisioning", vm(volumes=(Volume("d", True),)), None, {"d": disk("d", "")}),
    ("ErrImagePull", vm(), troubled("Synchronized", "ErrImagePull"), {}),
    ("ImagePullBackOff", vm(), troubled("Synchronized", "ImagePullBackOff"), {}),
    ("Starting", vm(), vmi("Scheduled"), {}),
    ("CrashLoopBackOff", vm(status=failed()), None, {}),
    ("CrashLoopBackOff", vm(), vmi("Failed"), {}),
    ("Stopped", vm("Halted"), None, {}),
    ("Stopped", vm("Manual"), vmi("Failed"), {}),
]


@pytest.mark.parametrize(("word", "vm", "vmi", "disks"), ROWS)
def test_printable_status(word: str, vm: VM, vmi: VMI | None, disks: dict[str, DataVolume]) -> None:
    assert vm_status(vm, vmi, disks, NOW)["printableStatus"] == word


def test_every_printable_status_is_tested() -> None:
    assert {word for word, _ in PRINTABLE} == {row[0] for row in ROWS}


def test_each_failed_start_counts_once_until_a_run() -> None:
    first = vm_status(vm(), vmi("Failed"), {}, NOW)["startFailure"]
    assert (first["consecutiveFailCount"], first["lastFailedVMIUID"]) == (1, "vmi-uid")
    same = vm_status(vm(status={"startFailure": first}), vmi("Failed"), {}, NOW)["startFailure"]
    assert same == first
    second = vm_status(vm(status={"startFailure": first}), vmi("Failed", uid="next"), {}, NOW)
    assert second["startFailure"]["consecutiveFailCount"] == 2
    assert "startFailure" not in vm_status(vm(status=second), vmi(), {}, NOW)


def test_a_crash_after_running_is_not_a_failed_start() -> None:
    crashed = vmi("Failed", status=RAN)
    assert "startFailure" not in vm_status(vm(), crashed, {}, NOW)


def test_the_backoff_grows_to_five_minutes() -> None:
    pauses = [start_backoff(count, "x") for count in range(1, 8)]
    assert pauses == sorted(pauses)
    assert 10 <= pauses[0] <= 15
    assert pauses[-1] == 300


def test_done_requests_are_removed_one_at_a_time() -> None:
    both = {"stateChangeRequests": [{"action": "Stop", "uid": "vmi-uid"}, {"action": "Start"}]}
    assert len(vm_status(vm(status=both), vmi(), {}, NOW)["stateChangeRequests"]) == 2
    left = vm_status(vm(status=both), None, {}, NOW)["stateChangeRequests"]
    assert left == [{"action": "Start"}]
    assert "stateChangeRequests" not in vm_status(vm(status=asked("Start")), vmi(), {}, NOW)


def test_a_changed_template_sets_restart_required() -> None:
    conditions = vm_status(vm(template_hash="t2"), vmi(), {}, NOW)["conditions"]
    assert find_condition(conditions, "RestartRequired") is not None
    assert find_condition(vm_status(vm(template_hash="t2"), None, {}, NOW)["conditions"], "RestartRequired") is None


def test_fields_of_others_stay() -> None:
    assert vm_status(vm(status={"volumeSnapshotStatuses": [1]}), None, {}, NOW)["volumeSnapshotStatuses"] == [1]


def test_a_failed_create_is_a_condition() -> None:
    status = vm_status(vm(), None, {}, NOW, failure=("FailedCreate", "quota"))
    assert find_condition(status["conditions"], "Failure")["message"] == "quota"
