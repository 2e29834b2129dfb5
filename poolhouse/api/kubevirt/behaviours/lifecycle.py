"""How a VM starts, stops, pauses, restarts and ends, and what its VMI and its status show meanwhile."""

from poolhouse.api.kubevirt.behaviours.steps import (
    ALWAYS,
    ANY,
    HALTED,
    MANUAL,
    RERUN,
    STARTING,
    STOPPING,
    Behaviour,
    Call,
    Change,
    Create,
    Delete,
    Gone,
    Reaches,
    Refusal,
    Remember,
    Replaced,
    Shows,
    Target,
    running,
)

_VERBS: tuple[tuple[Target, str], ...] = (
    ("VM", "start"),
    ("VM", "stop"),
    ("VM", "restart"),
    ("VMI", "pause"),
    ("VMI", "unpause"),
)
_STANDBY = "Warm pools pause, stop and start waiting VMs by these requests."
_RESTART = "Pools restart VMs, and wait until the VMI is another one."


def _conflict(kind: str, text: str) -> Refusal:
    return Refusal(409, f'Operation cannot be fulfilled on {kind}.kubevirt.io "%s": {text}')


LIFECYCLE: tuple[Behaviour, ...] = (
    Behaviour(
        "halted-vm-is-stopped",
        "a halted VM is Stopped and has no VMI",
        "Pools and warm pools count VMs by this status.",
        (Create(HALTED), Reaches("Stopped"), Shows("VM", {"conditions.Ready": "False/VMINotExists"}), Gone("VMI")),
    ),
    Behaviour(
        "subresource-accept",
        "virt-api answers 406 to a client that accepts only JSON",
        "Poolhouse accepts any type. A proxy that changes the header would break warm pools.",
        (
            Create(HALTED),
            *(
                Call(target, verb, refused=Refusal(406, "406: Not Acceptable"), accept="application/json")
                for target, verb in _VERBS
            ),
        ),
    ),
    Behaviour(
        "refusals-of-halted-vm",
        "virt-api refuses to stop, restart, pause and unpause a halted VM",
        "Poolhouse takes a conflict as passing, and other refusals as a failure of the pool.",
        (
            Create(HALTED),
            Reaches("Stopped"),
            Call("VM", "stop", refused=_conflict("virtualmachine", "VM is not running")),
            Call(
                "VM",
                "restart",
                refused=_conflict("virtualmachine", "RunStategy Halted does not support manual restart requests"),
            ),
            Call("VMI", "pause", refused=Refusal(404, 'virtualmachineinstance.kubevirt.io "%s" not found')),
            Call("VMI", "unpause", refused=Refusal(404, 'virtualmachineinstance.kubevirt.io "%s" not found')),
        ),
    ),
    Behaviour(
        "missing-vm",
        "virt-api answers 404 for a VM that does not exist",
        "The controllers read a VM again after this answer.",
        (Call("VM", "start", refused=Refusal(404, 'virtualmachine.kubevirt.io "%s" not found')),),
    ),
    Behaviour(
        "unreadable-options",
        "virt-api answers 400 to options of another type",
        _STANDBY,
        (
            Create(HALTED),
            Call(
                "VM",
                "start",
                options={"paused": "yes"},
                refused=Refusal(400, "Can not unmarshal Request body to struct, error: "),
            ),
        ),
    ),
    Behaviour(
        "unschedulable-vm",
        "a VM that fits on no node is ErrorUnschedulable, and its VMI names the reason",
        "Warm pools report InsufficientCapacity and create no further VMs.",
        (
            Create({**ALWAYS, "template": {"spec": {"nodeSelector": {"conformance.poolhouse.dev/none": "true"}}}}),
            Reaches("ErrorUnschedulable", STARTING),
            Shows("VMI", {"conditions.PodScheduled": "False/Unschedulable", "status.phase": "Scheduling"}),
        ),
    ),
    Behaviour(
        "missing-volume",
        "a VM whose PersistentVolumeClaim does not exist is ErrorPvcNotFound",
        "Warm pools count such VMs as failing.",
        (
            Create(
                {
                    **ALWAYS,
                    "template": {
                        "spec": {
                            "domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
                            "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "missing"}}],
                        }
                    },
                }
            ),
            Reaches("ErrorPvcNotFound", STARTING),
        ),
    ),
    Behaviour(
        "start-and-stop",
        "start sets the run strategy Always, and stop sets Halted and removes the VMI",
        _STANDBY,
        (
            Create(HALTED),
            Reaches("Stopped"),
            Call("VM", "start"),
            Shows("VM", {"spec.runStrategy": "Always"}),
            Reaches("Running", STARTING),
            Shows("VM", {"status.ready": True, "status.created": True}),
            Call("VM", "start", refused=_conflict("virtualmachine", "VM is already running")),
            Call("VM", "stop"),
            Shows("VM", {"spec.runStrategy": "Halted"}),
            Reaches("Stopped", STOPPING),
            Gone("VMI"),
        ),
        guest=True,
    ),
    Behaviour(
        "running-vmi",
        "a running VMI belongs to its VM, has a node and says since when it runs",
        "Pools compute readiness, age and node of a VM from its VMI.",
        (
            *running(),
            Shows(
                "VMI",
                {
                    "status.phase": "Running",
                    "status.nodeName": ANY,
                    "metadata.labels.kubevirt.io/nodeName": ANY,
                    "metadata.ownerReferences.0.kind": "VirtualMachine",
                    "metadata.ownerReferences.0.controller": True,
                    "conditions.Ready": "True",
                },
            ),
            Shows("VM", {"metadata.finalizers.0": "kubevirt.io/virtualMachineControllerFinalize"}),
        ),
        guest=True,
    ),
    Behaviour(
        "pause-and-unpause",
        "a paused VMI keeps its phase, is not Ready, and runs again after an unpause",
        _STANDBY,
        (
            *running(),
            Shows("VMI", {"conditions.Ready": "True"}),
            Call("VMI", "unpause", refused=_conflict("virtualmachineinstance", "VMI is not paused")),
            Call("VMI", "pause", 200),
            Reaches("Paused", ("Running",)),
            Shows(
                "VMI",
                {
                    "status.phase": "Running",
                    "conditions.Paused": "True/PausedByUser",
                    "conditions.Ready": "False/ReadinessGatesNotReady",
                },
            ),
            Call("VMI", "pause", refused=_conflict("virtualmachineinstance", "VMI is already paused")),
            Call("VMI", "unpause", 200),
            Reaches("Running", ("Paused",)),
            Shows("VMI", {"conditions.Paused": None, "conditions.Ready": "True"}),
        ),
        guest=True,
    ),
    Behaviour(
        "restart",
        "restart replaces the VMI of a VM, and keeps its run strategy",
        _RESTART,
        (
            Create(RERUN),
            Reaches("Running", STARTING),
            Remember(),
            Call("VM", "restart"),
            Replaced(),
            Shows("VM", {"spec.runStrategy": "RerunOnFailure"}),
        ),
        guest=True,
    ),
    Behaviour(
        "deleted-vmi-is-replaced",
        "a VM with the run strategy Always gets a new VMI after its VMI is deleted",
        _RESTART,
        (*running(), Remember(), Delete("VMI"), Replaced()),
        guest=True,
    ),
    Behaviour(
        "manual-start-and-stop",
        "start and stop of a VM with the run strategy Manual keep its run strategy",
        "Pools do not start such VMs, and restart them by request.",
        (
            Create(MANUAL),
            Reaches("Stopped"),
            Call("VM", "restart", refused=_conflict("virtualmachine", "VM is not running: Halted")),
            Call("VM", "start"),
            Reaches("Running", STARTING),
            Call("VM", "stop"),
            Reaches("Stopped", STOPPING),
            Shows("VM", {"spec.runStrategy": "Manual"}),
        ),
        guest=True,
    ),
    Behaviour(
        "only-kubevirt-writes-vmis",
        "virt-api refuses changes of a VMI's spec, takes changes of its status back, and accepts labels",
        "Migration policies work by a label that Poolhouse writes on VMIs.",
        (
            *running(),
            Change(
                "VMI",
                {"spec": {"terminationGracePeriodSeconds": 9}},
                Refusal(422, "update of VMI object is restricted"),
            ),
            Change("VMI", {"metadata": {"labels": {"conformance": "a"}}, "status": {"phase": "Failed"}}),
            Shows("VMI", {"metadata.labels.conformance": "a", "status.phase": "Running"}),
        ),
        guest=True,
    ),
    Behaviour(
        "deleted-vm",
        "a deleted VM stays until its VMI is gone",
        "Pools release names, disks and budget only after that.",
        (
            *running(),
            Delete("VM"),
            Gone("VM"),
            Gone("VMI"),
        ),
        guest=True,
    ),
    Behaviour(
        "vmi-without-vm",
        "a VMI without a VM runs, and is gone after its deletion",
        "VirtualMachineInstanceReplicaSets create such VMIs.",
        (
            Create(target="VMI"),
            Shows("VMI", {"status.phase": "Running", "conditions.Ready": "True"}),
            Delete("VMI"),
            Gone("VMI"),
        ),
        guest=True,
    ),
)
