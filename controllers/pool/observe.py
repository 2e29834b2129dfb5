"""Reads the stores of pools into the snapshot of one pool."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from controllers.pool.contents import Contents
from controllers.pool.data_volumes import DiskState
from controllers.pool.images import refused_references, sources_of, tracked
from controllers.pool.instancetypes import KnownInstancetypes
from controllers.pool.migration_queue import NO_QUEUE, MigrationQueue, by_live_update, may_wait, queue_of
from controllers.pool.outages import open_outages
from controllers.pool.reasons import PoolReason
from controllers.pool.revisions import Revision, content, parse_revision, saved_or_new, without_owner
from controllers.pool.snapshot import InvalidPool, Pool, PoolSnapshot, parse_pool, within_limit
from controllers.pool.vm_snapshots import ListedStore, OptionalStore, VMRestore, VMSnapshot, with_restores
from controllers.sets.write_batches import Failure
from controllers.shared.data_sources import DataSource
from controllers.shared.evictions import EvictionBudget
from controllers.shared.names import parent_and_ordinal
from controllers.shared.reference_rights import ReferenceRights
from controllers.shared.replica_limits import unknown_limit
from controllers.shared.sources import NODE_SOURCE, Node, Source
from controllers.shared.vm import (
    DATA_VOLUME_ERROR,
    VM,
    RetainedDisk,
    disk_names,
    join_vmi,
    parse_retained_disk,
    parse_vm,
)
from controllers.shared.vmi import VMI, parse_vmi
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.pool import POOL
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.runtime.resource import CONTROLLER_REVISIONS, PVCS, VMIS, VMS, Key, Resource
from poolhouse.runtime.store import Store

V = TypeVar("V")

WAITS_FOR_DISKS = frozenset({DATA_VOLUME_ERROR, "Provisioning", "WaitingForVolumeBinding"})
"""printable statuses of a VM that cannot start because of a DataVolume"""
READY_PHASES = ("Succeeded", "WaitForFirstConsumer", "PendingPopulation")
"""Phases of a DataVolume with which KubeVirt starts a VM."""
CREATE_AT_ONCE = "kubevirt.io/immediate-data-volume-creation"
"""KubeVirt's annotation of VMs whose DataVolumes are created at once (the default) or at the first start."""

SCHEDULABLE = "kubevirt.io/schedulable"
"""KubeVirt's label of nodes that can run VMs"""

POOLS = Resource.of(POOL)


def pools_by_disk(pool: Pool | InvalidPool) -> Iterator[Hashable]:
    """Index of pools by the disk names in their template: (namespace, name)."""
    if isinstance(pool, Pool):
        for disk in disk_names(pool.spec.template):
            yield pool.namespace, disk


def pools_by_tracking(pool: Pool | InvalidPool) -> Iterator[Hashable]:
    """Index of the pools that track DataSources."""
    if isinstance(pool, Pool) and tracked(pool.spec, pool.namespace):
        yield True


def by_owner(vm: VM) -> Iterator[Hashable]:
    if vm.pool_name:
        yield vm.owner_uid


def has_pool_label(vm: VM) -> bool:
    """Whether the VM has the label of the pool in its name, as the VMs of that pool have."""
    return vm.labels.get(meta.POOL) == vm.base_name


def is_unowned(vm: VM) -> bool:
    """Whether the VM looks like one of a pool, and is not. After a restore from a backup, VMs have no owners."""
    return not vm.owner_uid and not vm.deleting and has_pool_label(vm)


def by_base_name(vm: VM) -> Iterator[Hashable]:
    """Index of VMs by the pool name in their own name, for any owner: (namespace, `web`) for `web-3`."""
    if vm.ordinal is not None:
        yield vm.namespace, vm.base_name


def by_disk(vm: VM) -> Iterator[Hashable]:
    """Index of VMs by the template names of their disks: (namespace, `root`) for `root-3`."""
    for name, ordinal in map(parent_and_ordinal, vm.disks):
        if ordinal is not None:
            yield vm.namespace, name


def by_waiting_for_disks(vm: VM) -> Iterator[Hashable]:
    if waits_for_disks(vm):
        yield True


def vmis_by_pool(vmi: VMI) -> Iterator[Key]:
    """Index of VMIs by the pool in their label: (namespace, name). A copy of a VM has this label, too."""
    if name := vmi.labels.get(meta.POOL):
        yield vmi.namespace, name


def revisions_by_pool(revision: Revision) -> Iterator[Hashable]:
    """By the UID of the pool, and those without an owner by the empty text."""
    yield revision.pool_uid


POOL_SOURCE: Source[Pool | InvalidPool] = Source(
    POOLS, parse_pool, {"disk": pools_by_disk, "tracking": pools_by_tracking}
)
VM_SOURCE = Source(
    VMS,
    parse_vm,
    {
        "owner": by_owner,
        "base_name": by_base_name,
        "disk": by_disk,
        "waiting_for_disks": by_waiting_for_disks,
        "live_update": by_live_update,
    },
)
REVISION_SOURCE = Source(CONTROLLER_REVISIONS, parse_revision, {"owner": revisions_by_pool})
VMI_SOURCE: Source[VMI] = Source(VMIS, parse_vmi, {"pool": vmis_by_pool})
DISK_SOURCE = Source(
    PVCS, parse_retained_disk, {"namespace": lambda disk: (disk.namespace,)}, label_selector=meta.KEPT_BY
)


@dataclass(frozen=True)
class Stores:
    """The stores of all watched objects. By default, the stores are empty."""

    pools: Store[Pool | InvalidPool] = field(default_factory=POOL_SOURCE.store)
    vms: Store[VM] = field(default_factory=VM_SOURCE.store)
    revisions: Store[Revision] = field(default_factory=REVISION_SOURCE.store)
    vmis: Store[VMI] = field(default_factory=VMI_SOURCE.store)
    retained_disks: Store[RetainedDisk] = field(default_factory=DISK_SOURCE.store)
    vm_snapshots: OptionalStore[VMSnapshot] = field(default_factory=ListedStore)
    restores: OptionalStore[VMRestore] = field(default_factory=ListedStore)
    nodes: Store[Node] = field(default_factory=NODE_SOURCE.store)
    disk_state: Callable[[Key], DiskState | None] = lambda key: None
    """Returns the state of a DataVolume; None if the cluster does not serve DataVolumes."""
    left_disks: Callable[[str], Iterable[DiskState]] = lambda namespace: ()
    """Returns the DataVolumes of a namespace that deleted VMs have left."""
    data_source: Callable[[Key], DataSource | None] = lambda key: None
    rights: ReferenceRights | None = None
    """The rights of the authors of references. None for a user, who may not ask about others."""
    cluster: Callable[[], ClusterSettings | None] = lambda: None
    """Returns the settings of the KubeVirt object; None if they are unknown."""
    budgets: OptionalStore[EvictionBudget] = field(default_factory=ListedStore)
    replica_limit: Callable[[str], int | None] = unknown_limit
    """Returns the replica limit of a namespace; None if it is unknown."""
    collected: set[Key] = field(default_factory=set, compare=False)
    """Disks that have their data, and no DataVolume any more."""
    _last_nodes: dict[Key, str] = field(default_factory=dict, repr=False, compare=False)
    """The last node of each VM, because a VM that restarts has no node for a while."""
    _joined: dict[Key, tuple[VM, VMI, VM]] = field(default_factory=dict, repr=False, compare=False)
    contents: Contents = field(default_factory=Contents, repr=False, compare=False)
    instancetypes: KnownInstancetypes = field(default_factory=KnownInstancetypes, repr=False, compare=False)

    def owner_of(self, vm: VM) -> Pool | InvalidPool | None:
        pool = self.pools.get((vm.namespace, vm.pool_name)) if vm.pool_name else None
        return pool if pool is not None and pool.uid == vm.owner_uid else None

    def vms_of(self, pool_uid: str) -> Iterator[VM]:
        for vm in self.vms.by("owner", pool_uid):
            yield self._with_vmi(vm)

    def _with_vmi(self, vm: VM) -> VM:
        vmi = self.vmis.get(vm.key)
        if vmi is None or vmi.owner_uid != vm.uid:
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
        self._last_nodes.pop(key, None)

    def zones(self, pool: Pool, vms: Iterable[VM]) -> dict[str, str]:
        """The known zones of the VMs, by name of the VM."""
        label, last, found = pool.spec.failure_domains.topology_key, self._last_nodes, {}
        zones = {node.name: zone for node in self.nodes.all() if (zone := node.labels.get(label))} if label else {}
        for vm in vms if zones else ():
            if vm.vmi is not None and vm.vmi.node:
                node = last[vm.key] = vm.vmi.node
            else:
                node = last.get(vm.key, "")
            if node in zones:
                found[vm.name] = zones[node]
        return found

    def readiness(self, names: Iterable[str]) -> dict[str, bool]:
        """Whether these nodes are ready. A node that does not exist is not."""
        found = {name: self.nodes.get(("", name)) for name in names}
        return {name: node is not None and node.ready for name, node in found.items()}

    def leaving(self, vmis: Iterable[VMI]) -> frozenset[str]:
        names = {vmi.node for vmi in vmis}
        return frozenset(name for name in names if (node := self.nodes.get(("", name))) is not None and node.leaving)

    def targets(self) -> frozenset[str] | None:
        """Two nodes that can take VMs, or as many as there are. None for a user who may not see nodes."""
        able = (node for node in self.nodes.all() if node.ready and node.labels.get(SCHEDULABLE) == "true")
        return frozenset(islice((node.name for node in able if not node.leaving), 2)) if len(self.nodes) else None

    def queue(self) -> MigrationQueue:
        return queue_of(map(self._with_vmi, self.vms.by("live_update", True)))

    def waiting_for_disks(self) -> Iterator[VM]:
        """VMs whose disks were replaced, while the old disks are not retained yet, and VMs that a DataVolume stops."""
        return iter(self.vms.by("waiting_for_disks", True))

    def without_data_volume(self, pool_key: Key | None = None) -> list[Key]:
        """Disks of the pool, or of all pools, that replace others and whose DataVolume is missing."""
        vms = (vm for vm in self.waiting_for_disks() if vm.replaced_disks and vm.pool_name)
        keys = [
            (vm.namespace, disk) for vm in vms if pool_key in (None, (vm.namespace, vm.pool_name)) for disk in vm.disks
        ]
        return [key for key in keys if key not in self.collected and self.disk_state(key) == DiskState()]

    def sharing_disks(self, pool: Pool) -> Iterator[tuple[str, Pool]]:
        """Other pools whose template has a disk of the same name, with that name."""
        for disk in sorted(disk_names(pool.spec.template)):
            for other in self.pools.by("disk", (pool.namespace, disk)):
                if isinstance(other, Pool) and other.uid != pool.uid:
                    yield disk, other

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


def waits_for_disks(vm: VM) -> bool:
    """Whether the state of the VM's DataVolumes says more than the VM: it gets new disks, or cannot start without."""
    return bool(vm.replaced_disks) or vm.printable_status in WAITS_FOR_DISKS


def observe(
    stores: Stores, key: Key, *, synced: bool, failure: Failure | None, burst: int
) -> PoolSnapshot | InvalidPool | None:
    """The snapshot of the pool, or None for an unknown pool. The cost depends only on the size of this pool."""
    pool = stores.pools.get(key)
    if not isinstance(pool, Pool):
        return pool
    pool, beyond = within_limit(pool, stores.replica_limit(pool.namespace))
    revisions = revisions_of(stores, pool)
    new = stores.contents.revision(pool, content_of(stores, pool, revisions))
    revision, saved = saved_or_new(new, revisions)
    retained = stores.retained_disks.by("namespace", pool.namespace)
    foreign_disks = _foreign_disks(stores, pool, retained)
    restores = tuple(stores.restores.by("pool", pool.key))
    vms = with_restores(stores.vms_of(pool.uid), restores)
    found = PoolSnapshot(
        pool=pool,
        vms=vms,
        taken_ordinals=_taken_by_vms(stores, key) | _taken_by_disks(pool, foreign_disks),
        foreign_disks=foreign_disks,
        unowned=tuple(sorted(vm.name for vm in stores.vms.by("base_name", key) if is_unowned(vm))),
        foreign_vmis=stores.foreign_vmis(pool),
        awaiting_release=stores.awaiting_release(key),
        retained_disks=tuple(disk for disk in retained if disk.retained_by == pool.uid),
        revision=revision,
        revision_saved=saved,
        revisions=revisions,
        unready_disks=_unready_disks(stores, pool),
        disk_conflict=_disk_conflict(pool, stores),
        vm_snapshots=tuple(stores.vm_snapshots.by("pool", pool.key)),
        restores=restores,
        serves_snapshots=stores.vm_snapshots.served,
        zones=stores.zones(pool, vms),
        nodes=_nodes(stores, pool, vms),
        cluster=stores.cluster(),
        targets=stores.targets(),
        queue=stores.queue() if any(map(may_wait, vms)) else NO_QUEUE,
        leaving=stores.leaving(vm.vmi for vm in vms if vm.vmi is not None),
        budgets=tuple(stores.budgets.by("namespace", pool.namespace)) if stores.budgets.served else None,
        refused_references=refused_references(pool, revisions, stores.data_source, stores.rights),
        excess=beyond,
        synced=synced,
        failure=failure,
        burst=burst,
    )
    return stores.instancetypes.expanded(found)


def _nodes(stores: Stores, pool: Pool, vms: Iterable[VM]) -> dict[str, bool]:
    """The readiness of nodes that matter to the pool. A user who may not see nodes knows the outages of the log."""
    logged = open_outages(pool.status.decisions)
    names = {*logged, *(vm.vmi.node for vm in vms if vm.vmi is not None and vm.vmi.node)}
    return stores.readiness(names) if len(stores.nodes) else dict.fromkeys(logged, False)


def _disk_conflict(pool: Pool, stores: Stores) -> Failure | None:
    for disk, other in stores.sharing_disks(pool):
        if (other.created_at, other.name) < (pool.created_at, pool.name):
            return Failure(
                PoolReason.DISK_CONFLICT,
                f"dataVolumeTemplate {disk} is also pool {other.name}'s, and VMs of both would write to one disk: "
                "give it another name in this pool, no VM is created until then",
            )
    return None


def revisions_of(stores: Stores, pool: Pool) -> tuple[Revision, ...]:
    lost = without_owner(pool.name, pool.uid, stores.revisions.by("owner", ""))
    return (*stores.revisions.by("owner", pool.uid), *lost)


def content_of(stores: Stores, pool: Pool, revisions: Iterable[Revision]) -> Json:
    """What determines the VMs of the pool now. `revisions` are those of the pool."""
    return content(pool.spec, sources_of(pool, revisions, stores.data_source, stores.rights))


def _unready_disks(stores: Stores, pool: Pool) -> dict[str, DiskState]:
    # KubeVirt may create the disks only when it starts the VM. Then a disk counts whose error stops the start.
    at_start = at(pool.spec.template, "metadata", "annotations", CREATE_AT_ONCE) == "false"
    found = (
        (disk, state)
        for vm in stores.waiting_for_disks()
        if vm.owner_uid == pool.uid and (vm.printable_status == DATA_VOLUME_ERROR or not at_start)
        for disk in vm.disks
        if (state := stores.disk_state((vm.namespace, disk))) is not None and state.phase not in READY_PHASES
        if state != DiskState() or not (at_start or (vm.namespace, disk) in stores.collected)
    )
    return dict(found)


def _taken_by_vms(stores: Stores, key: Key) -> frozenset[int]:
    return frozenset(vm.ordinal for vm in stores.vms.by("base_name", key) if vm.ordinal is not None)


def _foreign_disks(stores: Stores, pool: Pool, retained: list[RetainedDisk]) -> dict[str, str]:
    """Disks that another pool has retained, and disks of VMs outside this pool. The other pool may be an
    earlier pool of the same name."""
    found = {
        disk.name: f"retained for VM {disk.retained_for} of another pool"
        for disk in retained
        if disk.retained_by != pool.uid
    }
    for name in disk_names(pool.spec.template):
        for vm in stores.vms.by("disk", (pool.namespace, name)):
            if vm.owner_uid != pool.uid:
                found |= dict.fromkeys(vm.disks, f"which is VM {vm.name}'s")
    return found | dict.fromkeys(_left_disks(stores, pool), "which a deleted VM has left")


def _left_disks(stores: Stores, pool: Pool) -> list[str]:
    """Disks with a name of the pool that deleted VMs have left, and that no VM uses."""
    left = {state.left[1] for state in stores.left_disks(pool.namespace) if state.left}
    names = disk_names(pool.spec.template) if left else ()
    for name in names:
        for vm in stores.vms.by("disk", (pool.namespace, name)):
            left.difference_update(vm.disks)
    return [disk for disk in left if parent_and_ordinal(disk)[0] in names]


def _taken_by_disks(pool: Pool, disks: Iterable[str]) -> frozenset[int]:
    """Ordinals whose VMs would get a disk with one of these names."""
    names = disk_names(pool.spec.template)
    found = map(parent_and_ordinal, disks)
    return frozenset(ordinal for name, ordinal in found if ordinal is not None and name in names)
