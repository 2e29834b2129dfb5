"""What a pool may decide to do. Every action says which VM, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class SaveRevision:
    """Writes the template down, so that VMs can be told apart by the template that they were made from."""

    revision: str
    number: int
    reason: str
    verb: ClassVar[str] = "SaveRevision"


@dataclass(frozen=True)
class Create:
    ordinal: int
    name: str
    revision: str
    reason: str
    verb: ClassVar[str] = "Create"


@dataclass(frozen=True)
class Delete:
    """`keep_disks` leaves the VM's DataVolumes and PersistentVolumeClaims for the VM of that name that comes back."""

    name: str
    uid: str
    resource_version: str
    reason: str
    keep_disks: bool = False
    verb: ClassVar[str] = "Delete"


@dataclass(frozen=True)
class ReleaseDisks:
    """Ends what a Delete with `keep_disks` began: the disks are nobody's any more, and the VM may go."""

    name: str
    uid: str
    disks: tuple[str, ...]
    owner: str
    reason: str
    verb: ClassVar[str] = "ReleaseDisks"


Action = SaveRevision | Create | Delete | ReleaseDisks
