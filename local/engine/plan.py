"""What to do about a VirtualMachine, from what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from local.engine import times
from local.engine.resources import MACHINE_FINALIZER
from local.engine.status import COUNTED, failed_early, reruns, status_of
from local.engine.views import Disk, Instance, Machine


@dataclass(frozen=True)
class AddFinalizer:
    pass


@dataclass(frozen=True)
class DropFinalizer:
    pass


@dataclass(frozen=True)
class CreateDisk:
    name: str


@dataclass(frozen=True)
class Start:
    reason: str


@dataclass(frozen=True)
class Stop:
    uid: str
    """of the VMI"""
    reason: str


@dataclass(frozen=True)
class RunAlways:
    """A halted VM that was asked to start: its spec says from now on that it runs."""


Action = AddFinalizer | DropFinalizer | CreateDisk | Start | Stop | RunAlways


@dataclass(frozen=True)
class Plan:
    actions: tuple[Action, ...]
    status: dict[str, Any]
    again_seconds: float | None = None
    """when to look again if nothing happens before"""


@dataclass(frozen=True)
class Pace:
    """How patient the engine is."""

    defaults_seconds: float = 30.0
    """for how long a new VM waits until all its hardware is decided"""
    settle_seconds: float = 0.0
    """states of a VMI that last no longer than this are not written down: thousands pass through them at once"""
    machine_settle_seconds: float = 0.0
    """the same of a VM, which learns of it later"""


def plan(
    machine: Machine,
    instance: Instance | None,
    disks: Mapping[str, Disk],
    now: datetime,
    *,
    pace: Pace = Pace(),
    retry_seconds: float = 10.0,
    failure: tuple[str, str] | None = None,
) -> Plan:
    """`instance` is the VMI of the VM's name if the VM controls it; `disks` are the DataVolumes that it names;
    `failure` is the reason and sentence of the last try that went wrong."""
    status = status_of(machine, instance, disks, now, retry_seconds=retry_seconds, failure=failure)
    actions: tuple[Action, ...]
    again: float | None = None
    if machine.deleted is not None:
        actions = _end(machine, instance)
    elif MACHINE_FINALIZER not in machine.finalizers:
        # Alone, and first: nothing may be made for a VM that could vanish without its VMI being ended in order. What
        # comes next follows from the answer.
        actions = (AddFinalizer(),)
    elif absent := [name for name in machine.disks if name not in disks]:
        actions = tuple(CreateDisk(name) for name in absent)
    else:
        actions, again = _run(machine, instance, disks, status, now, pace)
    if failure is None and any(isinstance(action, Start) for action in actions):
        status = _under_way(machine, status)
    if _passing(machine, status, instance, now, pace):
        later = pace.machine_settle_seconds
        return Plan(actions, machine.status, later if again is None else min(later, again))
    return Plan(actions, status, again)


def _end(machine: Machine, instance: Instance | None) -> tuple[Action, ...]:
    if instance is None:
        return (DropFinalizer(),) if MACHINE_FINALIZER in machine.finalizers else ()
    return (Stop(instance.uid, "the VM is being deleted"),) if instance.deleted is None else ()


def _run(
    machine: Machine,
    instance: Instance | None,
    disks: Mapping[str, Disk],
    status: Mapping[str, Any],
    now: datetime,
    pace: Pace,
) -> tuple[tuple[Action, ...], float | None]:
    if instance is not None:
        reason = None if instance.deleted is not None else _why_stop(machine, instance)
        if reason is None or _unrecorded(machine, instance):
            return (), None
        return (Stop(instance.uid, reason),), None
    if machine.strategy == "Halted" and _asked(machine, "Start"):
        return (RunAlways(),), None
    reason = _why_start(machine)
    if reason is None:
        return (), None
    if not all(disks[name].ready for name in machine.disks):
        return (), None
    wait = max(_backoff(machine, now), 0.0 if machine.complete else _defaults(machine, now, pace))
    return ((), wait) if wait > 0 else ((Start(reason),), None)


def _why_start(machine: Machine) -> str | None:
    """Why a VM without a VMI is to have one."""
    strategy, ran = machine.strategy, machine.status.get("runStrategy")
    match strategy:
        case "Always":
            return "it is meant to run"
        case "RerunOnFailure" if _asked(machine, "Start") or ran != strategy:
            return "it is meant to run until it succeeds"
        case "Manual" if _asked(machine, "Start"):
            return "it was asked to start"
        case "Once":
            return "it is meant to run once"
        case _:
            return None


def _why_stop(machine: Machine, instance: Instance) -> str | None:
    """Why a VMI is to go."""
    if _asked(machine, "Stop", instance.uid):
        return "it was asked to stop"
    match machine.strategy:
        case "Halted":
            return "it is meant to be halted"
        case "Always" if instance.final:
            return f"it {instance.phase.lower()} and is meant to run"
        case "RerunOnFailure" if instance.final:
            return f"it {instance.phase.lower()}"
        case _:
            return None


def _asked(machine: Machine, action: str, uid: str | None = None) -> bool:
    """Whether the first of the requests is this one. One is answered at a time, in order."""
    requests = machine.status.get("stateChangeRequests") or ()
    first = requests[0] if requests else {}
    return first.get("action") == action and uid in (None, first.get("uid"))


def _unrecorded(machine: Machine, instance: Instance) -> bool:
    """A failure is written down before its VMI goes: once that is gone, nothing tells of it."""
    failure = machine.status.get("startFailure") or {}
    counted = not failed_early(instance) or failure.get("lastFailedVMIUID") == instance.uid
    again = not reruns(machine, instance) or _asked(machine, "Start")
    return machine.strategy in COUNTED and not (counted and again)


def _backoff(machine: Machine, now: datetime) -> float:
    retry = times.read((machine.status.get("startFailure") or {}).get("retryAfterTimestamp"))
    return times.seconds_until(retry, now) if retry else 0.0


def _defaults(machine: Machine, now: datetime, pace: Pace) -> float:
    """Only before a first start: a VM that has run keeps the hardware it ran with."""
    if machine.status.get("runStrategy"):
        return 0.0
    left = pace.defaults_seconds - (now - machine.created).total_seconds()
    return max(0.0, left)


def _under_way(machine: Machine, status: dict[str, Any]) -> dict[str, Any]:
    """What is on its way does not say "Stopped" for the moment between its disks and its VMI."""
    before = machine.status.get("printableStatus")
    halts = before in ("Provisioning", "Starting") and status["printableStatus"] == "Stopped"
    return {**status, "printableStatus": before} if halts else status


def _passing(machine: Machine, status: Mapping[str, Any], instance: Instance | None, now: datetime, pace: Pace) -> bool:
    """Whether the status tells only of a start, or of an end, that began a moment ago."""
    if machine.deleted is not None:
        return (now - machine.deleted).total_seconds() < pace.machine_settle_seconds
    began = instance.created if instance is not None else machine.created
    young = (now - began).total_seconds() < pace.machine_settle_seconds
    starting = status.get("printableStatus") in ("Starting", "Provisioning") or (
        # Between a VM's creation and its VMI's, nobody learns anything from "Stopped".
        instance is None and status.get("printableStatus") == "Stopped" and _why_start(machine) is not None
    )
    return young and starting and not machine.status.get("ready") and not status.get("startFailure")
