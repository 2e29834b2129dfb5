"""Plans the next actions for a VM, from its VMI and its DataVolumes. The rules are those of virt-controller."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from poolhouse.stack.engine.api_object import read_time
from poolhouse.stack.engine.disk_objects import PVC, DataVolume
from poolhouse.stack.engine.objects import VM, VMI, seconds_until
from poolhouse.stack.engine.resources import VM_FINALIZER
from poolhouse.stack.engine.vm import live_updates
from poolhouse.stack.engine.vm.hotplug import NIC, needs_hotplug
from poolhouse.stack.engine.vm.status import COUNTED_STRATEGIES, failed_before_running, needs_rerun, vm_status


@dataclass(frozen=True)
class AddFinalizer:
    pass


@dataclass(frozen=True)
class RemoveFinalizer:
    pass


@dataclass(frozen=True)
class CreateDataVolume:
    name: str


@dataclass(frozen=True)
class CreateVMI:
    reason: str


@dataclass(frozen=True)
class DeleteVMI:
    uid: str
    reason: str


@dataclass(frozen=True)
class SetRunStrategyAlways:
    """Set the run strategy of a halted VM that received a start request."""


@dataclass(frozen=True)
class SyncDevices:
    """Plug and unplug devices of the VMI as in the template, and remove unplugged NICs from the template."""


@dataclass(frozen=True)
class UpdateVMI:
    """Change the CPU sockets, the memory and the placement of the running VMI as in the template."""


Action = (
    AddFinalizer
    | RemoveFinalizer
    | CreateDataVolume
    | CreateVMI
    | DeleteVMI
    | SetRunStrategyAlways
    | SyncDevices
    | UpdateVMI
)


@dataclass(frozen=True)
class VMPlan:
    actions: tuple[Action, ...]
    status: dict[str, Any]
    requeue_seconds: float | None = None


@dataclass(frozen=True)
class Delays:
    defaults_seconds: float = 30.0
    """limit of a new VM's wait for its hardware defaults"""
    settle_seconds: float = 0.0
    """States of a VMI that last at most this time are not written into its status. A simulated cluster thus avoids
    thousands of writes."""
    vm_settle_seconds: float = 0.0
    """States of a VM that last at most this time are not written into its status."""


def plan_vm(
    vm: VM,
    vmi: VMI | None,
    data_volumes: Mapping[str, DataVolume],
    now: datetime,
    *,
    claims: Mapping[str, PVC] = MappingProxyType({}),
    delays: Delays = Delays(),
    retry_seconds: float = 10.0,
    failure: tuple[str, str] | None = None,
    live: bool = False,
) -> VMPlan:
    """Returns the plan of a VM. `vmi` is the VMI that the VM controls; `data_volumes` are the DataVolumes of its
    templates and volumes, and `claims` the PVCs of its templates. `failure` is the reason and the message of the last
    failed action. With `live`, KubeVirt changes running VMIs."""
    vm = _with_chosen_nics(vm, vmi)
    status = vm_status(vm, vmi, data_volumes, now, retry_seconds=retry_seconds, failure=failure, live=live)
    actions: tuple[Action, ...]
    requeue: float | None = None
    if vm.deleted is not None:
        actions = _delete(vm, vmi)
    elif VM_FINALIZER not in vm.finalizers:
        # Without the finalizer, the API server could delete the VM before its guest has shut down.
        actions = (AddFinalizer(),)
    elif missing := [name for name in vm.data_volume_templates if _is_missing(name, vm, data_volumes, claims)]:
        actions = tuple(CreateDataVolume(name) for name in missing)
    else:
        actions, requeue = _run(vm, vmi, data_volumes, now, delays)
        if not actions and vmi is not None and _is_updated(vm, vmi, status, live):
            actions = (UpdateVMI(),)
    if failure is None and any(isinstance(action, CreateVMI) for action in actions):
        status = _keep_starting(vm, status)
    if _is_transient(vm, status, vmi, now, delays):
        later = delays.vm_settle_seconds
        return VMPlan(actions, vm.status, later if requeue is None else min(later, requeue))
    return VMPlan(actions, status, requeue)


def is_complete(claim: PVC, vm: VM) -> bool:
    """Whether the VM can use the PVC without its DataVolume. CDI may delete a DataVolume that has succeeded, and make
    the VM the owner of its PVC. KubeVirt then goes on with the PVC: CDI refuses a DataVolume for it."""
    # A PVC of a DataVolume or of another VM is about to be deleted with its owner.
    is_free = claim.data_volume_uid == "" and claim.controller_uid in ("", vm.uid)
    return claim.deleted is None and claim.phase == "Bound" and is_free


def _with_chosen_nics(vm: VM, vmi: VMI | None) -> VM:
    """The VM with the NICs that KubeVirt has chosen for its VMI, if it lists none."""
    if vmi is None or vm.lists_nics:
        return vm
    nics = (text for text in vmi.devices if text.startswith(NIC))
    return replace(vm, nics=vmi.nics, devices=tuple(sorted((*vm.devices, *nics))))


def _is_missing(name: str, vm: VM, data_volumes: Mapping[str, DataVolume], claims: Mapping[str, PVC]) -> bool:
    """Whether the DataVolume of a template must be created."""
    return name not in data_volumes and not (name in claims and is_complete(claims[name], vm))


def _delete(vm: VM, vmi: VMI | None) -> tuple[Action, ...]:
    if vmi is None:
        return (RemoveFinalizer(),) if VM_FINALIZER in vm.finalizers else ()
    return (DeleteVMI(vmi.uid, "the VM is being deleted"),) if vmi.deleted is None else ()


def _run(
    vm: VM, vmi: VMI | None, data_volumes: Mapping[str, DataVolume], now: datetime, delays: Delays
) -> tuple[tuple[Action, ...], float | None]:
    if _needs_hotplug(vm, vmi):
        return (SyncDevices(),), None
    if vmi is not None:
        reason = None if vmi.deleted is not None else _why_stop(vm, vmi)
        if reason is None or _has_unrecorded_failure(vm, vmi):
            return (), None
        return (DeleteVMI(vmi.uid, reason),), None
    if vm.run_strategy == "Halted" and _is_requested(vm, "Start"):
        return (SetRunStrategyAlways(),), None
    reason = _why_start(vm)
    if reason is None:
        return (), None
    if not all(data_volumes[name].ready for name in vm.data_volume_templates if name in data_volumes):
        return (), None
    wait = max(_backoff(vm, now), _wait_for_defaults(vm, now, delays) if vm.awaits_defaults else 0.0)
    return ((), wait) if wait > 0 else ((CreateVMI(reason),), None)


def _needs_hotplug(vm: VM, vmi: VMI | None) -> bool:
    if vmi is None:
        return needs_hotplug(vm.devices, None)
    stays = vmi.phase == "Running" and vmi.deleted is None and _why_stop(vm, vmi) is None
    return stays and needs_hotplug(vm.devices, vmi.devices)


def _is_updated(vm: VM, vmi: VMI, status: Mapping[str, Any], live: bool) -> bool:
    """A VM that needs a restart for another change gets none of these changes before."""
    stays = vmi.phase == "Running" and vmi.deleted is None and _why_stop(vm, vmi) is None
    refused = vmi.template_hash not in ("", vm.template_hash)
    return stays and not refused and live_updates.needs_update(vm, vmi, live=live)


def _why_start(vm: VM) -> str | None:
    """Returns the reason to create the VM's VMI; None if the VM stays stopped."""
    strategy, last_strategy = vm.run_strategy, vm.status.get("runStrategy")
    match strategy:
        case "Always":
            return "the run strategy is Always"
        case "RerunOnFailure" if _is_requested(vm, "Start") or last_strategy != strategy:
            return "the run strategy is RerunOnFailure"
        case "Manual" if _is_requested(vm, "Start"):
            return "a start was requested"
        case "Once":
            return "the run strategy is Once"
        case _:
            return None


def _why_stop(vm: VM, vmi: VMI) -> str | None:
    """Returns the reason to delete the VMI; None if the VMI stays."""
    if _is_requested(vm, "Stop", vmi.uid):
        return "a stop was requested"
    match vm.run_strategy:
        case "Halted":
            return "the run strategy is Halted"
        case "Always" | "RerunOnFailure" if vmi.final:
            return f"the VMI {vmi.phase.lower()} and the run strategy is {vm.run_strategy}"
        case _:
            return None


def _is_requested(vm: VM, action: str, uid: str | None = None) -> bool:
    """Whether the first queued stateChangeRequest has this action and UID."""
    requests = vm.status.get("stateChangeRequests") or ()
    first = requests[0] if requests else {}
    return first.get("action") == action and uid in (None, first.get("uid"))


def _has_unrecorded_failure(vm: VM, vmi: VMI) -> bool:
    """Whether the VM's status lacks the failure of its VMI. The VMI must not be deleted before."""
    failure = vm.status.get("startFailure") or {}
    counted = not failed_before_running(vmi) or failure.get("lastFailedVMIUID") == vmi.uid
    restarts = not needs_rerun(vm, vmi) or _is_requested(vm, "Start")
    return vm.run_strategy in COUNTED_STRATEGIES and not (counted and restarts)


def _backoff(vm: VM, now: datetime) -> float:
    retry = read_time((vm.status.get("startFailure") or {}).get("retryAfterTimestamp"))
    return seconds_until(retry, now) if retry else 0.0


def _wait_for_defaults(vm: VM, now: datetime, delays: Delays) -> float:
    """Returns the seconds to wait for hardware defaults. Only the first start of a VM waits."""
    if vm.status.get("runStrategy"):
        return 0.0
    left = delays.defaults_seconds - (now - vm.created).total_seconds()
    return max(0.0, left)


def _keep_starting(vm: VM, status: dict[str, Any]) -> dict[str, Any]:
    """Keeps the status Provisioning or Starting in the moment between ready DataVolumes and the new VMI."""
    before = vm.status.get("printableStatus")
    stopped = before in ("Provisioning", "Starting") and status["printableStatus"] == "Stopped"
    return {**status, "printableStatus": before} if stopped else status


def _is_transient(vm: VM, status: Mapping[str, Any], vmi: VMI | None, now: datetime, delays: Delays) -> bool:
    """Whether the status differs only because a start or a deletion began a moment ago."""
    if vm.deleted is not None:
        return (now - vm.deleted).total_seconds() < delays.vm_settle_seconds
    began = vmi.created if vmi is not None else vm.created
    recent = (now - began).total_seconds() < delays.vm_settle_seconds
    starting = status.get("printableStatus") in ("Starting", "Provisioning") or (
        vmi is None and status.get("printableStatus") == "Stopped" and _why_start(vm) is not None
    )
    return recent and starting and not vm.status.get("ready") and not status.get("startFailure")
