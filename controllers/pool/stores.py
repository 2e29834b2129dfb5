"""The stores of the objects that pools need, and what they say together."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from controllers.pool.cluster import Cluster
from controllers.pool.data_volumes import DiskState
from controllers.pool.instancetypes import KnownInstancetypes
from controllers.pool.known_revisions import KnownRevisions
from controllers.pool.migration_queue import LiveUpdates, MigrationQueue
from controllers.pool.pools import InvalidPool, Pool
from controllers.pool.sources import DISK_SOURCE, POOL_SOURCE, VM_SOURCE, VMI_SOURCE, FormerDisks
from controllers.pool.vm_snapshots import SnapshotStores
from controllers.shared.vm import VM, RetainedDisk, join_vmi
from controllers.shared.vmi import VMI
from poolhouse.runtime.resource import Key
from poolhouse.runtime.store import Store


@dataclass(frozen=True)
class Stores:
    """The stores of all watched objects. By default, the stores are empty."""

    pools: Store[Pool | InvalidPool] = field(default_factory=POOL_SOURCE.store)
    vms: Store[VM] = field(default_factory=VM_SOURCE.store)
    revisions: KnownRevisions = field(default_factory=KnownRevisions)
    vmis: Store[VMI] = field(default_factory=VMI_SOURCE.store)
    retained_disks: Store[RetainedDisk] = field(default_factory=DISK_SOURCE.store)
    snapshots: SnapshotStores = field(default_factory=SnapshotStores)
    cluster: Cluster = field(default_factory=Cluster)
    disk_state: Callable[[Key], DiskState | None] = lambda key: None
    """Returns the state of a DataVolume; None if the cluster does not serve DataVolumes."""
    owned_disks: Callable[[Key], Iterable[DiskState]] = lambda disk: ()
    """Returns the DataVolumes and claims with this namespace and name in a template that VMs own or have left."""
    lists_data_volumes: Callable[[], bool] = lambda: True
    """Whether `owned_disks` has all DataVolumes. False until they are listed, also for lack of the right."""
    instancetypes: KnownInstancetypes = field(default_factory=KnownInstancetypes, repr=False, compare=False)
    former_disks: Store[FormerDisks] = field(default_factory=FormerDisks.store, repr=False, compare=False)
    collected: set[Key] = field(default_factory=set, compare=False)
    """Disks that have their data, and no DataVolume any more."""
    _joined: dict[Key, tuple[VM, VMI, VM]] = field(default_factory=dict, repr=False, compare=False)
    _live_updates: LiveUpdates = field(default_factory=LiveUpdates, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._live_updates.follow(self.vms, self.vmis)

    def note_former_disks(self, pool: Key, disks: frozenset[Key]) -> None:
        """Stores the disk names that only the former template of the pool has. An empty set removes the entry."""
        if disks:
            self.former_disks.put(pool, FormerDisks(pool, disks))
        else:
            self.former_disks.drop(pool)

    def owner_of(self, vm: VM) -> Pool | InvalidPool | None:
        pool = self.pools.get((vm.namespace, vm.pool_name)) if vm.pool_name else None
        return pool if pool is not None and pool.uid == vm.owner_uid else None

    def vms_of(self, pool: Pool | InvalidPool) -> Iterator[VM]:
        for vm in self.vms.by("owner", (pool.namespace, pool.uid)):
            yield self._with_vmi(vm)

    def _with_vmi(self, vm: VM) -> VM:
        vmi = self.vmis.get(vm.key)
        if vmi is None or vmi.owner_uid != vm.uid:
            self._joined.pop(vm.key, None)
            return vm
        # A cached join is reused for unchanged VMs: 10,000 joins take a tenth of a second.
        known = self._joined.get(vm.key)
        if known is not None and known[0] is vm and known[1] is vmi:
            return known[2]
        joined = join_vmi(vm, vmi)
        self._joined[vm.key] = vm, vmi, joined
        return joined

    def forget(self, key: Key) -> None:
        self._joined.pop(key, None)
        self.cluster.forget(key)

    def queue(self) -> MigrationQueue:
        return self._live_updates.queue

    def waiting_for_disks(self, pool_key: Key | None = None) -> list[VM]:
        """VMs whose disks were replaced, while the old disks are not retained yet, and VMs that a DataVolume stops: of
        the pool, or all."""
        if pool_key is not None:
            return self.vms.by("pool_if_waiting", pool_key)
        return self.vms.by("waiting_for_disks", True)

    def waiting_for_disk(self, disk: Key) -> list[VM]:
        return self.vms.by("disk_if_waiting", disk)

    def without_data_volume(self, pool_key: Key | None = None) -> list[Key]:
        """Disks of the pool, or of all pools, that replace others and whose DataVolume is missing."""
        vms = (vm for vm in self.waiting_for_disks(pool_key) if vm.replaced_disks and vm.pool_name)
        keys = ((vm.namespace, disk) for vm in vms for disk in vm.disks)
        return [key for key in keys if key not in self.collected and self._is_unseen(key)]

    def _is_unseen(self, disk: Key) -> bool:
        state = self.disk_state(disk)
        return state is not None and state.unseen

    def foreign_vmis(self, pool: Pool) -> tuple[str, ...]:
        """UIDs of VMIs that have the label of the pool's VMIs, and are none of them: of VMs that have left the pool, of
        copies of its VMs, and of no VM."""
        return tuple(sorted(vmi.uid for vmi in self.vmis.by("pool", pool.key) if self._is_foreign(vmi, pool)))

    def _is_foreign(self, vmi: VMI, pool: Pool) -> bool:
        vm = self.vms.get(vmi.key)
        if vm is None or vm.uid != vmi.owner_uid:
            return not (vmi.deleting or vmi.final)  # The VM of such a VMI may be gone a moment earlier.
        return vm.owner_uid != pool.uid

    def awaiting_release(self, key: Key) -> tuple[VM, ...]:
        """VMs with names of this pool that are being deleted and wait for their disks.

        The index finds the VMs by name, because the pool may be deleted or the VM detached. Without a release, such a
        VM would exist forever."""
        return tuple(vm for vm in self.vms.by("base_name", key) if vm.retains_disks and vm.deleting)
