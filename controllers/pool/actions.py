"""Actions of a pool's plan. Each names its object and the reason for it.

`verb` identifies an action in plans and logs, `past` describes it in events, and `succeeded` and `failed` are the
reasons of its events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controllers.pool.reasons import PoolReason


@dataclass(frozen=True)
class SaveRevision:
    """Saves the template as a ControllerRevision, which identifies the template that a VM was made from."""

    name: str
    number: int
    reason: str
    verb: ClassVar[str] = "SaveRevision"
    past: ClassVar[str] = "saved revision"
    succeeded: ClassVar[PoolReason] = PoolReason.SUCCESSFUL_SAVE_REVISION
    failed: ClassVar[PoolReason] = PoolReason.FAILED_SAVE_REVISION


@dataclass(frozen=True)
class Create:
    name: str
    ordinal: int
    revision: str
    reason: str
    after_deletion: bool = False
    """A VM of this name was deleted a moment ago: its disks must be gone before this one is created."""
    verb: ClassVar[str] = "Create"
    past: ClassVar[str] = "created VM"
    succeeded: ClassVar[PoolReason] = PoolReason.SUCCESSFUL_CREATE
    failed: ClassVar[PoolReason] = PoolReason.FAILED_CREATE


@dataclass(frozen=True)
class Delete:
    """`retain_disks` keeps the DataVolumes and PersistentVolumeClaims for the next VM of this name."""

    name: str
    uid: str
    resource_version: str
    reason: str
    retain_disks: bool = False
    verb: ClassVar[str] = "Delete"
    past: ClassVar[str] = "deleted VM"
    succeeded: ClassVar[PoolReason] = PoolReason.SUCCESSFUL_DELETE
    failed: ClassVar[PoolReason] = PoolReason.FAILED_DELETE


@dataclass(frozen=True)
class ReleaseDisks:
    """Finishes a Delete with `retain_disks`: removes the disks' owner, then the VM's finalizer."""

    name: str
    uid: str
    disks: tuple[str, ...]
    retained_by: str
    reason: str
    verb: ClassVar[str] = "ReleaseDisks"
    past: ClassVar[str] = "released the disks of VM"
    succeeded: ClassVar[PoolReason] = PoolReason.SUCCESSFUL_RELEASE_DISKS
    failed: ClassVar[PoolReason] = PoolReason.FAILED_RELEASE_DISKS


@dataclass(frozen=True)
class RemoveFinalizer:
    """Removes our finalizer from a VM that stays after all. A later deletion by others then includes the disks."""

    name: str
    uid: str
    resource_version: str
    reason: str
    verb: ClassVar[str] = "RemoveFinalizer"
    past: ClassVar[str] = "no longer retains the disks of VM"
    succeeded: ClassVar[PoolReason] = PoolReason.SUCCESSFUL_REMOVE_FINALIZER
    failed: ClassVar[PoolReason] = PoolReason.FAILED_REMOVE_FINALIZER


@dataclass(frozen=True)
class ReturnDisk:
    """Makes the VM the owner of the disk that was retained for it."""

    name: str
    uid: str
    disk: str
    reason: str
    verb: ClassVar[str] = "ReturnDisk"
    past: ClassVar[str] = "returned a retained disk to VM"
    succeeded: ClassVar[PoolReason] = PoolReason.SUCCESSFUL_RETURN_DISK
    failed: ClassVar[PoolReason] = PoolReason.FAILED_RETURN_DISK


@dataclass(frozen=True)
class Update:
    """Applies the template's changes to the VM. A running VMI gets them at its next restart."""

    name: str
    uid: str
    ordinal: int
    before: str
    """label of the revision that the VM has"""
    revision: str
    """label of the revision that the VM gets"""
    reason: str
    verb: ClassVar[str] = "Update"
    past: ClassVar[str] = "updated VM"
    succeeded: ClassVar[PoolReason] = PoolReason.SUCCESSFUL_UPDATE
    failed: ClassVar[PoolReason] = PoolReason.FAILED_UPDATE


@dataclass(frozen=True)
class Restart:
    name: str
    vmi_uid: str
    by_subresource: bool
    """KubeVirt does not restart a VM with this run strategy when its VMI is deleted, so the API is asked to."""
    reason: str
    verb: ClassVar[str] = "Restart"
    past: ClassVar[str] = "restarted VM"
    succeeded: ClassVar[PoolReason] = PoolReason.SUCCESSFUL_RESTART
    failed: ClassVar[PoolReason] = PoolReason.FAILED_RESTART


@dataclass(frozen=True)
class Heal:
    """Deletes a VM that still fails, with its disks. Scale-out then creates it again under the same name."""

    name: str
    uid: str
    reason: str
    verb: ClassVar[str] = "Heal"
    past: ClassVar[str] = "is replacing VM"
    succeeded: ClassVar[PoolReason] = PoolReason.SUCCESSFUL_HEAL
    failed: ClassVar[PoolReason] = PoolReason.FAILED_HEAL


@dataclass(frozen=True)
class PruneRevision:
    name: str
    reason: str
    verb: ClassVar[str] = "PruneRevision"
    past: ClassVar[str] = "deleted revision"
    succeeded: ClassVar[PoolReason] = PoolReason.SUCCESSFUL_PRUNE_REVISION
    failed: ClassVar[PoolReason] = PoolReason.FAILED_PRUNE_REVISION


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
