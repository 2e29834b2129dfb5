"""Actions on disks that are retained or replaced, and on the finalizer of VMs whose disks are retained."""

from dataclasses import dataclass, replace

from controllers.pool.actions.base import Action, SnapshotEditor


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

    def change(self, editor: SnapshotEditor) -> None:
        editor.remove_vm(self.name, self.uid)


@dataclass(frozen=True)
class RemoveFinalizer(Action, past="no longer retains the disks of VM"):
    """Removes the pool's finalizer from a VM that is not deleted, so that a later deletion includes the disks."""

    name: str
    uid: str
    resource_version: str
    reason: str

    def change(self, editor: SnapshotEditor) -> None:
        editor.change_vm(self.uid, retains_disks=False)


@dataclass(frozen=True)
class ReturnDisk(Action, past="returned a retained disk to VM"):
    """Sets the VM as the owner of the disk that was retained for it."""

    name: str
    uid: str
    disk: str
    reason: str

    def change(self, editor: SnapshotEditor) -> None:
        editor.retained_disks.pop(self.disk, None)


@dataclass(frozen=True)
class DateDisk(Action, past="began the retention of a disk of VM"):
    """Writes the time of retention on a retained disk without one."""

    name: str
    disk: str
    disk_uid: str
    time: str
    reason: str

    def change(self, editor: SnapshotEditor) -> None:
        if (disk := editor.retained_disks.get(self.disk)) is not None:
            editor.retained_disks[self.disk] = replace(disk, retained_at=self.time)


@dataclass(frozen=True)
class DeleteDisks(Action, past="deleted retained disks of VM"):
    """Deletes disks that were retained together, unless something uses one of them."""

    recorded = True
    name: str
    disks: tuple[tuple[str, str], ...]
    """names and UIDs of the PersistentVolumeClaims"""
    retained_by: str
    reason: str

    def change(self, editor: SnapshotEditor) -> None:
        for name, _ in self.disks:
            editor.retained_disks.pop(name, None)


@dataclass(frozen=True)
class RetainDisks(Action, past="retained the replaced disks of VM"):
    """Retains disks that an update has replaced, and removes them from the VM's annotation."""

    name: str
    uid: str
    disks: tuple[tuple[str, str], ...]
    """names, with the hashes of the entries that they were created from"""
    retained_by: str
    reason: str

    def change(self, editor: SnapshotEditor) -> None:
        editor.change_vm(self.uid, replaced_disks="")
        for name, template_hash in self.disks:
            editor.retain(name, self.name, template_hash, replaced=True)
