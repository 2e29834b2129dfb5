"""What a person may ask of a VM beside changing its spec (start, stop, ...), and what then has to be written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from local.engine.conditions import holds
from local.engine.views import Instance, Machine

Json = dict[str, Any]


@dataclass(frozen=True)
class Denied:
    """A refusal, in the words and codes of Kubernetes."""

    code: int
    reason: str
    message: str


@dataclass(frozen=True)
class SetRunning:
    running: bool


@dataclass(frozen=True)
class Queue:
    """Requests for the VM's controller, in their order; they replace what was waiting if `replace`."""

    requests: tuple[Json, ...]
    replace: bool = False


@dataclass(frozen=True)
class Hurry:
    """The VMI is given less time to end."""

    seconds: int


@dataclass(frozen=True)
class Pause:
    paused: bool


@dataclass(frozen=True)
class Migrate:
    node_selector: Json


Change = SetRunning | Queue | Hurry | Pause | Migrate

VERBS = {
    "virtualmachines": ("start", "stop", "restart", "pause", "unpause", "migrate"),
    "virtualmachineinstances": ("pause", "unpause"),
}


def decide(
    verb: str, resource: str, name: str, machine: Machine | None, instance: Instance | None, options: Json
) -> tuple[Change, ...] | Denied:
    """What to write for a request, or why it is refused. The rules are KubeVirt's."""
    if verb in ("pause", "unpause"):
        return _pause(verb == "pause", resource, name, instance)
    if machine is None:
        return _missing("virtualmachine", name)
    match verb:
        case "start":
            return _start(machine, instance, options)
        case "stop":
            return _stop(machine, instance, options)
        case "restart":
            return _restart(machine, instance, options)
        case _:
            return _migrate(machine, instance, options)


def _start(machine: Machine, instance: Instance | None, options: Json) -> tuple[Change, ...] | Denied:
    if instance is not None and not instance.final and instance.phase not in ("", "Unknown"):
        return _conflict(machine.name, "VM is already running")
    paused: Json = {"data": {"paused": "true"}} if options.get("paused") else {}
    start = {"action": "Start", **paused}
    match machine.strategy:
        case "Halted":
            return (Queue((start,)),) if paused else (SetRunning(True),)
        case "RerunOnFailure" if instance is not None and instance.phase == "Failed":
            return _conflict(machine.name, "RerunOnFailure does not support starting VM from failed state")
        case "RerunOnFailure" | "Manual":
            stop = [{"action": "Stop", "uid": instance.uid}] if instance is not None and instance.final else []
            return (Queue((*stop, start)),)
        case strategy:
            return _conflict(machine.name, f"{strategy} does not support manual start requests")


def _stop(machine: Machine, instance: Instance | None, options: Json) -> tuple[Change, ...] | Denied:
    grace = options.get("gracePeriod")
    live = instance is not None and not instance.final
    hurry: tuple[Change, ...] = (Hurry(int(grace)),) if live and isinstance(grace, int) and grace >= 0 else ()
    if machine.strategy in ("Always", "Once"):
        # A start that still waits, of a restart that is under way, would start the VM again.
        forget = (Queue((), replace=True),) if machine.status.get("stateChangeRequests") else ()
        return (*hurry, *forget, SetRunning(False))
    if instance is None or not live:
        return _conflict(machine.name, "VM is not running")
    if machine.strategy == "Halted" and not (isinstance(grace, int) and 0 <= grace < instance.grace_seconds):
        return _conflict(machine.name, "Halted only supports manual stop requests with a shorter graceperiod")
    return (*hurry, Queue(({"action": "Stop", "uid": instance.uid},), replace=True))


def _restart(machine: Machine, instance: Instance | None, options: Json) -> tuple[Change, ...] | Denied:
    grace = options.get("gracePeriodSeconds")
    if grace not in (None, 0):
        return Denied(400, "BadRequest", "For force restart, only gracePeriod=0 is supported for now")
    if machine.strategy in ("Halted", "Once"):
        return _conflict(machine.name, f"RunStategy {machine.strategy} does not support manual restart requests")
    if instance is None:
        return _conflict(machine.name, "VM is not running: Halted")
    hurry: tuple[Change, ...] = (Hurry(1),) if grace == 0 else ()
    return (*hurry, Queue(({"action": "Stop", "uid": instance.uid}, {"action": "Start"})))


def _pause(paused: bool, resource: str, name: str, instance: Instance | None) -> tuple[Change, ...] | Denied:
    kind = resource.removesuffix("s")
    if instance is None:
        return _missing("virtualmachineinstance", name)
    if instance.phase != "Running":
        return _conflict(name, "VM is not running", kind)
    if holds(instance.conditions, "Paused") == paused:
        return _conflict(name, "VMI is already paused" if paused else "VMI is not paused", kind)
    return (Pause(paused),)


def _migrate(machine: Machine, instance: Instance | None, options: Json) -> tuple[Change, ...] | Denied:
    if instance is None or instance.phase != "Running":
        return _conflict(machine.name, "VM is not running")
    return (Migrate(options.get("addedNodeSelector") or {}),)


def machine_patch(document: Json, change: SetRunning | Queue) -> tuple[str | None, Json] | Denied:
    """The subresource and the merge patch that carry the change out, for the VM as it was read."""
    metadata, spec = document["metadata"], document["spec"]
    locked = {"metadata": {"resourceVersion": metadata["resourceVersion"]}}
    if isinstance(change, SetRunning):
        strategy = {"runStrategy": "Always" if change.running else "Halted"}
        return None, {**locked, "spec": strategy if spec.get("runStrategy") else {"running": change.running}}
    waiting = (document.get("status") or {}).get("stateChangeRequests") or []
    if waiting and not change.replace:
        return _conflict(metadata["name"], "unable to complete request: stop/start already underway")
    # Whoever starts a VM by hand does not wait for the pause after its failures.
    return "status", {**locked, "status": {"stateChangeRequests": list(change.requests), "startFailure": None}}


def _missing(kind: str, name: str) -> Denied:
    return Denied(404, "NotFound", f'{kind}.kubevirt.io "{name}" not found')


def _conflict(name: str, why: str, kind: str = "virtualmachine") -> Denied:
    return Denied(409, "Conflict", f'Operation cannot be fulfilled on {kind}.kubevirt.io "{name}": {why}')
