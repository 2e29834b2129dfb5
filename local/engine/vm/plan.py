"""What to do about a VirtualMachine, from what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from local.engine import objects
from local.engine.objects import VM, VMI, DataVolume
from local.engine.resources import VM_FINALIZER
from local.engine.vm.status import COUNTED, failed_before_running, needs_rerun, vm_status


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
    """of the VMI"""
    reason: str


@dataclass(frozen=True)
class SetRunStrategyAlways:
    """A halted VM that was asked to start: its spec says from now on that it runs."""


Action = AddFinalizer | RemoveFinalizer | CreateDataVolume | CreateVMI | DeleteVMI | SetRunStrategyAlways


@dataclass(frozen=True)
class VMPlan:
    actions: tuple[Action, ...]
    status: dict[str, Any]
    requeue_seconds: float | None = None
    """when to look again if nothing happens before"""


@dataclass(frozen=True)
class Delays:
    """How patient the engine is."""

    defaults_seconds: float = 30.0
    """for how long a new VM waits until all its hardware is decided"""
    settle_seconds: float = 0.0
    """states of a VMI that last no longer than this are not written down: thousands pass through them at once"""
    vm_settle_seconds: float = 0.0
    """the same of a VM, which learns of it later"""


def plan_vm(
    vm: VM,
    vmi: VMI | None,
    disks: Mapping[str, DataVolume],
    now: datetime,
    *,
    pace: Delays = Delays(),
    retry_seconds: float = 10.0,
    failure: tuple[str, str] | None = None,
) -> VMPlan:
    """`vmi` is the VMI of the VM's name if the VM controls it; `disks` are the DataVolumes that it names;
    `failure` is the reason and sentence of the last try that went wrong."""
    status = vm_status(vm, vmi, disks, now, retry_seconds=retry_seconds, failure=failure)
    actions: tuple[Action, ...]
    again: float | None = None
    if vm.deleted is not None:
        actions = _end(vm, vmi)
    elif VM_FINALIZER not in vm.finalizers:
        # Alone, and first: nothing may be made for a VM that could vanish without its VMI being ended in order. What
        # comes next follows from the answer.
        actions = (AddFinalizer(),)
    elif absent := [name for name in vm.data_volume_templates if name not in disks]:
        actions = tuple(CreateDataVolume(name) for name in absent)
    else:
        actions, again = _run(vm, vmi, disks, status, now, pace)
    if failure is None and any(isinstance(action, CreateVMI) for action in actions):
        status = _under_way(vm, status)
    if _passing(vm, status, vmi, now, pace):
        later = pace.vm_settle_seconds
        return VMPlan(actions, vm.status, later if again is None else min(later, again))
    return VMPlan(actions, status, again)


def _end(vm: VM, vmi: VMI | None) -> tuple[Action, ...]:
    if vmi is None:
        return (RemoveFinalizer(),) if VM_FINALIZER in vm.finalizers else ()
    return (DeleteVMI(vmi.uid, "the VM is being deleted"),) if vmi.deleted is None else ()


def _run(
    vm: VM,
    vmi: VMI | None,
    disks: Mapping[str, DataVolume],
    status: Mapping[str, Any],
    now: datetime,
    pace: Delays,
) -> tuple[tuple[Action, ...], float | None]:
    if vmi is not None:
        reason = None if vmi.deleted is not None else _why_stop(vm, vmi)
        if reason is None or _unrecorded(vm, vmi):
            return (), None
        return (DeleteVMI(vmi.uid, reason),), None
    if vm.run_strategy == "Halted" and _asked(vm, "Start"):
        return (SetRunStrategyAlways(),), None
    reason = _why_start(vm)
    if reason is None:
        return (), None
    if not all(disks[name].ready for name in vm.data_volume_templates):
        return (), None
    wait = max(_backoff(vm, now), 0.0 if vm.defaulted else _defaults(vm, now, pace))
    return ((), wait) if wait > 0 else ((CreateVMI(reason),), None)


def _why_start(vm: VM) -> str | None:
    """Why a VM without a VMI is to have one."""
    strategy, ran = vm.run_strategy, vm.status.get("runStrategy")
    match strategy:
        case "Always":
            return "it is meant to run"
        case "RerunOnFailure" if _asked(vm, "Start") or ran != strategy:
            return "it is meant to run until it succeeds"
        case "Manual" if _asked(vm, "Start"):
            return "it was asked to start"
        case "Once":
            return "it is meant to run once"
        case _:
            return None


def _why_stop(vm: VM, vmi: VMI) -> str | None:
    """Why a VMI is to go."""
    if _asked(vm, "Stop", vmi.uid):
        return "it was asked to stop"
    match vm.run_strategy:
        case "Halted":
            return "it is meant to be halted"
        case "Always" if vmi.final:
            return f"it {vmi.phase.lower()} and is meant to run"
        case "RerunOnFailure" if vmi.final:
            return f"it {vmi.phase.lower()}"
        case _:
            return None


def _asked(vm: VM, action: str, uid: str | None = None) -> bool:
    """Whether the first of the requests is this one. One is answered at a time, in order."""
    requests = vm.status.get("stateChangeRequests") or ()
    first = requests[0] if requests else {}
    return first.get("action") == action and uid in (None, first.get("uid"))


def _unrecorded(vm: VM, vmi: VMI) -> bool:
    """A failure is written down before its VMI goes: once that is gone, nothing tells of it."""
    failure = vm.status.get("startFailure") or {}
    counted = not failed_before_running(vmi) or failure.get("lastFailedVMIUID") == vmi.uid
    again = not needs_rerun(vm, vmi) or _asked(vm, "Start")
    return vm.run_strategy in COUNTED and not (counted and again)


def _backoff(vm: VM, now: datetime) -> float:
    retry = objects.read_time((vm.status.get("startFailure") or {}).get("retryAfterTimestamp"))
    return objects.seconds_until(retry, now) if retry else 0.0


def _defaults(vm: VM, now: datetime, pace: Delays) -> float:
    """Only before a first start: a VM that has run keeps the hardware it ran with."""
    if vm.status.get("runStrategy"):
        return 0.0
    left = pace.defaults_seconds - (now - vm.created).total_seconds()
    return max(0.0, left)


def _under_way(vm: VM, status: dict[str, Any]) -> dict[str, Any]:
    """What is on its way does not say "Stopped" for the moment between its disks and its VMI."""
    before = vm.status.get("printableStatus")
    halts = before in ("Provisioning", "Starting") and status["printableStatus"] == "Stopped"
    return {**status, "printableStatus": before} if halts else status


def _passing(vm: VM, status: Mapping[str, Any], vmi: VMI | None, now: datetime, pace: Delays) -> bool:
    """Whether the status tells only of a start, or of an end, that began a moment ago."""
    if vm.deleted is not None:
        return (now - vm.deleted).total_seconds() < pace.vm_settle_seconds
    began = vmi.created if vmi is not None else vm.created
    young = (now - began).total_seconds() < pace.vm_settle_seconds
    starting = status.get("printableStatus") in ("Starting", "Provisioning") or (
        # Between a VM's creation and its VMI's, nobody learns anything from "Stopped".
        vmi is None and status.get("printableStatus") == "Stopped" and _why_start(vm) is not None
    )
    return young and starting and not vm.status.get("ready") and not status.get("startFailure")
