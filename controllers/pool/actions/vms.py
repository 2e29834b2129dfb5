"""Actions on the VMs of a pool."""

from dataclasses import dataclass, replace
from datetime import datetime

from controllers.pool import template
from controllers.pool.actions.base import Action, SnapshotEditor
from controllers.pool.actions.hooks import stopping
from controllers.shared.names import has_revision
from controllers.shared.vm import VM, parse_vm
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kubevirt.live_updates import merged
from poolhouse.runtime.batch_writer import ExpectedEvents


@dataclass(frozen=True)
class Adopt(Action, past="adopted VM"):
    """Makes the pool the controller of a VM that has an owner reference to it without `controller: true`."""

    recorded = True
    name: str
    uid: str
    reason: str

    def change(self, editor: SnapshotEditor) -> None:
        editor.change_vm(self.uid, adopted=True)


@dataclass(frozen=True)
class Create(Action, past="created VM", creates="name"):
    recorded = True
    names_disks = True
    name: str
    ordinal: int
    revision: str
    reason: str
    after_deletion: bool = False
    """Disks of these names may exist: a VM of this name was deleted recently, or DataVolumes are not listed. The disks
    of others must be gone before this VM is created."""
    retained_disks: tuple[tuple[str, str], ...] = ()
    """Names in dataVolumeTemplates of disks that were retained for this VM, with the hashes of their entries."""
    disks: tuple[tuple[str, str], ...] = ()
    """Names in dataVolumeTemplates of disks that do not have the usual name, with their names."""
    machine_type: str = ""
    """The machine type that stands for the alias in the revision's template; empty if admission is to choose it."""

    def change(self, editor: SnapshotEditor) -> None:
        snapshot = editor.snapshot
        revision = snapshot.revisions_by_label.get(self.revision.rpartition("-")[2], snapshot.revision)
        disks = self.retained_disks, dict(self.disks)
        document = template.build_vm(snapshot.pool, self.ordinal, revision, *disks, self.machine_type)
        document["metadata"]["uid"] = f"{self.name} (simulated)"
        editor.start(parse_vm(document))
        editor.taken_ordinals.add(self.ordinal)


@dataclass(frozen=True)
class Delete(Action, past="deleted VM", deletes="uid"):
    """Deletes a VM. `retain_disks` keeps the DataVolumes and PersistentVolumeClaims for the next VM of this name."""

    recorded = True
    name: str
    uid: str
    resource_version: str
    reason: str
    retain_disks: bool = False
    spares_available: bool = False
    """Whether to leave the VM alone if it has become available since the plan, because the plan did not count it
    against maxUnavailable."""

    def begun(self, vm: VM, now: datetime) -> VM:
        return replace(vm, deleted_at=now.isoformat())

    def change(self, editor: SnapshotEditor) -> None:
        vm = editor.vms.get(self.uid)
        editor.remove_vm(self.name, self.uid)
        for disk in vm.disks if vm is not None and self.retain_disks else ():
            editor.retain(disk, self.name)


@dataclass(frozen=True)
class Heal(Action, past="is replacing VM", deletes="uid"):
    """Deletes a VM that still fails, with its disks. Scale-out then creates a VM with the same name."""

    recorded = True
    name: str
    uid: str
    reason: str
    failed_starts: bool = True
    """whether KubeVirt counts failed starts of the VM, and clears the count when the VM recovers"""

    def begun(self, vm: VM, now: datetime) -> VM:
        return replace(vm, deleted_at=now.isoformat())

    def change(self, editor: SnapshotEditor) -> None:
        editor.remove_vm(self.name, self.uid)


@dataclass(frozen=True)
class DiskReplacement:
    """A disk of a VM that takes the place of another one."""

    entry: str
    """name in the pool's dataVolumeTemplates"""
    old: str
    new: str
    existing: bool = False
    """whether the new disk exists: it is the one that the VM had with this template before"""

    def __str__(self) -> str:
        new = "its former disk" if self.existing else "the new disk"
        return f"disk {self.old} is retained, and {new} {self.new} takes its place"


@dataclass(frozen=True)
class Update(Action, past="updated VM"):
    """Applies the template's changes to the VM. A running VMI gets the changes at its next restart."""

    recorded = True
    names_disks = True
    name: str
    uid: str
    ordinal: int
    before: str
    """label of the VM's revision before the update"""
    revision: str
    """label of the VM's revision after the update"""
    reason: str
    disk_templates: str = ""
    """the VM's annotation after the update"""
    replacements: tuple[DiskReplacement, ...] = ()
    replaced_disks: str = ""
    """the annotation poolhouse.dev/replaced-disks after the update, if it replaces disks"""
    counts: bool = False
    """whether the VM's number of updates with a snapshot grows"""
    restored: str = ""
    """the request of a restore that this update completes"""
    run_strategy: str = ""
    """the run strategy that the VM gets again after a restore"""
    start: bool = False
    """whether the VM ran before the restore"""
    halts: bool = False
    """whether the update stops the guest"""
    live_since: str = ""
    """the time of the update, if KubeVirt changes the running guest by it"""

    def begun(self, vm: VM, now: datetime) -> VM:
        return stopping(vm, now)

    def change(self, editor: SnapshotEditor) -> None:
        vm = editor.vms.get(self.uid)
        if vm is None:
            return
        facts: Json = {"revision": self.revision, "disk_templates": self.disk_templates}
        facts["updates"] = vm.updates + (1 if self.counts else 0)
        if self.restored:
            facts["restored"] = self.restored
        if self.replacements:
            new = {each.old: each.new for each in self.replacements}
            disks = tuple(new.get(disk, disk) for disk in vm.disks)
            facts |= {"disks": disks, "replaced_disks": self.replaced_disks}
        if self.halts:
            facts |= {"run_strategy": "Halted", "should_run": False, "ready": False, "vmi": None, "vmi_exists": False}
        has = editor.snapshot.revisions_by_label.get(self.revision)
        facts["live"] = live = merged(vm.live, has.live) if has is not None else vm.live
        if self.live_since and vm.vmi is not None:
            guest = replace(vm.vmi.guest, spec=live, shown=live, current_memory=None)
            facts["vmi"] = replace(vm.vmi, guest=guest, labels={**vm.vmi.labels, meta.REVISION: self.revision})
        editor.change_vm(self.uid, **facts)
        if self.start:
            editor.start(editor.vms[self.uid])

    def expected_events(self) -> ExpectedEvents:
        return ExpectedEvents(creates=(has_revision(self.name, self.revision),))


@dataclass(frozen=True)
class Restart(Action, past="restarted VM", deletes="vmi_uid"):
    recorded = True
    name: str
    vmi_uid: str
    by_subresource: bool
    """Whether to call the restart subresource: KubeVirt does not restart such a VM after its VMI is deleted."""
    reason: str
    spares_available: bool = False
    """as for a Delete"""

    def begun(self, vm: VM, now: datetime) -> VM:
        return stopping(vm, now)

    def change(self, editor: SnapshotEditor) -> None:
        if (vm := editor.vm_of(self.vmi_uid)) is not None:
            editor.start(vm)
