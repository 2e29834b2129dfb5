"""What a VirtualMachine's status says, in KubeVirt's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from local.engine import times
from local.engine.conditions import condition, find, holds, settle
from local.engine.views import Disk, Instance, Machine
from runtime.backoff import fraction

Json = dict[str, Any]

COUNTED = ("Always", "RerunOnFailure", "Once")
"""strategies under which failed starts are counted"""
CAP_SECONDS = 300.0
OWN = ("Ready", "Failure", "RestartRequired")
"""conditions that are the VM's; all others are its VMI's"""


def status_of(
    machine: Machine,
    instance: Instance | None,
    disks: Mapping[str, Disk],
    now: datetime,
    *,
    retry_seconds: float = 10.0,
    failure: tuple[str, str] | None = None,
) -> Json:
    """The whole status: what is not ours to say stays as it is."""
    start_failure = _start_failure(machine, instance, now, retry_seconds)
    said: Json = {
        "created": instance is not None,
        "ready": instance is not None and instance.deleted is None and holds(instance.conditions, "Ready"),
        "conditions": settle(machine.status.get("conditions") or (), _conditions(machine, instance, failure), now),
        "observedGeneration": machine.generation,
        "desiredGeneration": machine.generation,
        "startFailure": start_failure,
        "stateChangeRequests": _requests(machine, instance),
        # Empty until the VM has once been started: that is how a first start is known.
        "runStrategy": machine.strategy if instance is not None or machine.status.get("runStrategy") else None,
        "printableStatus": _printable(machine, instance, disks, start_failure),
    }
    status = {**machine.status, **said}
    return {key: value for key, value in status.items() if value is not None}


def failed_early(instance: Instance) -> bool:
    """Whether a start failed: it ended without ever having run."""
    return instance.final and instance.reached("Running") is None


def reruns(machine: Machine, instance: Instance) -> bool:
    """Whether its VM must ask for another start, because its strategy alone does not."""
    return machine.strategy == "RerunOnFailure" and instance.phase == "Failed" and instance.deleted is None


def _start_failure(machine: Machine, instance: Instance | None, now: datetime, retry_seconds: float) -> Json | None:
    before: Json | None = machine.status.get("startFailure")
    if machine.strategy not in COUNTED or (instance is not None and instance.reached("Running") is not None):
        return None
    if instance is None or not failed_early(instance) or (before or {}).get("lastFailedVMIUID") == instance.uid:
        return before
    count = int((before or {}).get("consecutiveFailCount") or 0) + 1
    pause = start_backoff(count, instance.uid, retry_seconds)
    return {
        "consecutiveFailCount": count,
        "lastFailedVMIUID": instance.uid,
        "retryAfterTimestamp": times.stamp(now + timedelta(seconds=pause)),
    }


def start_backoff(count: int, identity: str, retry_seconds: float = 10.0) -> float:
    """KubeVirt's: grows with the square of the count and ends at five minutes, up to half of it spread."""
    pause = retry_seconds * count * count
    return min(CAP_SECONDS, pause * (1 + 0.5 * fraction(identity)))


def _requests(machine: Machine, instance: Instance | None) -> list[Json] | None:
    """What was asked for, without the first request once it is answered."""
    requests = list(machine.status.get("stateChangeRequests") or ())
    if not requests:
        return [{"action": "Start"}] if instance is not None and reruns(machine, instance) else None
    first = requests[0]
    if first.get("action") == "Stop":
        answered = instance is None or first.get("uid") != instance.uid
    else:
        answered = instance is not None and instance.deleted is None and not instance.final
    return (requests[1:] if answered else requests) or None


def _conditions(machine: Machine, instance: Instance | None, failure: tuple[str, str] | None) -> list[Json]:
    found = [_ready(instance)]
    if failure is not None:
        found.append(condition("Failure", True, *failure))
    # Not while it is being stopped: the next start takes the new template anyway.
    if instance is not None and instance.template not in ("", machine.template) and instance.deleted is None:
        message = "a non-live-updatable field was changed in the template spec"
        found.append(condition("RestartRequired", True, message=message))
    for each in instance.conditions if instance is not None else ():
        if each.get("type") not in OWN:
            found.append({key: value for key, value in each.items() if key != "lastTransitionTime"})
    return found


def _ready(instance: Instance | None) -> Json:
    if instance is None:
        return condition("Ready", False, "VMINotExists", "VMI does not exist")
    if instance.deleted is not None:
        return condition("Ready", False, "PodTerminating", "virt-launcher pod is terminating")
    ready = find(instance.conditions, "Ready")
    if ready is None:
        return condition("Ready", False, "VMIConditionMissing", "VMI is missing the Ready condition")
    return condition("Ready", str(ready["status"]), str(ready.get("reason", "")), str(ready.get("message", "")))


# The first that holds is the word. The order is KubeVirt's.
_Holds = Callable[[Machine, Instance | None, list[Disk], Json | None], bool]
PRINTABLE: tuple[tuple[str, _Holds], ...] = (
    ("Terminating", lambda m, i, d, f: m.deleted is not None),
    ("Stopping", lambda m, i, d, f: i is not None and not i.final and i.deleted is not None),
    ("Migrating", lambda m, i, d, f: i is not None and _migrating(i)),
    ("Paused", lambda m, i, d, f: i is not None and i.phase == "Running" and holds(i.conditions, "Paused")),
    ("Running", lambda m, i, d, f: i is not None and i.phase == "Running"),
    ("ErrorPvcNotFound", lambda m, i, d, f: _synchronized(i, "FailedPvcNotFound")),
    ("DataVolumeError", lambda m, i, d, f: any(disk.failed for disk in d)),
    ("ErrorUnschedulable", lambda m, i, d, f: _unscheduled(i)),
    ("Provisioning", lambda m, i, d, f: any(not disk.ready for disk in d)),
    ("ErrImagePull", lambda m, i, d, f: _synchronized(i, "ErrImagePull")),
    ("ImagePullBackOff", lambda m, i, d, f: _synchronized(i, "ImagePullBackOff")),
    ("Starting", lambda m, i, d, f: i is not None and not i.final),
    ("CrashLoopBackOff", lambda m, i, d, f: bool(f) and m.strategy in COUNTED),
    ("Stopped", lambda m, i, d, f: True),
)


def _printable(machine: Machine, instance: Instance | None, disks: Mapping[str, Disk], failure: Json | None) -> str:
    named = {volume.claim for volume in machine.volumes if volume.data_volume} | set(machine.disks)
    used = [disks[name] for name in sorted(named) if name in disks]
    return next(word for word, is_so in PRINTABLE if is_so(machine, instance, used, failure))


def _migrating(instance: Instance) -> bool:
    state = instance.status.get("migrationState") or {}
    return bool(state) and not state.get("completed") and not state.get("failed")


def _synchronized(instance: Instance | None, reason: str) -> bool:
    return instance is not None and holds(instance.conditions, "Synchronized", reason, "False")


def _unscheduled(instance: Instance | None) -> bool:
    return instance is not None and holds(instance.conditions, "PodScheduled", "Unschedulable", "False")
