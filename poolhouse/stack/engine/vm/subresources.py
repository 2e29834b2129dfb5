"""Plans the writes of subresource requests (start, stop, restart, ...). The rules are those of KubeVirt.

They are in its pkg/virt-api/rest/lifecycle.go, and are the same from 1.5 to 1.9, except that any
liveness probe prevented a pause before 1.8; those of volumes are in volumes.go.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.kubevirt.wrong_types import wrong_types
from poolhouse.stack.engine.objects import VM, VMI
from poolhouse.stack.engine.resources import find_condition
from poolhouse.stack.engine.vm.hotplug import add_volume, remove_volume

VM_KIND, VMI_KIND = "virtualmachine", "virtualmachineinstance"
"""resource names in KubeVirt's messages"""


class StatusError(Exception):
    """A refused request, with the code, reason, message and details of a `metav1.Status`."""

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details


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


@dataclass(frozen=True)
class EditVolumes:
    """Adds or removes a hotpluggable volume in the template of the VM, or in a VMI without a VM."""

    patch: Json
    """merge patch of the VMI spec"""


Change = SetRunning | QueueStateChanges | SetGracePeriod | SetPaused | CreateMigration
VOLUME_VERBS = ("addvolume", "removevolume")


@dataclass(frozen=True)
class Option:
    """A field of a request's body, with the JSON type that KubeVirt decodes it into."""

    name: str
    go_type: Literal["bool", "int64", "string", "[]string", "map[string]string", "v1.Disk", "v1.HotplugVolumeSource"]


_DRY_RUN = Option("dryRun", "[]string")
OPTIONS: Mapping[str, tuple[Option, ...]] = {
    "start": (Option("paused", "bool"), _DRY_RUN),
    "stop": (Option("gracePeriod", "int64"), _DRY_RUN),
    "restart": (Option("gracePeriodSeconds", "int64"), _DRY_RUN),
    "migrate": (Option("addedNodeSelector", "map[string]string"), _DRY_RUN),
    "pause": (_DRY_RUN,),
    "unpause": (_DRY_RUN,),
    "addvolume": (
        Option("name", "string"),
        Option("disk", "v1.Disk"),
        Option("volumeSource", "v1.HotplugVolumeSource"),
        _DRY_RUN,
    ),
    "removevolume": (Option("name", "string"), _DRY_RUN),
}
VERBS = {
    "virtualmachines": ("start", "stop", "restart", "migrate", *VOLUME_VERBS),
    "virtualmachineinstances": ("pause", "unpause", *VOLUME_VERBS),
}
SUCCESS_CODES = {verb: 200 if verb in ("pause", "unpause") else 202 for verb in OPTIONS}
"""codes of KubeVirt's answers, whose bodies are empty"""


def check_options(verb: str, options: Json) -> None:
    """Raises `StatusError` for an option of another type than KubeVirt's. Unknown options are ignored."""
    for option in OPTIONS[verb]:
        value = options.get(option.name)
        if value is None:
            continue
        if not _IS_A[option.go_type](value):
            raise _unreadable(verb, option.name, value, option.go_type)
        struct = _STRUCTS.get(option.go_type)
        for wrong in wrong_types(value, struct, (option.name,)) if struct else ():
            raise _unreadable(verb, wrong.field, wrong.found, wrong.expected)


def _unreadable(verb: str, field: str, value: Any, go_type: str) -> StatusError:
    struct_field = f"{verb.capitalize()}Options.{field}"
    problem = f"json: cannot unmarshal {_json_type(value)} into Go struct field {struct_field} of type {go_type}"
    return StatusError(400, "BadRequest", f"{UNREADABLE_BODY}{problem}")


UNREADABLE_BODY = "Can not unmarshal Request body to struct, error: "

_STRUCTS: Mapping[str, str] = {"v1.Disk": "Disk", "v1.HotplugVolumeSource": "HotplugVolumeSource"}
"""by Go type, the type in the table of KubeVirt's fields"""

_IS_A: Mapping[str, Callable[[Any], bool]] = {
    "bool": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "v1.Disk": lambda value: isinstance(value, dict),
    "v1.HotplugVolumeSource": lambda value: isinstance(value, dict),
    "int64": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "[]string": lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
    "map[string]string": lambda value: isinstance(value, dict) and all(isinstance(e, str) for e in value.values()),
}


def _json_type(value: Any) -> str:
    names = {
        type(None): "null",
        bool: "bool",
        int: "number",
        float: "number",
        str: "string",
        list: "array",
        dict: "object",
    }
    return names[type(value)]


def plan_request(
    verb: str, resource: str, name: str, vm: VM | None, vmi: VMI | None, options: Json
) -> tuple[Change, ...]:
    """Returns the changes of a request. Raises `StatusError` if KubeVirt would refuse the request."""
    check_options(verb, options)
    if resource == "virtualmachineinstances":
        return _pause(name, vmi) if verb == "pause" else _unpause(name, vmi)
    if vm is None:
        raise _not_found(VM_KIND, name)
    match verb:
        case "start":
            return _start(vm, vmi, options)
        case "stop":
            return _stop(vm, vmi, options)
        case "restart":
            return _restart(vm, vmi, options)
        case _:
            return _migrate(vm, vmi, options)


def plan_volume_request(verb: str, resource: str, name: str, document: Json | None, options: Json) -> EditVolumes:
    """Returns the change of a volume request, which KubeVirt 1.9 makes in the VM. Raises `StatusError` if KubeVirt
    would refuse the request."""
    check_options(verb, options)
    kind = resource.removesuffix("s")
    called = "AddVolumeOptions" if verb == "addvolume" else "RemoveVolumeOptions"
    required = {"name": "name to be set", "disk": "disk to not be nil", "volumeSource": "VolumeSource to not be nil"}
    for field in required if verb == "addvolume" else ("name",):
        if options.get(field) in (None, ""):
            raise StatusError(400, "BadRequest", f"{called} requires {required[field]}")
    if document is None:
        raise _not_found(kind, name)
    path: tuple[str, ...] = ("spec", "template", "spec")
    if kind == VMI_KIND:
        path = ("spec",)
        if any(owner.get("kind") == "VirtualMachine" for _, owner in entries(document, "metadata", "ownerReferences")):
            message = f"VMI {document['metadata']['namespace']}/{name} is owned by a VM"
            raise StatusError(400, "BadRequest", message)
        if at(document, "status", "phase") != "Running":
            raise _conflict(name, "VM is not running", kind)
    try:
        spec = at(document, *path)
        patch = add_volume(spec, options) if verb == "addvolume" else remove_volume(spec, options["name"])
    except ValueError as error:
        raise _conflict(name, str(error), kind) from None
    return EditVolumes(patch)


def _start(vm: VM, vmi: VMI | None, options: Json) -> tuple[Change, ...]:
    if vmi is not None and not vmi.final and vmi.phase not in ("", "Unknown"):
        raise _conflict(vm.name, "VM is already running")
    paused: Json = {"data": {"paused": "true"}} if options.get("paused") else {}
    start = {"action": "Start", **paused}
    match vm.run_strategy:
        case "Halted":
            return (QueueStateChanges((start,)),) if paused else (SetRunning(True),)
        case "RerunOnFailure" if vmi is not None and vmi.phase == "Failed":  # KubeVirt starts such a VM by itself
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
    if grace is not None and grace > 0:
        raise StatusError(400, "BadRequest", "For force restart, only gracePeriod=0 is supported for now")
    if grace is not None and grace < 0:
        raise StatusError(400, "BadRequest", "gracePeriod has to be greater or equal to 0")
    if vm.run_strategy in ("Halted", "Once"):
        raise _conflict(vm.name, f"RunStategy {vm.run_strategy} does not support manual restart requests")
    if vmi is None:
        raise _conflict(vm.name, "VM is not running: Halted")
    shorten: tuple[Change, ...] = (SetGracePeriod(1),) if grace == 0 else ()
    return (*shorten, QueueStateChanges(({"action": "Stop", "uid": vmi.uid}, {"action": "Start"})))


def _pause(name: str, vmi: VMI | None) -> tuple[Change, ...]:
    if vmi is None:
        raise _not_found(VMI_KIND, name)
    if vmi.phase != "Running":
        raise _conflict(name, "VM is not running", VMI_KIND)
    if vmi.liveness_probe not in ("", "guestAgentPing"):
        why = "Pausing VMIs with a non-GuestAgentPing LivenessProbe is not supported"
        message = f'{VMI_KIND}.kubevirt.io "{name}" is forbidden: {why}'
        raise StatusError(403, "Forbidden", message, _details(name, VMI_KIND))
    if find_condition(vmi.conditions, "Paused") is not None:
        raise _conflict(name, "VMI is already paused", VMI_KIND)
    return (SetPaused(True),)


def _unpause(name: str, vmi: VMI | None) -> tuple[Change, ...]:
    if vmi is None:
        raise _not_found(VMI_KIND, name)
    if vmi.phase != "Running":
        raise _conflict(name, "VMI is not running", VMI_KIND)
    if find_condition(vmi.conditions, "Paused") is None:
        raise _conflict(name, "VMI is not paused", VMI_KIND)
    return (SetPaused(False),)


def _migrate(vm: VM, vmi: VMI | None, options: Json) -> tuple[Change, ...]:
    if vmi is None:
        raise _not_found(VMI_KIND, vm.name)
    if vmi.phase != "Running":
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
        why = "unable to complete request: stop/start already underway"
        raise StatusError(500, "InternalError", f"Internal error occurred: {why}", {"causes": [{"message": why}]})
    # A manual start clears the backoff of failed starts.
    status = {"stateChangeRequests": list(change.requests), "startFailure": None}
    return "status", {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}


def _not_found(kind: str, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{kind}.kubevirt.io "{name}" not found', _details(name, kind))


def _conflict(name: str, why: str, kind: str = VM_KIND) -> StatusError:
    message = f'Operation cannot be fulfilled on {kind}.kubevirt.io "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(name, kind))


def _details(name: str, kind: str) -> Json:
    return {"name": name, "group": "kubevirt.io", "kind": kind}
