"""Actions on disks that are retained or replaced, and on the finalizer of VMs whose disks are retained."""

from dataclasses import dataclass, replace

from controllers.pool.actions.base import Action, change_vm, without_vm
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.vm import RetainedDisk


@dataclass(frozen=True)
class ReleaseDisks(Action, past="released the disks of VM"):
    """Completes a Delete with `retain_disks`: removes the disks' owner reference, then the VM's finalizer."""

    name: str
    uid: str
    disks: tuple[str, ...]
    disk_templates: str
    """the VM's annotation with the hashes of the entries that its disks were created from"""
    persists_state: bool
    """whether KubeVirt keeps state of the VM on further claims"""
    retained_by: str
    reason: str

    def after(self, snapshot: PoolSnapshot) -> PoolSnapshot:
        return without_vm(snapshot, self.name, self.uid)


@dataclass(frozen=True)
class RemoveFinalizer(Action, past="no longer retains the disks of VM"):
    """Removes the pool's finalizer from a VM that is not deleted, so that a later deletion includes the disks."""

    name: str
    uid: str
    resource_version: str
    reason: str

    def after(self, snapshot: PoolSnapshot) -> PoolSnapshot:
        return change_vm(snapshot, self.uid, retains_disks=False)


@dataclass(frozen=True)
class ReturnDisk(Action, past="returned a retained disk to VM"):
    """Sets the VM as the owner of the disk that was retained for it."""

    name: str
    uid: str
    disk: str
    reason: str

    def after(self, snapshot: PoolSnapshot) -> PoolSnapshot:
        left = tuple(disk for disk in snapshot.retained_disks if disk.name != self.disk)
        return replace(snapshot, retained_disks=left)


@dataclass(frozen=True)
class DateDisk(Action, past="began the retention of a disk of VM"):
    """Writes the time of retention on a retained disk without one."""

    name: str
    disk: str
    disk_uid: str
    time: str
    reason: str

    def after(self, snapshot: PoolSnapshot) -> PoolSnapshot:
        dated = (
            replace(disk, retained_at=self.time) if disk.uid == self.disk_uid else disk
            for disk in snapshot.retained_disks
        )
        return replace(snapshot, retained_disks=tuple(dated))


@dataclass(frozen=True)
class DeleteDisks(Action, past="deleted retained disks of VM"):
    """Deletes disks that were retained together, unless something uses one of them."""

    recorded = True
    name: str
    disks: tuple[tuple[str, str], ...]
    """names and UIDs of the PersistentVolumeClaims"""
    retained_by: str
    reason: str

    def after(self, snapshot: PoolSnapshot) -> PoolSnapshot:
        gone = dict(self.disks)
        left = tuple(disk for disk in snapshot.retained_disks if disk.name not in gone)
        return replace(snapshot, retained_disks=left)


@dataclass(frozen=True)
class RetainDisks(Action, past="retained the replaced disks of VM"):
    """Retains disks that an update has replaced, and removes them from the VM's annotation."""

    name: str
    uid: str
    disks: tuple[tuple[str, str], ...]
    """names, with the hashes of the entries that they were created from"""
    retained_by: str
    reason: str

    def after(self, snapshot: PoolSnapshot) -> PoolSnapshot:
        retained = (
            RetainedDisk(snapshot.pool.namespace, name, snapshot.pool.uid, self.name, found, replaced=True)
            for name, found in self.disks
        )
        changed = change_vm(snapshot, self.uid, replaced_disks="")
        return replace(changed, retained_disks=(*snapshot.retained_disks, *retained))
