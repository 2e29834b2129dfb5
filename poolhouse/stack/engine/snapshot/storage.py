"""The interface of the storage that copies disks for snapshots and restores."""

from collections.abc import Collection, Mapping
from typing import Protocol

from poolhouse.stack.engine.disk_objects import PVC
from poolhouse.stack.engine.fault_injection import Faults
from poolhouse.stack.engine.objects import VMI


class SnapshotRefused(Exception):
    """The disks cannot be copied now. The message gives the reason."""


class SnapshotStorage(Protocol):
    async def take(self, disks: Mapping[str, PVC], vmi: VMI | None, faults: Faults) -> None:
        """Copies all disks as they are at one time. The keys are the names of the copies. `vmi` uses the disks; None if
        the VM is halted. Raises `SnapshotRefused`."""

    async def restore(self, copy: str, pvc: PVC) -> None:
        """Fills the disk of a new PVC from a copy. Raises `SnapshotRefused`."""

    async def delete(self, copies: Collection[str]) -> None: ...

    async def delete_others(self, copies: Collection[str]) -> None:
        """Deletes copies that no snapshot has any more."""
