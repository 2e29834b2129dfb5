"""Objects with defaults for everything that a test does not set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from poolhouse.stack.engine.disk_objects import PVC, DataVolume
from poolhouse.stack.engine.objects import VM, VMI, Node
from poolhouse.stack.engine.resources import VM_FINALIZER, VMI_FINALIZER

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)

RAN = {"phaseTransitionTimestamps": [{"phase": "Running", "phaseTransitionTimestamp": "2026-01-01T11:59:00Z"}]}
"""status of a VMI that has been running"""


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def vm(run_strategy: str = "Always", **changes: Any) -> VM:
    given: dict[str, Any] = {
        "namespace": "default",
        "name": "vm",
        "uid": "vm-uid",
        "created": ago(60),
        "finalizers": (VM_FINALIZER,),
        "generation": 1,
        "run_strategy": run_strategy,
        "template_hash": "t1",
    }
    return VM(**(given | changes))


def vmi(phase: str = "Running", **changes: Any) -> VMI:
    phases = ("Pending", "Scheduling", "Scheduled", "Running")
    passed = phases[: phases.index(phase) + 1] if phase in phases else ()
    status: dict[str, Any] = {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": str(phase == "Running")}],
        "phaseTransitionTimestamps": [
            {"phase": each, "phaseTransitionTimestamp": "2026-01-01T11:59:00Z"} for each in passed
        ],
    }
    if phase in ("Scheduled", "Running"):
        status["nodeName"] = "node-1"
    given: dict[str, Any] = {
        "namespace": "default",
        "name": "vm",
        "uid": "vmi-uid",
        "created": ago(60),
        "finalizers": (VMI_FINALIZER,),
        "controller_uid": "vm-uid",
        "template_hash": "t1",
        "grace_seconds": 30.0,
        "status": status | changes.pop("status", {}),
    }
    return VMI(**(given | changes))


def node(name: str = "node-1", **changes: Any) -> Node:
    given: dict[str, Any] = {"namespace": "", "name": name, "uid": name, "memory": 1 << 40}
    return Node(**(given | changes))


def disk(name: str = "disk", phase: str = "Succeeded", **changes: Any) -> DataVolume:
    given: dict[str, Any] = {"namespace": "default", "name": name, "uid": f"{name}-uid", "status": {"phase": phase}}
    return DataVolume(**(given | changes))


def pvc(name: str = "disk", phase: str = "Bound", **changes: Any) -> PVC:
    given: dict[str, Any] = {"namespace": "default", "name": name, "uid": f"{name}-pvc", "phase": phase}
    return PVC(**(given | changes))


def asked(action: str, uid: str | None = None) -> dict[str, Any]:
    return {"stateChangeRequests": [{"action": action, **({"uid": uid} if uid else {})}]}


def failed(count: int = 1, uid: str = "vmi-uid", retry: str = "2026-01-01T12:00:30Z") -> dict[str, Any]:
    failure = {"consecutiveFailCount": count, "lastFailedVMIUID": uid, "retryAfterTimestamp": retry}
    return {"startFailure": failure, "runStrategy": "Always"}
