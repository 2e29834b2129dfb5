"""Plans VirtualMachineSnapshots by the rules of KubeVirt's snapshot controller."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.stack.engine.disk_objects import Snapshot, SnapshotContent
from poolhouse.stack.engine.objects import VM, VMI, seconds_until
from poolhouse.stack.engine.resources import (
    SNAPSHOT_FINALIZER,
    SNAPSHOT_SOURCE_FINALIZER,
    condition,
    has_condition,
    merge_conditions,
)

LOCKED = "Source locked and operation in progress"
NOT_LOCKED = "Source not locked"
DEADLINE_EXCEEDED = "snapshot deadline exceeded"
NOT_IN_PROGRESS = {
    "Failed": "Operation failed",
    "Succeeded": "Operation complete",
    "Deleting": "VM snapshot is deleting",
}
"""messages of the condition Progressing, by phase"""
RETRY_SECONDS = 5.0


class Action(Enum):
    ADD_FINALIZER = auto()
    REMOVE_FINALIZER = auto()
    LOCK_VM = auto()
    """Keep the VM's run strategy and volumes as they are, and the VM itself, until the snapshot is taken."""
    UNLOCK_VM = auto()
    CREATE_CONTENT = auto()
    DELETE_CONTENT = auto()


@dataclass(frozen=True)
class SnapshotPlan:
    status: Json
    actions: tuple[Action, ...] = ()
    requeue_seconds: float | None = None


def plan_snapshot(
    snapshot: Snapshot, vm: VM | None, vmi: VMI | None, content: SnapshotContent | None, missing: str, now: datetime
) -> SnapshotPlan:
    """Returns the plan of a snapshot. `missing` says which volume of the VM is not ready, or is ""."""
    terminating = _is_terminating(snapshot, now)
    if not snapshot.status and not terminating:
        return SnapshotPlan(_status(snapshot, vm, vmi, None, "", now), (Action.ADD_FINALIZER,))
    in_progress = not (snapshot.final or terminating)
    lacks_finalizer = not terminating and SNAPSHOT_FINALIZER not in snapshot.finalizers
    taken, problem = _take(snapshot, vm, content, missing) if in_progress else ([], "")
    actions = (
        *([Action.ADD_FINALIZER] if lacks_finalizer else []),
        *taken,
        *([] if in_progress else _end(snapshot, vm, content, terminating)),
    )
    status = _status(snapshot, vm, vmi, content, problem, now)
    left = [seconds_until(_deadline(snapshot), now)] if in_progress else []
    return SnapshotPlan(status, actions, min((*left, *([RETRY_SECONDS] if problem else [])), default=None))


def _is_terminating(snapshot: Snapshot, now: datetime) -> bool:
    expired = not snapshot.final and now >= _deadline(snapshot)
    return snapshot.deleted is not None or snapshot.phase == "Failed" or expired


def _deadline(snapshot: Snapshot) -> datetime:
    return snapshot.created + timedelta(seconds=snapshot.deadline_seconds)


def _take(snapshot: Snapshot, vm: VM | None, content: SnapshotContent | None, missing: str) -> tuple[list[Action], str]:
    """What takes the snapshot of the VM, or why the VM cannot be locked."""
    if vm is None:
        return [], ""
    if _is_locked(vm, snapshot):
        return [Action.CREATE_CONTENT] if content is None else [], ""
    problem = _why_not_lockable(vm, snapshot, missing)
    return [] if problem else [Action.LOCK_VM], problem


def _end(snapshot: Snapshot, vm: VM | None, content: SnapshotContent | None, terminating: bool) -> Iterator[Action]:
    """Unlocks the VM, deletes the content, and lets the snapshot go when nothing of it is left."""
    kept = content is None or (snapshot.retains_content and bool(content.created_at))
    held = vm is not None and _holds(vm, snapshot)
    if held and (snapshot.final or kept):
        held = False
        yield Action.UNLOCK_VM
    gone = kept or (content is not None and content.deleted is not None)
    if terminating and not gone:
        yield Action.DELETE_CONTENT
    if snapshot.deleted is not None and not held and gone and SNAPSHOT_FINALIZER in snapshot.finalizers:
        yield Action.REMOVE_FINALIZER


def _is_locked(vm: VM, snapshot: Snapshot) -> bool:
    return _holds(vm, snapshot) and SNAPSHOT_SOURCE_FINALIZER in vm.finalizers


def _holds(vm: VM, snapshot: Snapshot) -> bool:
    return vm.status.get("snapshotInProgress") == snapshot.name


def _why_not_lockable(vm: VM, snapshot: Snapshot, missing: str) -> str:
    other = vm.status.get("snapshotInProgress")
    if vm.deleted is not None:
        return f"{NOT_LOCKED} source {vm.namespace}/{vm.name} is being deleted"
    if missing:
        return f"{NOT_LOCKED} source {vm.namespace}/{vm.name} {missing}"
    return f'{NOT_LOCKED} snapshot "{other}" in progress' if other not in (None, snapshot.name) else ""


def _status(
    snapshot: Snapshot, vm: VM | None, vmi: VMI | None, content: SnapshotContent | None, problem: str, now: datetime
) -> Json:
    status: Json = {"readyToUse": False, **snapshot.status}
    if vm is not None:
        status["sourceUID"] = vm.uid
    if content is not None and content.status:
        status["virtualMachineSnapshotContentName"] = content.name
        for name in ("creationTime", "readyToUse", "error"):
            status[name] = content.status.get(name)
    phase = status["phase"] = _phase(snapshot, bool(status.get("creationTime")), now)
    if phase == "Succeeded" and content is not None:
        status["snapshotVolumes"] = _included_volumes(vm, content)
    if phase == "InProgress":
        status |= _indications(vmi)
    progress = _progress(snapshot, vm, phase, problem)
    if status.get("error"):
        progress = condition("Progressing", False, "In error state")
    ready = condition("Ready", True, "Ready") if status.get("readyToUse") else condition("Ready", False, "Not ready")
    failed = [condition("Failure", True, DEADLINE_EXCEEDED)] if phase == "Failed" else []
    before = snapshot.status.get("conditions") or ()
    status["conditions"] = merge_conditions(before, [progress, *failed, ready], now)
    return {key: value for key, value in status.items() if value is not None}


def _phase(snapshot: Snapshot, created: bool, now: datetime) -> str:
    if snapshot.final:
        return snapshot.phase
    if created:
        return "Succeeded"
    if now >= _deadline(snapshot):
        return "Failed"
    return "InProgress" if snapshot.deleted is None else "Deleting"


def _progress(snapshot: Snapshot, vm: VM | None, phase: str, problem: str) -> Json:
    if phase in NOT_IN_PROGRESS:
        return condition("Progressing", False, NOT_IN_PROGRESS[phase])
    locked = vm is not None and _is_locked(vm, snapshot)
    message = LOCKED if locked else problem or (NOT_LOCKED if vm is not None else "Source does not exist")
    return condition("Progressing", locked, message)


def _included_volumes(vm: VM | None, content: SnapshotContent) -> Json:
    included = sorted(each.volume for each in content.backups)
    volumes = sorted(volume.name for volume in vm.volumes) if vm is not None else included
    return {"includedVolumes": included, "excludedVolumes": [each for each in volumes if each not in included]}


def _indications(vmi: VMI | None) -> Json:
    """The state of the VM. The guests of the engine have no channel for a guest agent, except in simulation."""
    if vmi is None:
        return {"indications": None}
    if has_condition(vmi.conditions, "Paused"):
        found = "Paused"
    else:
        found = "GuestAgent" if has_condition(vmi.conditions, "AgentConnected") else "NoGuestAgent"
    return {"indications": sorted((found, "Online"))}
