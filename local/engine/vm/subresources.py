"""Plans the writes of subresource requests (start, stop, restart, ...). The rules are those of KubeVirt."""

from dataclasses import dataclass

from apimachinery.unstructured import Json
from local.engine.objects import VM, VMI
from local.engine.resources import has_condition


class StatusError(Exception):
    """A refused request, with the code, reason and message of a `metav1.Status`."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


@dataclass(frozen=True)
class SetRunning:
    running: bool


@dataclass(frozen=True)
class QueueStateChanges:
    """Appends stateChangeRequests to the VM's status. With `replace`, removes the queued requests first."""

    requests: tuple[Json, ...]
    replace: bool = False


@dataclass(frozen=True)
class SetGracePeriod:
    """Sets the termination grace period of the VMI."""

    seconds: int


@dataclass(frozen=True)
class SetPaused:
    paused: bool


@dataclass(frozen=True)
class CreateMigration:
    node_selector: Json


Change = SetRunning | QueueStateChanges | SetGracePeriod | SetPaused | CreateMigration

VERBS = {
    "virtualmachines": ("start", "stop", "restart", "pause", "unpause", "migrate"),
    "virtualmachineinstances": ("pause", "unpause"),
}


def plan_request(
    verb: str, resource: str, name: str, vm: VM | None, vmi: VMI | None, options: Json
) -> tuple[Change, ...]:
    """Returns the changes of a request. Raises `StatusError` if KubeVirt would refuse the request."""
    if verb in ("pause", "unpause"):
        return _pause(verb == "pause", resource, name, vmi)
    if vm is None:
        raise _not_found("virtualmachine", name)
    match verb:
        case "start":
            return _start(vm, vmi, options)
        case "stop":
            return _stop(vm, vmi, options)
        case "restart":
            return _restart(vm, vmi, options)
        case _:
            return _migrate(vm, vmi, options)


def _start(vm: VM, vmi: VMI | None, options: Json) -> tuple[Change, ...]:
    if vmi is not None and not vmi.final and vmi.phase not in ("", "Unknown"):
        raise _conflict(vm.name, "VM is already running")
    paused: Json = {"data": {"paused": "true"}} if options.get("paused") else {}
    start = {"action": "Start", **paused}
    match vm.run_strategy:
        case "Halted":
            return (QueueStateChanges((start,)),) if paused else (SetRunning(True),)
        case "RerunOnFailure" if vmi is not None and vmi.phase == "Failed":
            raise _conflict(vm.name, "RerunOnFailure does not support starting VM from failed state")
        case "RerunOnFailure" | "Manual":
            stop = [{"action": "Stop", "uid": vmi.uid}] if vmi is not None and vmi.final else []
            return (QueueStateChanges((*stop, start)),)
        case strategy:
            raise _conflict(vm.name, f"{strategy} does not support manual start requests")


def _stop(vm: VM, vmi: VMI | None, options: Json) -> tuple[Change, ...]:
    grace = options.get("gracePeriod")
    active = vmi is not None and not vmi.final
    shorten: tuple[Change, ...] = (
        (SetGracePeriod(int(grace)),) if active and isinstance(grace, int) and grace >= 0 else ()
    )
    if vm.run_strategy in ("Always", "Once"):
        # A queued start request of a restart would start the VM again.
        clear = (QueueStateChanges((), replace=True),) if vm.status.get("stateChangeRequests") else ()
        return (*shorten, *clear, SetRunning(False))
    if vmi is None or not active:
        raise _conflict(vm.name, "VM is not running")
    if vm.run_strategy == "Halted" and not (isinstance(grace, int) and 0 <= grace < vmi.grace_seconds):
        raise _conflict(vm.name, "Halted only supports manual stop requests with a shorter graceperiod")
    return (*shorten, QueueStateChanges(({"action": "Stop", "uid": vmi.uid},), replace=True))


def _restart(vm: VM, vmi: VMI | None, options: Json) -> tuple[Change, ...]:
    grace = options.get("gracePeriodSeconds")
    if grace not in (None, 0):
        raise StatusError(400, "BadRequest", "For force restart, only gracePeriod=0 is supported for now")
    if vm.run_strategy in ("Halted", "Once"):
        raise _conflict(vm.name, f"RunStategy {vm.run_strategy} does not support manual restart requests")
    if vmi is None:
        raise _conflict(vm.name, "VM is not running: Halted")
    shorten: tuple[Change, ...] = (SetGracePeriod(1),) if grace == 0 else ()
    return (*shorten, QueueStateChanges(({"action": "Stop", "uid": vmi.uid}, {"action": "Start"})))


def _pause(paused: bool, resource: str, name: str, vmi: VMI | None) -> tuple[Change, ...]:
    kind = resource.removesuffix("s")
    if vmi is None:
        raise _not_found("virtualmachineinstance", name)
    if vmi.phase != "Running":
        raise _conflict(name, "VM is not running", kind)
    if has_condition(vmi.conditions, "Paused") == paused:
        raise _conflict(name, "VMI is already paused" if paused else "VMI is not paused", kind)
    return (SetPaused(paused),)


def _migrate(vm: VM, vmi: VMI | None, options: Json) -> tuple[Change, ...]:
    if vmi is None or vmi.phase != "Running":
        raise _conflict(vm.name, "VM is not running")
    return (CreateMigration(options.get("addedNodeSelector") or {}),)


def run_strategy_patch(document: Json, *, running: bool) -> Json:
    """Returns the merge patch that starts or halts a VM, by `running` or `runStrategy`, whichever the spec has."""
    strategy = {"runStrategy": "Always" if running else "Halted"}
    spec = strategy if document["spec"].get("runStrategy") else {"running": running}
    return {"metadata": {"resourceVersion": document["metadata"]["resourceVersion"]}, "spec": spec}


def vm_patch(document: Json, change: SetRunning | QueueStateChanges) -> tuple[str | None, Json]:
    """Returns the subresource and the merge patch of a change to the VM. Raises `StatusError`."""
    if isinstance(change, SetRunning):
        return None, run_strategy_patch(document, running=change.running)
    metadata = document["metadata"]
    queued = (document.get("status") or {}).get("stateChangeRequests") or []
    if queued and not change.replace:
        raise _conflict(metadata["name"], "unable to complete request: stop/start already underway")
    # A manual start clears the backoff of failed starts.
    status = {"stateChangeRequests": list(change.requests), "startFailure": None}
    return "status", {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}


def _not_found(kind: str, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{kind}.kubevirt.io "{name}" not found')


def _conflict(name: str, why: str, kind: str = "virtualmachine") -> StatusError:
    return StatusError(409, "Conflict", f'Operation cannot be fulfilled on {kind}.kubevirt.io "{name}": {why}')
