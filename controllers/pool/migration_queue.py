"""The live updates of all pools, which share KubeVirt's queue of migrations.

KubeVirt migrates a few VMs of a cluster at once, and begins the next ones in any order (its workload-updater.go).
Migrations for other reasons are left out: on a cluster that always migrates some VM, no VM would ever be late.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass

from controllers.shared.vm import VM
from controllers.shared.vmi import VMI
from poolhouse.runtime.resource import Key
from poolhouse.runtime.store import Store


@dataclass(frozen=True, slots=True)
class MigrationQueue:
    moving: bool = False
    """whether KubeVirt migrates a VM for a live update"""
    moved_at: str = ""
    """when the last of these migrations ended that has succeeded; empty if unknown"""


def may_wait(vm: VM) -> bool:
    """Whether the VM may wait for its migration. False for most VMs, so that few snapshots need the queue."""
    return bool(vm.live_update_since) and vm.vmi is not None and not vm.vmi.guest.has(vm.live)


class LiveUpdates:
    """Keeps the queue up to date at each change of a VM or VMI, so that no pool looks at the VMs of all others."""

    def __init__(self) -> None:
        self._stores: tuple[Store[VM], Store[VMI]] | None = None
        self._moving = set[Key]()
        self._moved = dict[Key, str]()
        """when the migrations ended"""
        self._times = list[tuple[str, Key]]()
        """the same, sorted"""

    def follow(self, vms: Store[VM], vmis: Store[VMI]) -> None:
        """Begins with the views of the stores. A second call does nothing."""
        if self._stores is not None:
            return
        self._stores = vms, vmis
        for vm in vms.all():
            self._update(vm.key)
        vms.follow(self._update)
        vmis.follow(self._update)

    @property
    def queue(self) -> MigrationQueue:
        return MigrationQueue(bool(self._moving), self._times[-1][0] if self._times else "")

    def _update(self, key: Key) -> None:
        assert self._stores is not None
        vms, vmis = self._stores
        self._moving.discard(key)
        if key in self._moved:
            del self._times[bisect_left(self._times, (self._moved.pop(key), key))]
        vm, vmi = vms.get(key), vmis.get(key)
        if vm is None or not vm.live_update_since or vmi is None or vmi.owner_uid != vm.uid:
            return
        if vmi.migrating and not vmi.guest.has(vm.live):
            self._moving.add(key)
        if vmi.guest.moved_at >= vm.live_update_since:
            self._moved[key] = vmi.guest.moved_at
            insort(self._times, (vmi.guest.moved_at, key))
