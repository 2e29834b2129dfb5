"""Actions of a pool's plan. Each names its object and the reason for it."""

from dataclasses import dataclass
from typing import ClassVar

from controllers.pool.reasons import PoolReason


class _Action:
    past: ClassVar[str]
    """describes the action in events"""
    verb: ClassVar[str]
    """identifies the action in plans and logs"""
    succeeded: ClassVar[PoolReason]
    """reasons of its events"""
    failed: ClassVar[PoolReason]

    def __init_subclass__(cls, past: str) -> None:
        cls.past, cls.verb = past, cls.__name__
        cls.succeeded, cls.failed = PoolReason.of(f"Successful{cls.verb}"), PoolReason.of(f"Failed{cls.verb}")


@dataclass(frozen=True)
class SaveRevision(_Action, past="saved revision"):
    """Saves the template as a ControllerRevision, which identifies the template that a VM was made from."""

    name: str
    number: int
    reason: str


@dataclass(frozen=True)
class Create(_Action, past="created VM"):
    name: str
    ordinal: int
    revision: str
    reason: str
    after_deletion: bool = False
    """A VM of this name was deleted a moment ago: its disks must be gone before this one is created."""


@dataclass(frozen=True)
class Delete(_Action, past="deleted VM"):
    """`retain_disks` keeps the DataVolumes and PersistentVolumeClaims for the next VM of this name."""

    name: str
    uid: str
    resource_version: str
    reason: str
    retain_disks: bool = False


@dataclass(frozen=True)
class ReleaseDisks(_Action, past="released the disks of VM"):
    """Finishes a Delete with `retain_disks`: removes the disks' owner, then the VM's finalizer."""

    name: str
    uid: str
    disks: tuple[str, ...]
    retained_by: str
    reason: str


@dataclass(frozen=True)
class RemoveFinalizer(_Action, past="no longer retains the disks of VM"):
    """Removes our finalizer from a VM that stays after all. A later deletion by others then includes the disks."""

    name: str
    uid: str
    resource_version: str
    reason: str


@dataclass(frozen=True)
class ReturnDisk(_Action, past="returned a retained disk to VM"):
    """Makes the VM the owner of the disk that was retained for it."""

    name: str
    uid: str
    disk: str
    reason: str


@dataclass(frozen=True)
class Update(_Action, past="updated VM"):
    """Applies the template's changes to the VM. A running VMI gets them at its next restart."""

    name: str
    uid: str
    ordinal: int
    before: str
    """label of the revision that the VM has"""
    revision: str
    """label of the revision that the VM gets"""
    reason: str


@dataclass(frozen=True)
class Restart(_Action, past="restarted VM"):
    name: str
    vmi_uid: str
    by_subresource: bool
    """KubeVirt does not restart a VM with this run strategy when its VMI is deleted, so the API is asked to."""
    reason: str


@dataclass(frozen=True)
class Heal(_Action, past="is replacing VM"):
    """Deletes a VM that still fails, with its disks. Scale-out then creates it again under the same name."""

    name: str
    uid: str
    reason: str


@dataclass(frozen=True)
class PruneRevision(_Action, past="deleted revision"):
    name: str
    reason: str


Action = (
    SaveRevision
    | Create
    | Delete
    | ReleaseDisks
    | RemoveFinalizer
    | ReturnDisk
    | Update
    | Restart
    | Heal
    | PruneRevision
)
