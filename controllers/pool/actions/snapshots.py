"""Actions on snapshots of VMs, and on their restores."""

from dataclasses import dataclass, replace
from datetime import datetime

from controllers.pool.actions.base import Action, change_vm
from controllers.pool.actions.hooks import stopping
from controllers.pool.snapshot import PoolSnapshot
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

    def after(self, snapshot: PoolSnapshot) -> PoolSnapshot:
        pool, uid = snapshot.pool, f"{self.snapshot} (simulated)"
        taken = VMSnapshot(
            *(pool.namespace, self.snapshot, uid, pool.name, self.name, self.uid, self.revision),
            update=self.update,
            created_at=LATEST_TIME,
            ready=True,
        )
        return replace(snapshot, vm_snapshots=(*snapshot.vm_snapshots, taken))


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
    ran: bool
    reason: str

    def begun(self, vm: VM, now: datetime) -> VM:
        return stopping(vm, now)

    def after(self, snapshot: PoolSnapshot) -> PoolSnapshot:
        """The snapshot after KubeVirt has stopped the VM and replaced its disks."""
        pool, uid = snapshot.pool, f"{self.restore} (simulated)"
        restore = VMRestore(
            *(pool.namespace, self.restore, uid, pool.name, self.name, self.uid, self.request),
            *(self.run_strategy, self.ran),
            complete=True,
        )
        stopped = change_vm(snapshot, self.uid, ready=False, vmi=None, vmi_exists=False)
        return replace(stopped, restores=(*snapshot.restores, restore))


@dataclass(frozen=True)
class LabelState(Action, past="labelled the restored TPM and EFI variables of VM"):
    """Gives the restored claim with a VM's TPM and EFI variables the label by which KubeVirt finds it.

    KubeVirt 1.6 to 1.9 deletes the labelled claim, restores it without the label, and then waits for a labelled one."""

    name: str
    claim: str
    restore: str
    """name of the VirtualMachineRestore that has created the claim"""
    reason: str

    def after(self, snapshot: PoolSnapshot) -> PoolSnapshot:
        restores = (replace(r, complete=True) if r.name == self.restore else r for r in snapshot.restores)
        return replace(snapshot, restores=tuple(restores))


@dataclass(frozen=True)
class PruneSnapshot(Action, past="deleted snapshot", deletes="uid"):
    concerns_vm = False
    name: str
    uid: str
    reason: str

    def after(self, snapshot: PoolSnapshot) -> PoolSnapshot:
        return replace(snapshot, vm_snapshots=tuple(each for each in snapshot.vm_snapshots if each.uid != self.uid))


@dataclass(frozen=True)
class PruneRestore(Action, past="deleted restore", deletes="uid"):
    concerns_vm = False
    name: str
    uid: str
    reason: str

    def after(self, snapshot: PoolSnapshot) -> PoolSnapshot:
        return replace(snapshot, restores=tuple(each for each in snapshot.restores if each.uid != self.uid))
