"""Actions on snapshots of VMs, and on their restores."""

from dataclasses import dataclass, replace
from datetime import datetime

from controllers.pool.actions.base import Action, SnapshotEditor
from controllers.pool.actions.hooks import stopping
from controllers.pool.vm_snapshots import VMRestore, VMSnapshot
from controllers.shared.vm import VM

LATEST_TIME = "9999-12-31T23:59:59Z"
"""creation time of an object that does not exist yet"""


@dataclass(frozen=True)
class TakeSnapshot(Action, past="took a snapshot of VM", creates="snapshot"):
    """Creates a VirtualMachineSnapshot of a VM that is about to be updated."""

    name: str
    uid: str
    snapshot: str
    """name of the VirtualMachineSnapshot"""
    revision: str
    """label of the VM's revision"""
    owner: str
    """name of the ControllerRevision with which the snapshot is deleted; empty for an unknown revision"""
    owner_uid: str
    update: int
    reason: str

    def begun(self, vm: VM, now: datetime) -> VM:
        return stopping(vm, now)

    def change(self, editor: SnapshotEditor) -> None:
        pool, uid = editor.snapshot.pool, f"{self.snapshot} (simulated)"
        editor.vm_snapshots[self.snapshot] = VMSnapshot(
            *(pool.namespace, self.snapshot, uid, pool.name, self.name, self.uid, self.revision),
            update=self.update,
            created_at=LATEST_TIME,
            ready=True,
        )


@dataclass(frozen=True)
class Restore(Action, past="began to restore the disks of VM", creates="restore"):
    """Creates a VirtualMachineRestore, for which KubeVirt stops the VM."""

    recorded = True
    name: str
    uid: str
    restore: str
    """name of the VirtualMachineRestore"""
    snapshot: str
    request: str
    run_strategy: str
    """the VM's run strategy, with `NOT_RUNNING` if it does not run"""
    reason: str

    def begun(self, vm: VM, now: datetime) -> VM:
        return stopping(vm, now)

    def change(self, editor: SnapshotEditor) -> None:
        """KubeVirt stops the VM, and replaces its disks."""
        pool, uid = editor.snapshot.pool, f"{self.restore} (simulated)"
        editor.restores[self.restore] = VMRestore(
            *(pool.namespace, self.restore, uid, pool.name, self.name, self.uid, self.request),
            snapshot=self.snapshot,
            complete=True,
        )
        noted = {"restore": self.request, "run_strategy_before": self.run_strategy}
        editor.change_vm(self.uid, ready=False, vmi=None, vmi_exists=False, **noted)


@dataclass(frozen=True)
class LabelState(Action, past="labelled the restored TPM and EFI variables of VM"):
    """Gives the restored claim with a VM's TPM and EFI variables the label by which KubeVirt finds it.

    KubeVirt 1.6 to 1.9 deletes the labelled claim, restores it without the label, and then waits for a labelled one."""

    name: str
    claim: str
    restore: str
    """name of the VirtualMachineRestore that has created the claim"""
    reason: str

    def change(self, editor: SnapshotEditor) -> None:
        if (restore := editor.restores.get(self.restore)) is not None:
            editor.restores[self.restore] = replace(restore, complete=True)


@dataclass(frozen=True)
class ForgetRestore(Action, past="ended the wait for the restore of VM"):
    """Takes what a VM notes about a restore that does not exist any more."""

    name: str
    uid: str
    request: str
    reason: str

    def change(self, editor: SnapshotEditor) -> None:
        editor.change_vm(self.uid, restored=self.request)


@dataclass(frozen=True)
class PruneSnapshot(Action, past="deleted snapshot", deletes="uid"):
    concerns_vm = False
    name: str
    uid: str
    reason: str

    def change(self, editor: SnapshotEditor) -> None:
        editor.vm_snapshots.pop(self.name, None)


@dataclass(frozen=True)
class PruneRestore(Action, past="deleted restore", deletes="uid"):
    concerns_vm = False
    name: str
    uid: str
    reason: str

    def change(self, editor: SnapshotEditor) -> None:
        editor.restores.pop(self.name, None)
