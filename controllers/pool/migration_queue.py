"""The live updates of all pools, which share KubeVirt's queue of migrations.

KubeVirt migrates a few VMs of a cluster at once, and begins the next ones in any order (its workload-updater.go).
Migrations for other reasons are left out: on a cluster that always migrates some VM, no VM would ever be late.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from controllers.shared.vm import VM


@dataclass(frozen=True, slots=True)
class MigrationQueue:
    moving: bool = False
    """whether KubeVirt migrates a VM for a live update"""
    moved_at: str = ""
    """when the last of these migrations ended that has succeeded; empty if unknown"""


def by_live_update(vm: VM) -> Iterator[Hashable]:
    """Index of the VMs whose last change of the template was one that KubeVirt applies to running VMs."""
    if vm.live_update_since:
        yield True


def may_wait(vm: VM) -> bool:
    """Whether the VM may wait for its migration. False for most VMs, so that few snapshots need the queue."""
    return bool(vm.live_update_since) and vm.vmi is not None and not vm.vmi.guest.has(vm.live)


def queue_of(updated: Iterable[VM]) -> MigrationQueue:
    """The queue, from the VMs of `by_live_update` with their VMIs."""
    moving, moved_at = False, ""
    for vm in updated:
        if vm.vmi is not None:
            moving = moving or (vm.vmi.migrating and not vm.vmi.guest.has(vm.live))
            if vm.vmi.guest.moved_at >= vm.live_update_since:
                moved_at = max(moved_at, vm.vmi.guest.moved_at)
    return MigrationQueue(moving, moved_at)
