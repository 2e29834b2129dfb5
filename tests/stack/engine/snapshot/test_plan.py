"""VirtualMachineSnapshots by KubeVirt's rules. Each row is a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.stack.engine.disk_objects import Snapshot, SnapshotContent, VolumeBackup, read_restore, read_snapshot
from poolhouse.stack.engine.resources import SNAPSHOT_FINALIZER, SNAPSHOT_SOURCE_FINALIZER, VM_FINALIZER, find_condition
from poolhouse.stack.engine.snapshot.plan import (
    Action,
    SnapshotPlan,
    plan_snapshot,
)
from tests.stack.engine.builders import NOW, ago, vm, vmi

INITIAL = {"phase": "InProgress", "readyToUse": False}
DONE = {"phase": "Succeeded", "readyToUse": True, "creationTime": "2026-01-01T11:59:30Z"}
FAILED = {"phase": "Failed", "readyToUse": False}


def snapshot(status: Any = None, **given: Any) -> Snapshot:
    facts = {"finalizers": (SNAPSHOT_FINALIZER,), "created": ago(60), **given}
    return Snapshot("default", "snap", "s-uid", vm="vm", status=INITIAL if status is None else status, **facts)


def content(**given: Any) -> SnapshotContent:
    backups = (VolumeBackup("root", "root-1", "copy"),)
    return SnapshotContent("default", "content", "c-uid", snapshot="snap", vm="vm", backups=backups, **given)


COPIED = {"creationTime": "2026-01-01T11:59:30Z", "readyToUse": True}
LOCKED = vm(finalizers=(VM_FINALIZER, SNAPSHOT_SOURCE_FINALIZER), status={"snapshotInProgress": "snap"})


@pytest.mark.parametrize(
    ("plan", "phase", "actions"),
    [
        pytest.param(
            plan_snapshot(snapshot({}, finalizers=()), vm(), vmi(), None, "", NOW),
            "InProgress",
            [Action.ADD_FINALIZER],
            id="a new snapshot is initialized",
        ),
        pytest.param(
            plan_snapshot(snapshot(), vm(), vmi(), None, "", NOW), "InProgress", [Action.LOCK_VM], id="the VM is locked"
        ),
        pytest.param(
            plan_snapshot(snapshot(), vm(), None, None, "volume not bound: root", NOW),
            "InProgress",
            [],
            id="a VM with a disk that is not bound is not locked",
        ),
        pytest.param(
            plan_snapshot(snapshot(), vm(status={"snapshotInProgress": "other"}), None, None, "", NOW),
            "InProgress",
            [],
            id="one snapshot of a VM at a time",
        ),
        pytest.param(
            plan_snapshot(snapshot(), None, None, None, "", NOW), "InProgress", [], id="a VM that does not exist"
        ),
        pytest.param(
            plan_snapshot(snapshot(), LOCKED, vmi(), None, "", NOW),
            "InProgress",
            [Action.CREATE_CONTENT],
            id="the content of a locked VM is created",
        ),
        pytest.param(
            plan_snapshot(snapshot(), LOCKED, vmi(), content(), "", NOW), "InProgress", [], id="the disks are copied"
        ),
        pytest.param(
            plan_snapshot(snapshot(), LOCKED, vmi(), content(status=COPIED), "", NOW),
            "Succeeded",
            [],
            id="the disks are copied, and the status says so first",
        ),
        pytest.param(
            plan_snapshot(snapshot(DONE), LOCKED, vmi(), content(status=COPIED), "", NOW),
            "Succeeded",
            [Action.UNLOCK_VM],
            id="the VM is unlocked after the copy",
        ),
        pytest.param(
            plan_snapshot(snapshot(created=ago(301)), LOCKED, vmi(), content(), "", NOW),
            "Failed",
            [Action.DELETE_CONTENT],
            id="a snapshot that is late fails",
        ),
        pytest.param(
            plan_snapshot(snapshot(FAILED, created=ago(302)), LOCKED, vmi(), None, "", NOW),
            "Failed",
            [Action.UNLOCK_VM],
            id="a snapshot that is late unlocks its VM",
        ),
        pytest.param(
            plan_snapshot(snapshot(DONE, created=ago(900)), vm(), None, content(status=COPIED), "", NOW),
            "Succeeded",
            [],
            id="a snapshot that is complete is never late",
        ),
        pytest.param(
            plan_snapshot(snapshot(DONE, deleted=ago(1)), vm(), None, content(status=COPIED), "", NOW),
            "Succeeded",
            [Action.DELETE_CONTENT],
            id="the content is deleted with the snapshot",
        ),
        pytest.param(
            plan_snapshot(snapshot(DONE, deleted=ago(1)), vm(), None, None, "", NOW),
            "Succeeded",
            [Action.REMOVE_FINALIZER],
            id="the snapshot is deleted after its content",
        ),
        pytest.param(
            plan_snapshot(
                snapshot(DONE, deleted=ago(1), retains_content=True), vm(), None, content(status=COPIED), "", NOW
            ),
            "Succeeded",
            [Action.REMOVE_FINALIZER],
            id="deletionPolicy Retain keeps the content",
        ),
        pytest.param(
            plan_snapshot(snapshot(deleted=ago(1)), LOCKED, vmi(), content(), "", NOW),
            "Deleting",
            [Action.DELETE_CONTENT],
            id="a snapshot that is deleted before it is complete",
        ),
        pytest.param(
            plan_snapshot(snapshot(deleted=ago(1)), LOCKED, vmi(), None, "", NOW),
            "Deleting",
            [Action.UNLOCK_VM, Action.REMOVE_FINALIZER],
            id="a snapshot that is deleted before it is complete unlocks its VM",
        ),
    ],
)
def test_a_plan_has_the_phase_and_the_next_actions_of_a_snapshot(
    plan: SnapshotPlan, phase: str, actions: list[Action]
) -> None:
    assert (plan.status["phase"], list(plan.actions)) == (phase, actions)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(None, None, id="halted"),
        pytest.param(vmi(), ["NoGuestAgent", "Online"], id="running"),
        pytest.param(
            vmi(status={"conditions": [{"type": "AgentConnected", "status": "True"}]}),
            ["GuestAgent", "Online"],
            id="with a guest agent",
        ),
        pytest.param(
            vmi(status={"conditions": [{"type": "Paused", "status": "True"}]}), ["Online", "Paused"], id="paused"
        ),
    ],
)
def test_the_state_of_the_vm_is_indicated(given: Any, expected: list[str] | None) -> None:
    assert plan_snapshot(snapshot(), LOCKED, given, None, "", NOW).status.get("indications") == expected


def test_an_error_of_the_storage_is_shown() -> None:
    broken = content(status={"readyToUse": False, "error": {"message": "no room"}})
    status = plan_snapshot(snapshot(), LOCKED, None, broken, "", NOW).status
    progressing = find_condition(status["conditions"], "Progressing")
    assert status["error"] == {"message": "no room"}
    assert progressing["reason"] == "In error state"


def test_volumes_without_a_copy_are_named() -> None:
    status = plan_snapshot(snapshot(DONE), LOCKED, None, content(status=COPIED), "", NOW).status
    assert status["snapshotVolumes"] == {"includedVolumes": ["root"], "excludedVolumes": []}


@pytest.mark.parametrize(("text", "seconds"), [(None, 300), ("1m30s", 90), ("0s", 0), ("500ms", 0.5), ("soon", 300)])
def test_deadlines(text: str | None, seconds: float) -> None:
    spec: Any = {"source": {"name": "vm"}, **({"failureDeadline": text} if text else {})}
    assert read_snapshot({"metadata": {"name": "s", "uid": "u"}, "spec": spec}).deadline_seconds == seconds


def test_the_policies_of_a_restore_have_kubevirts_defaults() -> None:
    spec = {"target": {"name": "vm"}, "virtualMachineSnapshotName": "s"}
    found = read_restore({"metadata": {"name": "r", "uid": "u"}, "spec": spec})
    assert (found.readiness_policy, found.volume_policy) == ("WaitGracePeriod", "RandomizeNames")
