"""Conditions, states and times in words."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from controllers.pool.reasons import PoolReason
from controllers.shared.vm import VM
from controllers.shared.vmi import VMI
from poolhouse.api.apimachinery.timestamps import format_duration, known_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.health import holds
from poolhouse.cli.updates import WAITING_REASONS

VMState = Literal["ready", "starting", "failing", "held", "halted", "halting", "deleting"]
STATE_WORDS: dict[VMState, str] = {
    "ready": "ready",
    "starting": "not ready yet",
    "failing": "failing",
    "held": "held by lifecycle hooks",
    "halted": "halted as specified",
    "halting": "being halted",
    "deleting": "being deleted",
}

WORDS: dict[str, tuple[str, str]] = {
    "Available": ("Enough VMs are available", "Too few VMs are available"),
    "Progressing": ("A change is in progress", "A change makes no progress"),
    "Healing": ("Failing VMs are replaced", "Failing VMs are not replaced"),
    "EvictionBudgetFailure": ("A drain may stop too many VMs, or never end", "A drain respects the pool"),
    "Evicting": ("The VM should leave its node", "The VM stays on its node"),
    "ScalingLimited": ("Replicas are above the limit", "Replicas are within the limit"),
    "ScaleInBlocked": ("Scale-in is blocked", "Scale-in is not blocked"),
    "DisksShared": ("Disks are shared with another owner", "No disk is shared with another owner"),
    "DisksOutdated": ("Some disks have an old template", "All disks have the template"),
    "SnapshotFailure": ("Snapshots fail", "Snapshots succeed"),
    "UnownedVMs": ("VMs have the pool's label and no owner", "All VMs with the pool's label are its own"),
    "RevisionLost": ("An update may have left fields in VMs", "No update has left fields in VMs"),
    "ReferencesRefused": ("An author may no longer get what the spec names", "Authors may get what the spec names"),
    "VMsHeld": ("Lifecycle hooks hold VMs", "No VM is held"),
    "ReplicaFailure": ("VMs cannot be created or deleted", "VMs can be created and deleted"),
    "ReplicaPaused": ("It is paused", "It is not paused"),
    "Reconciling": ("The controller works towards the spec", "Nothing is left to do"),
    "Stalled": ("It cannot go on without help", "Nothing stops it"),
    "Paused": ("It is paused", "It is not paused"),
    "Valid": ("The spec is valid", "The spec is invalid"),
    "Degraded": ("It is degraded", "It is not degraded"),
    "RolloutComplete": ("All waiting VMs have the template", "Not all waiting VMs have the template"),
    "Default": ("It is the default pool of the namespace", "It is not the default pool"),
    "Autoscaling": ("The autoscaling decides about the size", "The autoscaling does not decide"),
    "Active": ("It is active", "It is not active"),
    "Enforced": ("KubeVirt enforces it", "KubeVirt does not enforce it"),
    "Bound": ("It has a VM", "It has no VM"),
    "Ready": ("It is ready", "It is not ready"),
    "Expiring": ("Its time ends soon", "Its time does not end soon"),
    "Personalized": ("The VM is personalized", "The VM is not personalized"),
    "ApplicationHealthy": ("The application is healthy", "The application is not healthy"),
}


BY_REASON: dict[tuple[str, str], tuple[str, str]] = {
    ("Progressing", PoolReason.COMPLETE): ("Nothing is left to change", "Nothing is left to change"),
    **{("Progressing", reason): ("The update waits", "The update waits") for reason in WAITING_REASONS},
}
"""words of a condition with a reason"""


def condition_rows(status: Json, now: datetime) -> list[Json]:
    """The conditions in words, first those by which the controller says that the object needs help."""
    conditions = status.get("conditions") or ()
    found = {each["type"]: each for each in conditions}
    problem = found["Stalled"].get("reason") if holds(found, "Stalled") else None
    rows = [_condition(each, problem, now) for each in conditions]
    return sorted(rows, key=lambda each: not each["bad"])


def _condition(condition: Json, problem: str | None, now: datetime) -> Json:
    kind, status = condition["type"], condition.get("status")
    known = WORDS.get(kind, (kind, f"not {kind}"))
    known = BY_REASON.get((kind, str(condition.get("reason"))), known)
    words = known[0] if status == "True" else known[1] if status == "False" else f"{kind} is unknown"
    return {
        "type": kind,
        "status": status,
        "words": words,
        "reason": condition.get("reason") or "",
        "message": condition.get("message") or "",
        "since": age(condition.get("lastTransitionTime"), now),
        "time": condition.get("lastTransitionTime") or "",
        "bad": problem is not None and condition.get("reason") == problem,
    }


def age(time: str | None, now: datetime) -> str:
    """The time since a moment, such as `5m`; empty without a time."""
    moment = known_time(time or "")
    if moment is None:
        return ""
    return format_duration((now - moment).total_seconds())


def vm_state(vm: VM) -> VMState:
    if vm.deleting:
        return "deleting"
    if vm.held:
        return "held"
    if vm.available:
        return "ready" if vm.should_run else "halted"
    if not vm.should_run:
        return "halting"
    if vm.start_failures or (vm.vmi is not None and vm.vmi.phase == "Failed"):
        return "failing"
    return "starting"


def vmi_state(vmi: VMI) -> VMState:
    if vmi.deleting:
        return "deleting"
    if vmi.phase == "Failed" or vmi.start_failure:
        return "failing"
    if vmi.final:
        return "halted"
    return "ready" if vmi.ready else "starting"
