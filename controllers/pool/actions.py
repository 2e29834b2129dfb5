"""Actions of a pool's plan. An action has the name of its object and a reason."""

from dataclasses import dataclass
from typing import ClassVar

from controllers.pool.reasons import PoolReason
from kinds.pool_lifecycle import Transition


class _Action:
    past: ClassVar[str]
    """describes the action in events"""
    verb: ClassVar[str]
    """the name of the action in plans and logs"""
    succeeded: ClassVar[PoolReason]
    """the reasons of the action's events"""
    failed: ClassVar[PoolReason]

    def __init_subclass__(cls, past: str) -> None:
        cls.past, cls.verb = past, cls.__name__
        cls.succeeded, cls.failed = PoolReason.of(f"Successful{cls.verb}"), PoolReason.of(f"Failed{cls.verb}")


@dataclass(frozen=True)
class SaveRevision(_Action, past="saved revision"):
    """Saves the template as a ControllerRevision, which identifies the template of a VM."""

    name: str
    number: int
    reason: str


@dataclass(frozen=True)
class RewriteRevision(_Action, past="rewrote revision"):
    """Replaces a ControllerRevision of an earlier release, which the garbage collector cannot orphan, by one with the
    same content."""

    name: str
    reason: str


@dataclass(frozen=True)
class AdoptRevision(_Action, past="adopted revision"):
    """Makes the pool the owner of its ControllerRevision again, so that the revision is deleted with the pool."""

    name: str
    uid: str
    reason: str


@dataclass(frozen=True)
class Adopt(_Action, past="adopted VM"):
    """Makes the pool the controller of a VM that has an owner reference to it without `controller: true`."""

    name: str
    uid: str
    reason: str


@dataclass(frozen=True)
class Create(_Action, past="created VM"):
    name: str
    ordinal: int
    revision: str
    reason: str
    after_deletion: bool = False
    """A VM of this name was deleted recently. The disks of that VM must be gone before this VM is created."""
    retained_disks: tuple[tuple[str, str], ...] = ()
    """Names in dataVolumeTemplates of disks that were retained for this VM, with the hashes of their entries."""
    disks: tuple[tuple[str, str], ...] = ()
    """Names in dataVolumeTemplates of disks that do not have the usual name, with their names."""


@dataclass(frozen=True)
class Delete(_Action, past="deleted VM"):
    """Deletes a VM. `retain_disks` keeps the DataVolumes and PersistentVolumeClaims for the next VM of this name."""

    name: str
    uid: str
    resource_version: str
    reason: str
    retain_disks: bool = False
    spares_available: bool = False
    """Whether to leave the VM alone if it has become available since the plan, because the plan did not count it
    against maxUnavailable."""


@dataclass(frozen=True)
class ReleaseDisks(_Action, past="released the disks of VM"):
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


@dataclass(frozen=True)
class RemoveFinalizer(_Action, past="no longer retains the disks of VM"):
    """Removes the pool's finalizer from a VM that is not deleted, so that a later deletion includes the disks."""

    name: str
    uid: str
    resource_version: str
    reason: str


@dataclass(frozen=True)
class ReturnDisk(_Action, past="returned a retained disk to VM"):
    """Sets the VM as the owner of the disk that was retained for it."""

    name: str
    uid: str
    disk: str
    reason: str


@dataclass(frozen=True)
class DateDisk(_Action, past="began the retention of a disk of VM"):
    """Writes the time of retention on a disk that an earlier release has retained."""

    name: str
    disk: str
    disk_uid: str
    time: str
    reason: str


@dataclass(frozen=True)
class DeleteDisks(_Action, past="deleted retained disks of VM"):
    """Deletes disks that were retained together, unless something uses one of them."""

    name: str
    disks: tuple[tuple[str, str], ...]
    """names and UIDs of the PersistentVolumeClaims"""
    retained_by: str
    reason: str


@dataclass(frozen=True)
class RetainDisks(_Action, past="retained the replaced disks of VM"):
    """Retains disks that an update has replaced, and removes them from the VM's annotation."""

    name: str
    uid: str
    disks: tuple[tuple[str, str], ...]
    """names, with the hashes of the entries that they were created from"""
    retained_by: str
    reason: str


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
class Update(_Action, past="updated VM"):
    """Applies the template's changes to the VM. A running VMI gets the changes at its next restart."""

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


@dataclass(frozen=True)
class TakeSnapshot(_Action, past="took a snapshot of VM"):
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


@dataclass(frozen=True)
class Restore(_Action, past="began to restore the disks of VM"):
    """Creates a VirtualMachineRestore, for which KubeVirt stops the VM."""

    name: str
    uid: str
    restore: str
    """name of the VirtualMachineRestore"""
    snapshot: str
    request: str
    run_strategy: str
    ran: bool
    reason: str


@dataclass(frozen=True)
class LabelState(_Action, past="labelled the restored TPM and EFI variables of VM"):
    """Gives the restored claim with a VM's TPM and EFI variables the label by which KubeVirt finds it.

    KubeVirt 1.6 to 1.9 deletes the labelled claim, restores it without the label, and then waits for a labelled one."""

    name: str
    claim: str
    restore: str
    """name of the VirtualMachineRestore that has created the claim"""
    reason: str


@dataclass(frozen=True)
class PruneSnapshot(_Action, past="deleted snapshot"):
    name: str
    uid: str
    reason: str


@dataclass(frozen=True)
class PruneRestore(_Action, past="deleted restore"):
    name: str
    uid: str
    reason: str


@dataclass(frozen=True)
class LabelVMI(_Action, past="wrote the template's labels and annotations into the VMI of VM"):
    """Brings labels and annotations of a running VMI up to date that has the template's spec already."""

    name: str
    vmi_uid: str
    ordinal: int
    before: str
    """label of the VMI's revision before the update"""
    reason: str


@dataclass(frozen=True)
class Hold(_Action, past="holds VM"):
    """Takes the VM out of its Services, and marks it for the owners of lifecycle hooks."""

    name: str
    uid: str
    resource_version: str
    transition: Transition
    vmi_uid: str
    since: str
    hooks: tuple[tuple[str, str], ...]
    """names of the hooks, with the times at which they time out"""
    former: tuple[str, ...]
    """hooks of an earlier transition whose annotations are removed"""
    reason: str
    spares_available: bool = False
    """as for a Delete, because a held VM is not available"""


@dataclass(frozen=True)
class EndHold(_Action, past="no longer holds VM"):
    """Removes the marks of a Hold. The VM returns to its Services with the next plan."""

    name: str
    uid: str
    resource_version: str
    hooks: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class SetInService(_Action, past="set the label poolhouse.dev/in-service of VM"):
    """Writes or removes the label of the VMI and of its launcher pods."""

    name: str
    vmi_uid: str
    in_service: bool
    reason: str


@dataclass(frozen=True)
class Restart(_Action, past="restarted VM"):
    name: str
    vmi_uid: str
    by_subresource: bool
    """Whether to call the restart subresource: KubeVirt does not restart such a VM after its VMI is deleted."""
    reason: str
    spares_available: bool = False
    """as for a Delete"""


@dataclass(frozen=True)
class Heal(_Action, past="is replacing VM"):
    """Deletes a VM that still fails, with its disks. Scale-out then creates a VM with the same name."""

    name: str
    uid: str
    reason: str
    failed_starts: bool = True
    """whether KubeVirt counts failed starts of the VM, and clears the count when the VM recovers"""


@dataclass(frozen=True)
class RunJob(_Action, past="created Job"):
    """Creates a Job of an analysis from a CronJob."""

    name: str
    check: str
    cron_job: str
    revision: str
    reason: str


@dataclass(frozen=True)
class PruneRevision(_Action, past="deleted revision"):
    name: str
    reason: str


Action = (
    SaveRevision
    | RewriteRevision
    | AdoptRevision
    | Adopt
    | Create
    | Delete
    | ReleaseDisks
    | RemoveFinalizer
    | ReturnDisk
    | DateDisk
    | DeleteDisks
    | RetainDisks
    | Update
    | LabelVMI
    | Hold
    | EndHold
    | SetInService
    | Restart
    | Heal
    | RunJob
    | PruneRevision
    | TakeSnapshot
    | Restore
    | LabelState
    | PruneSnapshot
    | PruneRestore
)
