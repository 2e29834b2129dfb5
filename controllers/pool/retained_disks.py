"""Disks that outlive their VM after a scale-in: when they are released and returned."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from controllers.pool.actions import Action, ReleaseDisks, RemoveFinalizer, ReturnDisk
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.vm import VM


def release_disks(snapshot: PoolSnapshot) -> Iterator[Action]:
    for vm in snapshot.awaiting_release:
        yield release(vm, "its disks are retained")


def release(vm: VM, reason: str) -> ReleaseDisks:
    return ReleaseDisks(vm.name, vm.uid, vm.disks, vm.retained_by or vm.owner_uid, reason)


def return_disks(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """A VM that exists again owns its retained disks, so that they are deleted with it."""
    by_name = {vm.name: vm for vm in snapshot.active}
    for disk in snapshot.retained_disks:
        vm = by_name.get(disk.retained_for)
        if vm is not None and disk.name in vm.disks:
            yield ReturnDisk(vm.name, vm.uid, disk.name, f"{vm.name} exists again")


def cancel_deletions(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """A controller that was killed between setting the finalizer and deleting the VM leaves the finalizer behind."""
    if len(snapshot.active) > snapshot.pool.spec.replicas:
        return
    for vm in snapshot.active:
        if vm.retains_disks:
            yield RemoveFinalizer(vm.name, vm.uid, vm.resource_version, "it stays")
