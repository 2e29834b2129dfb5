"""What a VirtualMachine's status says, in KubeVirt's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from apimachinery import timestamps
from local.engine.conditions import condition, find_condition, has_condition, merge_conditions
from local.engine.objects import VM, VMI, DataVolume
from runtime.backoff import hash_fraction

Json = dict[str, Any]

COUNTED = ("Always", "RerunOnFailure", "Once")
"""strategies under which failed starts are counted"""
CAP_SECONDS = 300.0
OWN = ("Ready", "Failure", "RestartRequired")
"""conditions that are the VM's; all others are its VMI's"""


def vm_status(
    vm: VM,
    vmi: VMI | None,
    disks: Mapping[str, DataVolume],
    now: datetime,
    *,
    retry_seconds: float = 10.0,
    failure: tuple[str, str] | None = None,
) -> Json:
    """The whole status: what is not ours to say stays as it is."""
    start_failure = _start_failure(vm, vmi, now, retry_seconds)
    said: Json = {
        "created": vmi is not None,
        "ready": vmi is not None and vmi.deleted is None and has_condition(vmi.conditions, "Ready"),
        "conditions": merge_conditions(vm.status.get("conditions") or (), _conditions(vm, vmi, failure), now),
        "observedGeneration": vm.generation,
        "desiredGeneration": vm.generation,
        "startFailure": start_failure,
        "stateChangeRequests": _requests(vm, vmi),
        # Empty until the VM has once been started: that is how a first start is known.
        "runStrategy": vm.run_strategy if vmi is not None or vm.status.get("runStrategy") else None,
        "printableStatus": _printable(vm, vmi, disks, start_failure),
    }
    status = {**vm.status, **said}
    return {key: value for key, value in status.items() if value is not None}


def failed_before_running(vmi: VMI) -> bool:
    """Whether a start failed: it ended without ever having run."""
    return vmi.final and vmi.reached("Running") is None


def needs_rerun(vm: VM, vmi: VMI) -> bool:
    """Whether its VM must ask for another start, because its strategy alone does not."""
    return vm.run_strategy == "RerunOnFailure" and vmi.phase == "Failed" and vmi.deleted is None


def _start_failure(vm: VM, vmi: VMI | None, now: datetime, retry_seconds: float) -> Json | None:
    before: Json | None = vm.status.get("startFailure")
    if vm.run_strategy not in COUNTED or (vmi is not None and vmi.reached("Running") is not None):
        return None
    if vmi is None or not failed_before_running(vmi) or (before or {}).get("lastFailedVMIUID") == vmi.uid:
        return before
    count = int((before or {}).get("consecutiveFailCount") or 0) + 1
    pause = start_backoff(count, vmi.uid, retry_seconds)
    return {
        "consecutiveFailCount": count,
        "lastFailedVMIUID": vmi.uid,
        "retryAfterTimestamp": timestamps.format_time(now + timedelta(seconds=pause)),
    }


def start_backoff(count: int, identity: str, retry_seconds: float = 10.0) -> float:
    """KubeVirt's: grows with the square of the count and ends at five minutes, up to half of it spread."""
    pause = retry_seconds * count * count
    return min(CAP_SECONDS, pause * (1 + 0.5 * hash_fraction(identity)))


def _requests(vm: VM, vmi: VMI | None) -> list[Json] | None:
    """What was asked for, without the first request once it is answered."""
    requests = list(vm.status.get("stateChangeRequests") or ())
    if not requests:
        return [{"action": "Start"}] if vmi is not None and needs_rerun(vm, vmi) else None
    first = requests[0]
    if first.get("action") == "Stop":
        answered = vmi is None or first.get("uid") != vmi.uid
    else:
        answered = vmi is not None and vmi.deleted is None and not vmi.final
    return (requests[1:] if answered else requests) or None


def _conditions(vm: VM, vmi: VMI | None, failure: tuple[str, str] | None) -> list[Json]:
    found = [_ready(vmi)]
    if failure is not None:
        found.append(condition("Failure", True, *failure))
    # Not while it is being stopped: the next start takes the new template anyway.
    if vmi is not None and vmi.template_hash not in ("", vm.template_hash) and vmi.deleted is None:
        message = "a non-live-updatable field was changed in the template spec"
        found.append(condition("RestartRequired", True, message=message))
    for each in vmi.conditions if vmi is not None else ():
        if each.get("type") not in OWN:
            found.append({key: value for key, value in each.items() if key != "lastTransitionTime"})
    return found


def _ready(vmi: VMI | None) -> Json:
    if vmi is None:
        return condition("Ready", False, "VMINotExists", "VMI does not exist")
    if vmi.deleted is not None:
        return condition("Ready", False, "PodTerminating", "virt-launcher pod is terminating")
    ready = find_condition(vmi.conditions, "Ready")
    if ready is None:
        return condition("Ready", False, "VMIConditionMissing", "VMI is missing the Ready condition")
    return condition("Ready", str(ready["status"]), str(ready.get("reason", "")), str(ready.get("message", "")))


# The first that holds is the word. The order is KubeVirt's.
_Holds = Callable[[VM, VMI | None, list[DataVolume], Json | None], bool]
PRINTABLE: tuple[tuple[str, _Holds], ...] = (
    ("Terminating", lambda m, i, d, f: m.deleted is not None),
    ("Stopping", lambda m, i, d, f: i is not None and not i.final and i.deleted is not None),
    ("Migrating", lambda m, i, d, f: i is not None and _migrating(i)),
    ("Paused", lambda m, i, d, f: i is not None and i.phase == "Running" and has_condition(i.conditions, "Paused")),
    ("Running", lambda m, i, d, f: i is not None and i.phase == "Running"),
    ("ErrorPvcNotFound", lambda m, i, d, f: _synchronized(i, "FailedPvcNotFound")),
    ("DataVolumeError", lambda m, i, d, f: any(disk.failed for disk in d)),
    ("ErrorUnschedulable", lambda m, i, d, f: _unscheduled(i)),
    ("Provisioning", lambda m, i, d, f: any(not disk.ready for disk in d)),
    ("ErrImagePull", lambda m, i, d, f: _synchronized(i, "ErrImagePull")),
    ("ImagePullBackOff", lambda m, i, d, f: _synchronized(i, "ImagePullBackOff")),
    ("Starting", lambda m, i, d, f: i is not None and not i.final),
    ("CrashLoopBackOff", lambda m, i, d, f: bool(f) and m.run_strategy in COUNTED),
    ("Stopped", lambda m, i, d, f: True),
)


def _printable(vm: VM, vmi: VMI | None, disks: Mapping[str, DataVolume], failure: Json | None) -> str:
    named = {volume.pvc for volume in vm.volumes if volume.data_volume} | set(vm.data_volume_templates)
    used = [disks[name] for name in sorted(named) if name in disks]
    return next(word for word, is_so in PRINTABLE if is_so(vm, vmi, used, failure))


def _migrating(vmi: VMI) -> bool:
    state = vmi.status.get("migrationState") or {}
    return bool(state) and not state.get("completed") and not state.get("failed")


def _synchronized(vmi: VMI | None, reason: str) -> bool:
    return vmi is not None and has_condition(vmi.conditions, "Synchronized", reason, "False")


def _unscheduled(vmi: VMI | None) -> bool:
    return vmi is not None and has_condition(vmi.conditions, "PodScheduled", "Unschedulable", "False")
