"""What a pool may decide to do. Every action says which VM, and why.

`verb` names an action in events (`SuccessfulCreate`, `FailedCreate`), in plans and in logs; `past` tells of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class SaveRevision:
    """Writes the template down, so that VMs can be told apart by the template that they were made from."""

    name: str
    number: int
    reason: str
    verb: ClassVar[str] = "SaveRevision"
    past: ClassVar[str] = "saved revision"


@dataclass(frozen=True)
class Create:
    name: str
    ordinal: int
    revision: str
    reason: str
    anew: bool = False
    """it comes soon after one of its name: none of that one's disks may be there any more"""
    verb: ClassVar[str] = "Create"
    past: ClassVar[str] = "created VM"


@dataclass(frozen=True)
class Delete:
    """`keep_disks` leaves the VM's DataVolumes and PersistentVolumeClaims for the VM of that name that comes back."""

    name: str
    uid: str
    resource_version: str
    reason: str
    keep_disks: bool = False
    verb: ClassVar[str] = "Delete"
    past: ClassVar[str] = "deleted VM"


@dataclass(frozen=True)
class ReleaseDisks:
    """Ends what a Delete with `keep_disks` began: the disks are nobody's any more, and the VM may go."""

    name: str
    uid: str
    disks: tuple[str, ...]
    kept_by: str
    reason: str
    verb: ClassVar[str] = "ReleaseDisks"
    past: ClassVar[str] = "released the disks of VM"


@dataclass(frozen=True)
class RemoveFinalizer:
    """Takes our finalizer off a VM that is not being deleted after all: whoever deletes it later means all of it."""

    name: str
    uid: str
    resource_version: str
    reason: str
    verb: ClassVar[str] = "RemoveFinalizer"
    past: ClassVar[str] = "no longer keeps the disks of VM"


@dataclass(frozen=True)
class ReturnDisk:
    """Gives a kept disk back to the VM that it was kept for."""

    name: str
    uid: str
    disk: str
    reason: str
    verb: ClassVar[str] = "ReturnDisk"
    past: ClassVar[str] = "gave a kept disk back to VM"


@dataclass(frozen=True)
class Update:
    """Brings what has changed in the template into the VM. It starts to matter for a running guest at its restart."""

    name: str
    uid: str
    ordinal: int
    before: str
    """label of the revision that it has"""
    revision: str
    """label of the revision that it gets"""
    reason: str
    verb: ClassVar[str] = "Update"
    past: ClassVar[str] = "updated VM"


@dataclass(frozen=True)
class Restart:
    name: str
    guest: str
    """UID of the run that ends"""
    asks: bool
    """whether KubeVirt must be asked, as it starts no VM of this run strategy by itself"""
    reason: str
    verb: ClassVar[str] = "Restart"
    past: ClassVar[str] = "restarted VM"


@dataclass(frozen=True)
class Heal:
    """Deletes a VM that fails, with its disks, if it fails still. It is made again under the same name."""

    name: str
    uid: str
    reason: str
    verb: ClassVar[str] = "Heal"
    past: ClassVar[str] = "is replacing VM"


@dataclass(frozen=True)
class PruneRevision:
    name: str
    reason: str
    verb: ClassVar[str] = "PruneRevision"
    past: ClassVar[str] = "forgot revision"


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
