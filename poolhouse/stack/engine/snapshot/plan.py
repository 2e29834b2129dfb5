"""Plans VirtualMachineSnapshots by the rules of KubeVirt's snapshot controller."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.stack.engine.objects import VM, VMI, Snapshot, SnapshotContent, seconds_until
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
    deadline = snapshot.created + timedelta(seconds=snapshot.deadline_seconds)
    in_progress = not snapshot.final
    terminating = snapshot.deleted is not None or snapshot.phase == "Failed" or (in_progress and now >= deadline)
    if not snapshot.status and not terminating:
        return SnapshotPlan(_status(snapshot, vm, vmi, None, "", now), (Action.ADD_FINALIZER,))
    actions: list[Action] = []
    if not terminating and SNAPSHOT_FINALIZER not in snapshot.finalizers:
        actions.append(Action.ADD_FINALIZER)
    keep = snapshot.retains_content and content is not None and bool(content.created_at)
    problem, requeue = "", None
    if vm is not None and in_progress and not terminating:
        if _is_locked(vm, snapshot):
            actions += [Action.CREATE_CONTENT] if content is None else []
        elif problem := _why_not_lockable(vm, snapshot, missing):
            requeue = RETRY_SECONDS
        else:
            actions.append(Action.LOCK_VM)
    elif vm is not None and _holds(vm, snapshot) and (not in_progress or content is None or keep):
        actions.append(Action.UNLOCK_VM)
    if terminating and content is not None and not keep and content.deleted is None:
        actions.append(Action.DELETE_CONTENT)
    held = vm is not None and _holds(vm, snapshot) and Action.UNLOCK_VM not in actions
    gone = content is None or keep or content.deleted is not None
    if snapshot.deleted is not None and not held and gone and SNAPSHOT_FINALIZER in snapshot.finalizers:
        actions.append(Action.REMOVE_FINALIZER)
    status = _status(snapshot, vm, vmi, content, problem, now)
    left = seconds_until(deadline, now) if in_progress and not terminating else None
    times = [each for each in (requeue, left) if each is not None]
    return SnapshotPlan(status, tuple(actions), min(times, default=None))


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
    deadline = snapshot.created + timedelta(seconds=snapshot.deadline_seconds)
    created = bool(status.get("creationTime"))
    if snapshot.phase == "Failed" or (snapshot.phase != "Succeeded" and not created and now >= deadline):
        status["phase"] = "Failed"
        progress = condition("Progressing", False, "Operation failed")
    elif created or snapshot.phase == "Succeeded":
        status["phase"] = "Succeeded"
        progress = condition("Progressing", False, "Operation complete")
        if content is not None:
            included = sorted(each.volume for each in content.backups)
            volumes = sorted(volume.name for volume in vm.volumes) if vm is not None else included
            excluded = [each for each in volumes if each not in included]
            status["snapshotVolumes"] = {"includedVolumes": included, "excludedVolumes": excluded}
    elif snapshot.deleted is not None:
        status["phase"] = "Deleting"
        progress = condition("Progressing", False, "VM snapshot is deleting")
    else:
        status["phase"] = "InProgress"
        locked = vm is not None and _is_locked(vm, snapshot)
        message = LOCKED if locked else problem or (NOT_LOCKED if vm is not None else "Source does not exist")
        progress = condition("Progressing", locked, message)
        status |= _indications(vmi)
    if status.get("error"):
        progress = condition("Progressing", False, "In error state")
    ready = condition("Ready", True, "Ready") if status.get("readyToUse") else condition("Ready", False, "Not ready")
    failed = [condition("Failure", True, DEADLINE_EXCEEDED)] if status["phase"] == "Failed" else []
    before = snapshot.status.get("conditions") or ()
    status["conditions"] = merge_conditions(before, [progress, *failed, ready], now)
    return {key: value for key, value in status.items() if value is not None}


def _indications(vmi: VMI | None) -> Json:
    """The state of the VM. The guests of the engine have no channel for a guest agent, except in simulation."""
    if vmi is None:
        return {"indications": None}
    if has_condition(vmi.conditions, "Paused"):
        found = "Paused"
    else:
        found = "GuestAgent" if has_condition(vmi.conditions, "AgentConnected") else "NoGuestAgent"
    return {"indications": sorted((found, "Online"))}
