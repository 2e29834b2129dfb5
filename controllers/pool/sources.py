"""The objects that pools need, with their views and indexes."""

from collections.abc import Hashable, Iterator
from operator import attrgetter
from typing import NamedTuple

from controllers.pool.pools import POOLS, InvalidPool, Pool, parse_pool
from controllers.shared.names import parent_and_ordinal
from controllers.shared.sources import Source
from controllers.shared.vm import DATA_VOLUME_ERROR, VM, RetainedDisk, parse_retained_disk, parse_vm
from controllers.shared.vmi import VMI, parse_vmi
from poolhouse.api.kinds import meta
from poolhouse.runtime.resource import PVCS, VMIS, VMS, Key
from poolhouse.runtime.store import OrderedIndex, Store

WAITS_FOR_DISKS = frozenset({DATA_VOLUME_ERROR, "Provisioning", "WaitingForVolumeBinding"})
"""printable statuses of a VM that cannot start because of a DataVolume"""


def age_of(pool: Pool | InvalidPool) -> tuple[str, str]:
    """The order of pools whose templates have a disk of the same name: the oldest pool keeps it."""
    return (pool.created_at, pool.name) if isinstance(pool, Pool) else ("", pool.name)


def pools_by_uid(pool: Pool | InvalidPool) -> Iterator[Hashable]:
    yield pool.uid


def pools_by_disk(pool: Pool | InvalidPool) -> Iterator[Hashable]:
    """Index of pools by the disk names in their template: (namespace, name)."""
    if isinstance(pool, Pool):
        yield from pool.disks


def pools_by_tracking(pool: Pool | InvalidPool) -> Iterator[Hashable]:
    """Index of pools by the DataSources that they track."""
    if isinstance(pool, Pool):
        yield from pool.tracked.values()


def pools_by_topology_key(pool: Pool | InvalidPool) -> Iterator[Hashable]:
    """Index of pools by the label of nodes that names the zones of their VMs."""
    if isinstance(pool, Pool):
        yield pool.spec.failure_domains.topology_key


def by_owner(vm: VM) -> Iterator[Hashable]:
    """With the namespace: a VM of another namespace may name any UID as its owner, until it is garbage-collected."""
    if vm.pool_name:
        yield vm.namespace, vm.owner_uid


def by_base_name(vm: VM) -> Iterator[Hashable]:
    """Index of VMs by the pool name in their own name, for any owner: (namespace, `web`) for `web-3`."""
    if vm.ordinal is not None:
        yield vm.namespace, vm.base_name


def by_disk(vm: VM) -> Iterator[Hashable]:
    """Index of VMs by the template names of their disks: (namespace, `root`) for `root-3`."""
    for name, ordinal in map(parent_and_ordinal, vm.disks):
        if ordinal is not None:
            yield vm.namespace, name


def by_disk_if_owned(vm: VM) -> Iterator[Key]:
    """Index of the VMs of pools by their disks."""
    if vm.pool_name:
        for disk in vm.disks:
            yield vm.namespace, disk


def _waits_for_disks(vm: VM) -> bool:
    """Whether the state of its DataVolumes says more about the VM: it gets new disks, or cannot start."""
    return bool(vm.replaced_disks) or vm.printable_status in WAITS_FOR_DISKS


def by_waiting_for_disks(vm: VM) -> Iterator[Hashable]:
    if _waits_for_disks(vm):
        yield True


def by_pool_if_waiting(vm: VM) -> Iterator[Key]:
    if _waits_for_disks(vm):
        yield vm.namespace, vm.pool_name


def by_disk_if_waiting(vm: VM) -> Iterator[Key]:
    if _waits_for_disks(vm):
        for disk in vm.disks:
            yield vm.namespace, disk


def by_name_in_template(disk: RetainedDisk) -> Iterator[Key]:
    """Index of retained disks by their names in a template: (namespace, `root`) for `root-3`."""
    name, ordinal = parent_and_ordinal(disk.name)
    if ordinal is not None:
        yield disk.namespace, name


def vmis_by_pool(vmi: VMI) -> Iterator[Key]:
    """Index of VMIs by the pool in their label: (namespace, name). A copy of a VM has this label, too."""
    if name := vmi.labels.get(meta.POOL):
        yield vmi.namespace, name


class FormerDisks(NamedTuple):
    """A pool that can still create VMs of its former template: an update is held back or was aborted."""

    pool: Key
    disks: frozenset[Key]
    """the names that only the former template has"""

    @classmethod
    def store(cls) -> Store["FormerDisks"]:
        return Store({"disk": attrgetter("disks")})


POOL_SOURCE: Source[Pool | InvalidPool] = Source(
    POOLS,
    parse_pool,
    {
        "namespace": lambda pool: (pool.namespace,),
        "uid": pools_by_uid,
        "disk": OrderedIndex(pools_by_disk, age_of),
        "tracking": pools_by_tracking,
        "topology_key": pools_by_topology_key,
    },
)
VM_SOURCE = Source(
    VMS,
    parse_vm,
    {
        "owner": by_owner,
        "base_name": by_base_name,
        "disk": by_disk,
        "disk_if_owned": by_disk_if_owned,
        "waiting_for_disks": by_waiting_for_disks,
        "pool_if_waiting": by_pool_if_waiting,
        "disk_if_waiting": by_disk_if_waiting,
    },
)
VMI_SOURCE: Source[VMI] = Source(VMIS, parse_vmi, {"pool": vmis_by_pool})
DISK_SOURCE = Source(
    PVCS,
    parse_retained_disk,
    {"pool": lambda disk: ((disk.namespace, disk.retained_by),), "disk": by_name_in_template},
    label_selector=meta.KEPT_BY,
)
