"""Maps changes of objects to the pools that they concern, and remembers what only the change tells."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from controllers.pool.apply import PoolWriter
from controllers.pool.memory import PoolRecords
from controllers.pool.metrics import PoolMetrics
from controllers.pool.observed_disks import others_with_disks, waiting_for_disks_of
from controllers.pool.outages import open_outages
from controllers.pool.pools import InvalidPool, Pool
from controllers.pool.revisions import Revision
from controllers.pool.sources import vmis_by_pool
from controllers.pool.stores import Stores
from controllers.pool.vm_snapshots import VMRestore, VMSnapshot
from controllers.shared.evictions import EvictionBudget
from controllers.shared.planner import Planner
from controllers.shared.sources import Node
from controllers.shared.vm import VM, RetainedDisk
from controllers.shared.vmi import VMI
from poolhouse.runtime.resource import Key

GATHER_SECONDS = 0.1
"""Delay that joins changes of a pool's VMs into one reconcile. A thousand starting VMs cause thousands of events."""
GATHER_FACTOR = 5.0
"""The delay as a multiple of the time that the last plan took, if that is longer. While its VMs start, a pool of 10,000
would otherwise be planned all the time."""
MAX_ENDED_VMIS = 10_000
"""Limit for a pool that is not reconciled, such as that of a replica that does not lead."""

Enqueue = Callable[[Key, float], None]


@dataclass
class PoolChanges:
    stores: Stores
    records: PoolRecords
    writer: PoolWriter
    metrics: PoolMetrics
    planner: Planner
    clock: Callable[[], float]

    def pool_changed(self, enqueue: Enqueue, old: Pool | InvalidPool | None, new: Pool | InvalidPool | None) -> None:
        self.records.set_changed(old, new)
        known = self.records.memories.get(new.uid) if new is not None else None
        if known is not None and old is not None and new is not None and new.uid == old.uid:
            known.adopt(old.status, new)
        if _disks_of(old) != _disks_of(new):
            for pool in (old, new):
                for key in waiting_for_disks_of(self.stores, pool) if isinstance(pool, Pool) else ():
                    enqueue(key, 0.0)
        for each in (old, new):
            if each is not None:
                enqueue(each.key, 0.0)

    def vm_changed(self, enqueue: Enqueue, old: VM | None, new: VM | None) -> None:
        self.metrics.vm(old, new)
        at_once = self.records.changed(old, new)
        # A list shows another VM in place of one whose deletion the watch has missed.
        if old is not None and (new is None or new.uid != old.uid):
            self._vm_gone(old)
        if new is not None and (memory := self.records.memory_of_owner(new)):
            memory.deleted_vms.created(new.name)
        self._note_membership(old, new)
        views = [vm for vm in (old, new) if vm is not None]
        for key in set[Key]().union(*map(_pools_of, views)):
            enqueue(key, 0 if at_once else self._gather_seconds(key))
        if old is None or new is None or new.disks != old.disks:
            for vm in views:
                disks = [(vm.namespace, disk) for disk in vm.disks]
                for key in set(others_with_disks(self.stores, disks, vm.owner_uid)):
                    enqueue(key, self._gather_seconds(key))

    def _gather_seconds(self, key: Key) -> float:
        return max(GATHER_SECONDS, GATHER_FACTOR * self.planner.seconds(("pool", key)))

    def _vm_gone(self, vm: VM) -> None:
        self.stores.forget(vm.key)
        disks = [(vm.namespace, disk) for disk in vm.disks]
        self.stores.collected.difference_update(disks)
        self.records.gone_disks.note(disks, self.clock())
        if memory := self.records.memory_of_owner(vm):
            memory.deleted_vms.deleted(vm.name, self.clock())
        # The event of its VMI, which a restart has deleted, may come later and then has no VM.
        if (vmi := self.stores.vmis.get(vm.key)) is not None:
            self.records.expectations.deletion_observed(vm.owner_uid, vmi.uid)

    def _note_membership(self, old: VM | None, new: VM | None) -> None:
        if old is None or new is None or old.uid != new.uid or old.owner_uid == new.owner_uid:
            return
        for vm, attached in ((old, False), (new, True)):
            if memory := self.records.memory_of_owner(vm):
                memory.membership_changes[vm.name] = attached, self.clock(), vm.uid

    def vmi_changed(self, enqueue: Enqueue, old: VMI | None, new: VMI | None) -> None:
        key = next(each.key for each in (new, old) if each is not None)
        for labelled in _pools_with_label_of(old, new):
            enqueue(labelled, self._gather_seconds(labelled))
        vm = self.stores.vms.get(key)
        if vm is None or not vm.pool_name:
            return
        if old is not None and (new is None or new.deleting or new.uid != old.uid):
            self.records.expectations.deletion_observed(vm.owner_uid, old.uid)
            self.writer.subresources.forget(old.uid)
        memory = self.records.memory_of_owner(vm)
        if memory and new is not None and new.final and (old is None or (old.uid, old.phase) != (new.uid, new.phase)):
            memory.ended_vmis.append(new)
            del memory.ended_vmis[:-MAX_ENDED_VMIS]
        pool = vm.namespace, vm.pool_name
        self.metrics.vmi(pool, old, new)
        enqueue(pool, self._gather_seconds(pool))

    def node_changed(self, enqueue: Enqueue, old: Node | None, new: Node | None) -> None:
        """Reconciles the pools with VMs on a node that becomes ready or stops being it, or with an outage of it. Those
        whose zones a change of the node's labels concerns are reconciled too."""
        name = next(each.name for each in (new, old) if each is not None)
        for label in _changed_labels(old, new):
            for pool in self.stores.pools.by("topology_key", label):
                enqueue(pool.key, GATHER_SECONDS)
        if (old is None or old.ready) == (new is not None and new.ready):
            return
        on_node = (vmi.key for vmi in self.stores.vmis.all() if vmi.node == name)
        for vm in filter(None, map(self.stores.vms.get, on_node)):
            if vm.pool_name:
                enqueue((vm.namespace, vm.pool_name), 0.0)
        for pool in self.stores.pools.all():
            if name in open_outages(pool.status.decisions):
                enqueue(pool.key, 0.0)

    def cluster_changed(self, enqueue: Enqueue) -> None:
        """Reconciles all pools: the settings decide which changes need no restart."""
        for pool in self.stores.pools.all():
            enqueue(pool.key, GATHER_SECONDS)

    def budget_changed(self, enqueue: Enqueue, old: EvictionBudget | None, new: EvictionBudget | None) -> None:
        """Reconciles the pools whose VMs a PodDisruptionBudget may concern. Its status changes with every Pod."""
        found = next(each for each in (new, old) if each is not None)
        if old == new or found.of_vmi:
            return
        for pool in self.stores.pools.by("namespace", found.namespace):
            enqueue(pool.key, GATHER_SECONDS)

    def snapshots_served(self, enqueue: Enqueue) -> None:
        """Reconciles pools that wait until the cluster serves VirtualMachineSnapshots."""
        for pool in self.stores.pools.all():
            if isinstance(pool, Pool) and pool.takes_snapshots:
                enqueue(pool.key, 0.0)

    def snapshot_changed(self, enqueue: Enqueue, old: VMSnapshot | None, new: VMSnapshot | None) -> None:
        self._created_object_changed(enqueue, old, new)
        if new is not None and new.usable and old is not None and not old.usable:
            pool = self.stores.pools.get((new.namespace, new.pool_name))
            if isinstance(pool, Pool) and pool.uid in self.records.memories:  # this process leads
                self.writer.events.snapshot_taken(pool, new)

    def restore_changed(self, enqueue: Enqueue, old: VMRestore | None, new: VMRestore | None) -> None:
        self._created_object_changed(enqueue, old, new)

    def _created_object_changed(
        self, enqueue: Enqueue, old: VMSnapshot | VMRestore | None, new: VMSnapshot | VMRestore | None
    ) -> None:
        for each in (view for view in (old, new) if view is not None):
            for uid in self._pools_that_wrote(each):
                if new is not None:
                    self.records.expectations.creation_observed(uid, new.name)
                elif old is not None:
                    self.records.expectations.deletion_observed(uid, old.uid)
            if self.stores.pools.get(key := (each.namespace, each.pool_name)) is not None:
                enqueue(key, GATHER_SECONDS)

    def _pools_that_wrote(self, each: VMSnapshot | VMRestore) -> set[str]:
        """UIDs of the pools that may have written the object. A deleted pool is known by its VM, and another pool may
        wait for its writes."""
        pool = self.stores.pools.get((each.namespace, each.pool_name))
        vm = self.stores.vms.get((each.namespace, each.vm_name))
        owner = vm.owner_uid if vm is not None and vm.uid == each.vm_uid else ""
        return {pool.uid, owner} if pool is not None else {owner}

    def revision_changed(self, enqueue: Enqueue, old: Revision | None, new: Revision | None) -> None:
        """Reconciles the pool of a revision that somebody has deleted, or whose owner somebody has removed."""
        if old is not None and (new is None or new.pool_uid != old.pool_uid):
            for pool in self.stores.pools.by("uid", old.pool_uid):
                enqueue(pool.key, GATHER_SECONDS)

    def data_volumes_served(self, enqueue: Enqueue) -> None:
        self._enqueue_waiting(enqueue, self.stores.waiting_for_disks())
        for pool in self.stores.pools.all():
            if isinstance(pool, Pool) and pool.disk_names:
                enqueue(pool.key, GATHER_SECONDS)

    def data_volume_changed(self, enqueue: Enqueue, key: Key, *, freed: bool = False) -> None:
        self._enqueue_waiting(enqueue, self.stores.waiting_for_disk(key))
        # An update may have waited for the name of a disk that another VM had owned.
        for pool in set(others_with_disks(self.stores, [key])) if freed else ():
            enqueue(pool, self._gather_seconds(pool))

    def _enqueue_waiting(self, enqueue: Enqueue, vms: Iterable[VM]) -> None:
        for vm in vms:
            for key in _pools_of(vm):
                enqueue(key, GATHER_SECONDS)

    def data_sources_served(self, enqueue: Enqueue) -> None:
        for pool in self.stores.pools.all():
            if isinstance(pool, Pool) and pool.tracked:
                enqueue(pool.key, GATHER_SECONDS)

    def data_source_changed(self, enqueue: Enqueue, key: Key) -> None:
        for pool in self.stores.pools.by("tracking", key):
            enqueue(pool.key, GATHER_SECONDS)

    def disk_changed(self, enqueue: Enqueue, old: RetainedDisk | None, new: RetainedDisk | None) -> None:
        for each in (old, new):
            if each is not None:
                enqueue(each.pool_key, GATHER_SECONDS)


def _changed_labels(old: Node | None, new: Node | None) -> Iterator[str]:
    before, after = (node.labels if node is not None else {} for node in (old, new))
    yield from (label for label in {**before, **after} if before.get(label, "") != after.get(label, ""))


def _disks_of(pool: Pool | InvalidPool | None) -> tuple[str, frozenset[str]]:
    """What decides whether the pool and another one are in conflict about disks: its UID and the names of its disks."""
    return (pool.uid, pool.disk_names) if isinstance(pool, Pool) else ("", frozenset())


def _pools_of(vm: VM) -> set[Key]:
    """The pool that owns the VM. For a VM with retained disks or with the label of a pool, also the pool in the VM's
    name."""
    owner = {(vm.namespace, vm.pool_name)} if vm.pool_name else set()
    named = vm.retains_disks or vm.has_pool_label
    return owner | {(vm.namespace, vm.base_name)} if named else owner


def _pools_with_label_of(old: VMI | None, new: VMI | None) -> set[Key]:
    """The pools with whose label a VMI comes or goes. If the VMI is not theirs, their budgets leave it out."""
    if old and new and (old.uid, old.deleting, old.labels) == (new.uid, new.deleting, new.labels):
        return set()
    return {key for each in (old, new) if each is not None for key in vmis_by_pool(each)}
