"""Computes the status of a VM by the rules of KubeVirt's virt-controller."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from poolhouse.api.apimachinery import timestamps
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.backoff import hash_fraction
from poolhouse.stack.engine.disk_objects import DataVolume
from poolhouse.stack.engine.objects import VM, VMI
from poolhouse.stack.engine.resources import condition, find_condition, has_condition, merge_conditions
from poolhouse.stack.engine.vm import live_updates
from poolhouse.stack.engine.vm.hotplug import nics_require_restart

COUNTED_STRATEGIES = ("Always", "RerunOnFailure", "Once")
"""run strategies that count failed starts"""
MAX_BACKOFF_SECONDS = 300.0
VM_CONDITIONS = ("Ready", "Failure", "RestartRequired")
"""conditions of the VM itself; the other conditions are copied from its VMI"""


def vm_status(
    vm: VM,
    vmi: VMI | None,
    data_volumes: Mapping[str, DataVolume],
    now: datetime,
    *,
    retry_seconds: float = 10.0,
    failure: tuple[str, str] | None = None,
    live: bool = False,
) -> Json:
    start_failure = _start_failure(vm, vmi, now, retry_seconds)
    fields: Json = {
        "created": vmi is not None,
        "ready": vmi is not None and vmi.deleted is None and has_condition(vmi.conditions, "Ready"),
        "conditions": merge_conditions(vm.status.get("conditions") or (), _conditions(vm, vmi, failure, live), now),
        "observedGeneration": vm.generation,
        "desiredGeneration": vm.generation,
        "startFailure": start_failure,
        "stateChangeRequests": _requests(vm, vmi),
        # The field is absent until the first start.
        "runStrategy": vm.run_strategy if vmi is not None or vm.status.get("runStrategy") else None,
        "printableStatus": _printable(vm, vmi, data_volumes, start_failure),
    }
    status = {**vm.status, **fields}
    return {key: value for key, value in status.items() if value is not None}


def failed_before_running(vmi: VMI) -> bool:
    """Whether the VMI ended before the phase Running. Such an end counts as a failed start."""
    return vmi.final and vmi.reached("Running") is None


def needs_rerun(vm: VM, vmi: VMI) -> bool:
    """Whether the VM must queue a start request. With RerunOnFailure, a failed VMI is restarted by such a request."""
    return vm.run_strategy == "RerunOnFailure" and vmi.phase == "Failed" and vmi.deleted is None


def _start_failure(vm: VM, vmi: VMI | None, now: datetime, retry_seconds: float) -> Json | None:
    before: Json | None = vm.status.get("startFailure")
    if vm.run_strategy not in COUNTED_STRATEGIES or (vmi is not None and vmi.reached("Running") is not None):
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
    """Returns KubeVirt's backoff: `retry_seconds` times count squared, plus up to 50 % as jitter, at most 300 s."""
    pause = retry_seconds * count * count
    return min(MAX_BACKOFF_SECONDS, pause * (1 + 0.5 * hash_fraction(identity)))


def _requests(vm: VM, vmi: VMI | None) -> list[Json] | None:
    """Returns the queued stateChangeRequests. Removes the first request when it is done."""
    requests = list(vm.status.get("stateChangeRequests") or ())
    if not requests:
        return [{"action": "Start"}] if vmi is not None and needs_rerun(vm, vmi) else None
    first = requests[0]
    if first.get("action") == "Stop":
        done = vmi is None or first.get("uid") != vmi.uid
    else:
        done = vmi is not None and vmi.deleted is None and not vmi.final
    return (requests[1:] if done else requests) or None


def _conditions(vm: VM, vmi: VMI | None, failure: tuple[str, str] | None, live: bool) -> list[Json]:
    found = [_ready(vmi)]
    if failure is not None:
        found.append(condition("Failure", True, *failure))
    # A VMI that is being deleted needs no restart, because the next start uses the new template.
    message = _why_restart(vm, vmi, live) if vmi is not None and vmi.deleted is None else ""
    if message:
        found.append(condition("RestartRequired", True, message=message))
    for each in vmi.conditions if vmi is not None else ():
        if each.get("type") not in VM_CONDITIONS:
            found.append({key: value for key, value in each.items() if key != "lastTransitionTime"})
    return found


def _why_restart(vm: VM, vmi: VMI, live: bool) -> str:
    if vmi.template_hash not in ("", vm.template_hash) or nics_require_restart(vm.nics, vmi.nics):
        return live_updates.NOT_LIVE
    return live_updates.why_restart(vm, vmi, live=live)


def _ready(vmi: VMI | None) -> Json:
    if vmi is None:
        return condition("Ready", False, "VMINotExists", "VMI does not exist")
    if vmi.deleted is not None:
        return condition("Ready", False, "PodTerminating", "virt-launcher pod is terminating")
    ready = find_condition(vmi.conditions, "Ready")
    if ready is None:
        return condition("Ready", False, "VMIConditionMissing", "VMI is missing the Ready condition")
    return condition("Ready", str(ready["status"]), str(ready.get("reason", "")), str(ready.get("message", "")))


# The first row that applies gives the printable status. The order is the same as in KubeVirt.
_Applies = Callable[[VM, VMI | None, list[DataVolume], Json | None], bool]
PRINTABLE: tuple[tuple[str, _Applies], ...] = (
    ("Terminating", lambda vm, vmi, dvs, failure: vm.deleted is not None),
    ("Stopping", lambda vm, vmi, dvs, failure: vmi is not None and not vmi.final and vmi.deleted is not None),
    ("Migrating", lambda vm, vmi, dvs, failure: vmi is not None and _migrating(vmi)),
    (
        "Paused",
        lambda vm, vmi, dvs, failure: (
            vmi is not None and vmi.phase == "Running" and has_condition(vmi.conditions, "Paused")
        ),
    ),
    ("Running", lambda vm, vmi, dvs, failure: vmi is not None and vmi.phase == "Running"),
    ("ErrorPvcNotFound", lambda vm, vmi, dvs, failure: _synchronized(vmi, "FailedPvcNotFound")),
    ("DataVolumeError", lambda vm, vmi, dvs, failure: any(each.failed for each in dvs)),
    ("ErrorUnschedulable", lambda vm, vmi, dvs, failure: _unscheduled(vmi)),
    ("Provisioning", lambda vm, vmi, dvs, failure: any(not each.ready for each in dvs)),
    ("ErrImagePull", lambda vm, vmi, dvs, failure: _synchronized(vmi, "ErrImagePull")),
    ("ImagePullBackOff", lambda vm, vmi, dvs, failure: _synchronized(vmi, "ImagePullBackOff")),
    ("Starting", lambda vm, vmi, dvs, failure: vmi is not None and not vmi.final),
    ("CrashLoopBackOff", lambda vm, vmi, dvs, failure: bool(failure) and vm.run_strategy in COUNTED_STRATEGIES),
    ("Stopped", lambda vm, vmi, dvs, failure: True),
)


def _printable(vm: VM, vmi: VMI | None, data_volumes: Mapping[str, DataVolume], failure: Json | None) -> str:
    named = {volume.pvc for volume in vm.volumes if volume.data_volume} | set(vm.data_volume_templates)
    used = [data_volumes[name] for name in sorted(named) if name in data_volumes]
    return next(status for status, applies in PRINTABLE if applies(vm, vmi, used, failure))


def _migrating(vmi: VMI) -> bool:
    state = vmi.status.get("migrationState") or {}
    return bool(state) and not state.get("completed") and not state.get("failed")


def _synchronized(vmi: VMI | None, reason: str) -> bool:
    return vmi is not None and has_condition(vmi.conditions, "Synchronized", reason, "False")


def _unscheduled(vmi: VMI | None) -> bool:
    return vmi is not None and has_condition(vmi.conditions, "PodScheduled", "Unschedulable", "False")
