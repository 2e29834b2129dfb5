"""The behaviours of KubeVirt that Poolhouse relies on, as steps that a test performs with one VM.

The table was written from KubeVirt's source and checked on a real KubeVirt 1.9. `poolhouse conformance` performs it on
any cluster. The tests perform it on the engine of the embedded stack, so that the engine behaves like KubeVirt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from poolhouse.api.kubevirt.versions import IN_PLACE_RESTORE, OLDEST, SNAPSHOT, FeatureGate, Release

Json = dict[str, Any]
Target = Literal["VM", "VMI", "Snapshot", "Restore"]


@dataclass(frozen=True)
class Refusal:
    code: int
    text: str
    """part of the message"""


@dataclass(frozen=True)
class Create:
    """Creates the VM, or with `target` VMI a VMI without a VM, a snapshot of the VM, or its restore. `spec` is merged
    into the smallest valid spec."""

    spec: Json = field(default_factory=dict)
    refused: Refusal | None = None
    target: Target = "VM"


@dataclass(frozen=True)
class Change:
    """Sends a JSON merge patch."""

    target: Target
    patch: Json
    refused: Refusal | None = None


@dataclass(frozen=True)
class Call:
    """Puts a subresource."""

    target: Target
    verb: str
    code: int = 202
    refused: Refusal | None = None
    accept: str = "application/json, */*"
    options: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Reaches:
    """Waits until the VM's printable status is this one. Until then, it may only be one of `through`."""

    status: str
    through: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shows:
    """Waits until each path of the object has its value. `ANY` is any value, and None is no value. The path
    `conditions.TYPE` is the condition's status and reason, as `True/Reason` or `True`."""

    target: Target
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Remember:
    """Remembers the VMI's UID for `Replaced`."""


@dataclass(frozen=True)
class Replaced:
    """Waits until the VM has another VMI, which runs."""


@dataclass(frozen=True)
class Delete:
    target: Target


@dataclass(frozen=True)
class Gone:
    """Waits until the object does not exist."""

    target: Target


@dataclass(frozen=True)
class Evict:
    """Requests the eviction of the VMI's launcher Pod, as a drain does."""

    refused: Refusal | None = None


@dataclass(frozen=True)
class Evacuates:
    """Waits until KubeVirt has created a migration that moves the VMI away from its node."""


Step = Create | Change | Call | Reaches | Shows | Remember | Replaced | Delete | Gone | Evict | Evacuates


class _Any:
    def __repr__(self) -> str:
        return "any value"


ANY = _Any()


@dataclass(frozen=True)
class Behaviour:
    name: str
    what: str
    why: str
    """what Poolhouse needs it for"""
    steps: tuple[Step, ...]
    guest: bool = False
    """whether a VM must run, which needs a node with capacity"""
    since: Release = OLDEST
    gate: FeatureGate | None = None
    live: bool = False
    """whether it needs `vmRolloutStrategy: LiveUpdate`"""


HALTED, MANUAL, ALWAYS, RERUN = ({"runStrategy": each} for each in ("Halted", "Manual", "Always", "RerunOnFailure"))
STARTING = ("Stopped", "Provisioning", "Starting", "WaitingForVolumeBinding")
STOPPING = ("Running", "Paused", "Stopping", "Terminating")


def _domain(**fields: Any) -> Json:
    return {"template": {"spec": {"domain": fields}}}


_NICS = "domain.devices.interfaces"


def _nics(**second: Any) -> Json:
    """A NIC on the pod network. With `second`, also one on a Multus network."""
    nics: list[Json] = [{"name": "default", "masquerade": {}}]
    networks: list[Json] = [{"name": "default", "pod": {}}]
    if second:
        nics.append({"name": "second", "bridge": {}, **second})
        networks.append({"name": "second", "multus": {"networkName": "conformance"}})
    return {"template": {"spec": {"domain": {"devices": {"interfaces": nics}}, "networks": networks}}}


def _evictable(strategy: str) -> Json:
    """A VM with this `evictionStrategy`. The annotation concerns the embedded stack only."""
    metadata = {"annotations": {"sim.poolhouse.dev/launcher-pods": "true"}}
    return {**ALWAYS, "template": {"metadata": metadata, "spec": {"evictionStrategy": strategy}}}


def _conflict(kind: str, text: str) -> Refusal:
    return Refusal(409, f'Operation cannot be fulfilled on {kind}.kubevirt.io "%s": {text}')


_ADMISSION = "Admission and dry runs of Poolhouse report KubeVirt's own refusals."
_DEFAULTS = "virt-api's webhook runs before that of Poolhouse, which therefore finds these values set."
_STANDBY = "Warm pools pause, stop and start waiting VMs by these requests."
_SNAPSHOT = "Pools take snapshots of VMs before updates, if they are asked to."
_LIVE = "Pools let KubeVirt change running VMs, and restart those for which KubeVirt requires it."
_DRAIN = "Pools take part in drains, and limit by PodDisruptionBudgets what a drain stops."
_RESTART = "Pools restart VMs, and wait until the VMI is another one."

BEHAVIOURS: tuple[Behaviour, ...] = (
    Behaviour(
        "new-vm-gets-machine-type",
        "virt-api writes architecture and machine type of a VM that names none",
        _DEFAULTS,
        (
            Create(HALTED),
            Shows("VM", {"spec.template.spec.architecture": ANY, "spec.template.spec.domain.machine.type": ANY}),
        ),
    ),
    Behaviour(
        "new-vm-gets-firmware-uuid",
        "virt-api writes a firmware UUID into a new VM",
        _DEFAULTS,
        (Create(HALTED), Shows("VM", {"spec.template.spec.domain.firmware.uuid": ANY})),
        since=(1, 6),
    ),
    Behaviour(
        "new-vm-gets-firmware-serial",
        "virt-api writes a firmware serial into a new VM",
        _DEFAULTS,
        (Create(HALTED), Shows("VM", {"spec.template.spec.domain.firmware.serial": ANY})),
        since=(1, 7),
    ),
    Behaviour(
        "vm-needs-run-strategy",
        "virt-api refuses a VM with neither running nor runStrategy",
        _ADMISSION,
        (Create({"runStrategy": None}, Refusal(422, "RunStrategy must be specified")),),
    ),
    Behaviour(
        "vm-has-one-run-strategy",
        "virt-api refuses a VM with both running and runStrategy",
        _ADMISSION,
        (Create({"runStrategy": "Halted", "running": False}, Refusal(422, "mutually exclusive")),),
    ),
    Behaviour(
        "disk-needs-volume",
        "virt-api refuses a disk without a volume",
        _ADMISSION,
        (
            Create(
                {**HALTED, **_domain(devices={"disks": [{"name": "root", "disk": {"bus": "virtio"}}]})},
                Refusal(422, "disks[0].Name 'root' not found."),
            ),
        ),
    ),
    Behaviour(
        "disk-bus-of-pci-address",
        "virt-api refuses a PCI address of a disk that is not virtio",
        "Poolhouse writes PCI addresses of virtio disks only.",
        (
            Create(
                {
                    **HALTED,
                    "template": {
                        "spec": {
                            "domain": {
                                "devices": {
                                    "disks": [{"name": "root", "disk": {"bus": "sata", "pciAddress": "0000:01:00.0"}}]
                                }
                            },
                            "volumes": [{"name": "root", "emptyDisk": {"capacity": "8Mi"}}],
                        }
                    },
                },
                Refusal(422, "setting a PCI address is only possible with bus type virtio."),
            ),
        ),
    ),
    Behaviour(
        "secure-boot-needs-smm",
        "virt-api refuses secure boot without SMM",
        "Poolhouse writes secureBoot: false where SMM is off.",
        (
            Create(
                {**HALTED, **_domain(firmware={"bootloader": {"efi": {"secureBoot": True}}})},
                Refusal(422, "SecureBoot requires SMM"),
            ),
        ),
    ),
    Behaviour(
        "no-video-without-graphics",
        "virt-api refuses a video type beside autoattachGraphicsDevice: false",
        "Poolhouse takes its video type back when an author turns graphics off.",
        (
            Create(
                {**HALTED, **_domain(devices={"autoattachGraphicsDevice": False, "video": {"type": "vga"}})},
                Refusal(422, "not allowed when autoattachGraphicsDevice is set to false"),
            ),
        ),
        since=(1, 9),
    ),
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
            Call("VM", "start", refused=Refusal(406, "406: Not Acceptable"), accept="application/json"),
            Call("VM", "stop", refused=Refusal(406, "406: Not Acceptable"), accept="application/json"),
            Call("VM", "restart", refused=Refusal(406, "406: Not Acceptable"), accept="application/json"),
            Call("VMI", "pause", refused=Refusal(406, "406: Not Acceptable"), accept="application/json"),
            Call("VMI", "unpause", refused=Refusal(406, "406: Not Acceptable"), accept="application/json"),
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
            Create(ALWAYS),
            Reaches("Running", STARTING),
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
            Create(ALWAYS),
            Reaches("Running", STARTING),
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
        (Create(ALWAYS), Reaches("Running", STARTING), Remember(), Delete("VMI"), Replaced()),
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
            Create(ALWAYS),
            Reaches("Running", STARTING),
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
        "restart-required",
        "a VM whose template has changed since its start has the condition RestartRequired",
        "Users see by it which VMs of a pool do not run the new template yet.",
        (
            Create(ALWAYS),
            Reaches("Running", STARTING),
            Change("VM", {"spec": {"template": {"spec": {"domain": {"cpu": {"cores": 2}}}}}}),
            Shows("VM", {"conditions.RestartRequired": "True"}),
        ),
        guest=True,
    ),
    Behaviour(
        "more-sockets-while-running",
        "virt-controller gives a running VMI more CPU sockets",
        _LIVE,
        (
            Create({**ALWAYS, **_domain(cpu={"sockets": 1, "cores": 1, "threads": 1})}),
            Reaches("Running", STARTING),
            Shows("VMI", {"spec.domain.cpu.maxSockets": ANY, "status.currentCPUTopology.sockets": 1}),
            Change("VM", {"spec": {"template": {"spec": {"domain": {"cpu": {"sockets": 2}}}}}}),
            Shows("VMI", {"spec.domain.cpu.sockets": 2}),
            Shows("VM", {"conditions.RestartRequired": None}),
        ),
        guest=True,
        live=True,
    ),
    Behaviour(
        "absent-nic-leaves-the-vm",
        "virt-controller removes a NIC with the state absent from a VM that does not run",
        "Pools do not count a NIC that the template calls absent as a difference.",
        (Create({**HALTED, **_nics(state="absent")}), Shows("VM", {f"spec.template.spec.{_NICS}.1": None})),
        since=(1, 6),
    ),
    Behaviour(
        "nic-while-running",
        "virt-controller gives a running VMI a NIC on a Multus network, and takes an absent one",
        _LIVE,
        (
            Create({**ALWAYS, **_nics()}),
            Reaches("Running", STARTING),
            Change("VM", {"spec": _nics(state=None)}),
            Shows("VMI", {f"spec.{_NICS}.1.name": "second", "spec.networks.1.name": "second"}),
            Change("VM", {"spec": _nics(state="absent")}),
            Shows("VM", {"conditions.RestartRequired": None}),
        ),
        guest=True,
        since=(1, 6),
    ),
    Behaviour(
        "placement-while-running",
        "virt-controller gives a running VMI another node selector and other tolerations",
        _LIVE,
        (
            Create(ALWAYS),
            Reaches("Running", STARTING),
            Change("VM", {"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}}}}),
            Change("VM", {"spec": {"template": {"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}}}}),
            Shows("VMI", {"spec.nodeSelector.kubernetes.io/os": "linux", "spec.tolerations.0.key": "a"}),
            Shows("VM", {"conditions.RestartRequired": None}),
        ),
        guest=True,
        live=True,
    ),
    Behaviour(
        "fewer-sockets-need-a-restart",
        "virt-controller sets RestartRequired for fewer CPU sockets",
        _LIVE,
        (
            Create({**ALWAYS, **_domain(cpu={"sockets": 2, "cores": 1, "threads": 1})}),
            Reaches("Running", STARTING),
            Change("VM", {"spec": {"template": {"spec": {"domain": {"cpu": {"sockets": 1}}}}}}),
            Shows("VM", {"conditions.RestartRequired": "True"}),
            Shows("VMI", {"spec.domain.cpu.sockets": 2}),
        ),
        guest=True,
        live=True,
    ),
    Behaviour(
        "snapshot-names-its-source",
        "virt-api refuses a snapshot whose source has no API group",
        _SNAPSHOT,
        (
            Create(HALTED),
            Create({"source": {"apiGroup": None}}, Refusal(422, "missing apiGroup"), "Snapshot"),
            Create({"source": {"kind": "Pod"}}, Refusal(422, "invalid kind"), "Snapshot"),
        ),
        gate=SNAPSHOT,
    ),
    Behaviour(
        "snapshot-of-a-halted-vm",
        "a snapshot of a halted VM becomes ready, cannot be changed, and has the VM's UID",
        _SNAPSHOT,
        (
            Create(HALTED),
            Create(target="Snapshot"),
            Shows("Snapshot", {"status.readyToUse": True, "status.phase": "Succeeded", "status.sourceUID": ANY}),
            Shows("Snapshot", {"conditions.Ready": "True", "conditions.Progressing": "False", "status.error": None}),
            Shows("VM", {"status.snapshotInProgress": None}),
            Change(
                "Snapshot", {"spec": {"deletionPolicy": "Retain"}}, Refusal(422, "spec in immutable after creation")
            ),
            Delete("Snapshot"),
            Gone("Snapshot"),
        ),
        gate=SNAPSHOT,
    ),
    Behaviour(
        "restore-stops-the-vm",
        "a restore stops a running VM, gives it the spec of the snapshot, and leaves it halted",
        "Pools start the VM again after the restore.",
        (
            Create(ALWAYS),
            Reaches("Running", STARTING),
            Create(target="Snapshot"),
            Shows("Snapshot", {"status.readyToUse": True, "status.indications.0": ANY}),
            Change("VM", {"spec": {"template": {"metadata": {"annotations": {"conformance": "later"}}}}}),
            Create({"targetReadinessPolicy": "StopTarget", "volumeRestorePolicy": "InPlace"}, target="Restore"),
            Shows("Restore", {"status.complete": True, "metadata.ownerReferences.0.kind": "VirtualMachine"}),
            Shows(
                "VM",
                {
                    "spec.runStrategy": "Halted",
                    "spec.template.metadata.annotations.conformance": None,
                    "metadata.annotations.restore.kubevirt.io/lastRestoreUID": ANY,
                    "status.restoreInProgress": None,
                },
            ),
        ),
        guest=True,
        since=IN_PLACE_RESTORE,
        gate=SNAPSHOT,
    ),
    Behaviour(
        "eviction-migrates",
        "the eviction of a VMI with LiveMigrate is denied, and KubeVirt creates a migration",
        _DRAIN,
        (
            Create(_evictable("LiveMigrate")),
            Reaches("Running", STARTING),
            Shows("VMI", {"conditions.LiveMigratable": "True"}),
            Evict(Refusal(429, 'Eviction triggered evacuation of VMI "')),
            Evacuates(),
        ),
        guest=True,
    ),
    Behaviour(
        "eviction-marks",
        "the eviction of a VMI with External is denied, and marks the VMI with its node",
        _DRAIN,
        (
            Create(_evictable("External")),
            Reaches("Running", STARTING),
            Evict(Refusal(429, 'Eviction triggered evacuation of VMI "')),
            Shows("VMI", {"status.evacuationNodeName": ANY, "status.phase": "Running"}),
            Evict(Refusal(429, 'Evacuation in progress: Eviction triggered evacuation of VMI "')),
        ),
        guest=True,
    ),
    Behaviour(
        "eviction-stops",
        "the eviction of a VMI with None stops the guest, and the VM gets another VMI",
        _DRAIN,
        (Create(_evictable("None")), Reaches("Running", STARTING), Remember(), Evict(), Replaced()),
        guest=True,
    ),
    Behaviour(
        "deleted-vm",
        "a deleted VM stays until its VMI is gone",
        "Pools release names, disks and budget only after that.",
        (
            Create(ALWAYS),
            Reaches("Running", STARTING),
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
