"""Snapshots of VMs, and the return to them."""

from poolhouse.api.kubevirt.behaviours.steps import (
    ANY,
    HALTED,
    Behaviour,
    Change,
    Create,
    Delete,
    Gone,
    Refusal,
    Shows,
    running,
)
from poolhouse.api.kubevirt.versions import IN_PLACE_RESTORE, SNAPSHOT

_SNAPSHOT = "Pools take snapshots of VMs before updates, if they are asked to."

SNAPSHOTS: tuple[Behaviour, ...] = (
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
            *running(),
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
)
