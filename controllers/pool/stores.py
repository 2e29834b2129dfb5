"""The objects that pools' plans are made from: their resources, views and indexes."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from controllers.pool.revisions import Revision, parse_revision
from controllers.pool.snapshot import InvalidPool, Pool, parse_pool
from controllers.shared.disks import RetainedDisk, disk_names, parse_retained_disk
from controllers.shared.names import parent_and_ordinal
from controllers.shared.resources import PVCS
from controllers.shared.sources import Source
from controllers.shared.vm import VM, join_vmi, parse_vm
from controllers.shared.vmi import VMI, parse_vmi
from kinds import meta
from runtime.api import Api
from runtime.resource import VMIS, VMS, Key, Resource
from runtime.store import Store

POOLS = Resource("kubevirt.io", "v1", "virtualmachinepools", "VirtualMachinePool")
REVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")


def pools_by_disk(pool: Pool | InvalidPool) -> Iterator[Hashable]:
    """Finds pools that give their disks the same names: (namespace, name in the template)."""
    if isinstance(pool, Pool):
        for disk in disk_names(pool.spec.template):
            yield pool.namespace, disk


def by_owner(vm: VM) -> Iterator[Hashable]:
    """Finds the VMs of a pool."""
    if vm.pool_name:
        yield vm.owner_uid


def by_base_name(vm: VM) -> Iterator[Hashable]:
    """Finds VMs with names that a pool could give, whoever owns them: (namespace, `web`) for `web-3`."""
    if vm.ordinal is not None:
        yield vm.namespace, vm.base_name


def by_disk(vm: VM) -> Iterator[Hashable]:
    """Finds VMs that have disks with names that a pool could give: (namespace, `root`) for `root-3`."""
    for name, ordinal in map(parent_and_ordinal, vm.disks):
        if ordinal is not None:
            yield vm.namespace, name


def revisions_by_pool(revision: Revision) -> Iterator[Hashable]:
    if revision.pool_uid:
        yield revision.pool_uid


POOL_SOURCE: Source[Pool | InvalidPool] = Source(POOLS, parse_pool, {"disk": pools_by_disk})
VM_SOURCE = Source(VMS, parse_vm, {"owner": by_owner, "base_name": by_base_name, "disk": by_disk})
REVISION_SOURCE = Source(REVISIONS, parse_revision, {"owner": revisions_by_pool})
VMI_SOURCE: Source[VMI] = Source(VMIS, parse_vmi)
DISK_SOURCE = Source(
    PVCS, parse_retained_disk, {"namespace": lambda disk: (disk.namespace,)}, label_selector=meta.KEPT_BY
)


@dataclass(frozen=True)
class Stores:
    """All observed objects. Without arguments, the stores are empty."""

    pools: Store[Pool | InvalidPool] = field(default_factory=POOL_SOURCE.store)
    vms: Store[VM] = field(default_factory=VM_SOURCE.store)
    revisions: Store[Revision] = field(default_factory=REVISION_SOURCE.store)
    vmis: Store[VMI] = field(default_factory=VMI_SOURCE.store)
    retained_disks: Store[RetainedDisk] = field(default_factory=DISK_SOURCE.store)
    _joined: dict[Key, tuple[VM, VMI, VM]] = field(default_factory=dict, repr=False, compare=False)

    def vms_of(self, pool_uid: str) -> Iterator[VM]:
        """A pool's VMs, each with its present VMI."""
        for vm in self.vms.by("owner", pool_uid):
            yield self._with_vmi(vm)

    def _with_vmi(self, vm: VM) -> VM:
        vmi = self.vmis.get(vm.key)
        if vmi is None or vmi.owner_uid != vm.uid:
            return vm
        # Most VMs have not changed since the last snapshot. To join 10,000 of them anew takes a tenth of a second.
        known = self._joined.get(vm.key)
        if known is not None and known[0] is vm and known[1] is vmi:
            return known[2]
        joined = join_vmi(vm, vmi)
        self._joined[vm.key] = vm, vmi, joined
        return joined

    def forget(self, key: Key) -> None:
        """The VM is gone."""
        self._joined.pop(key, None)

    def sharing_disks(self, pool: Pool) -> Iterator[tuple[str, Pool]]:
        """Other pools that declare a disk of the same name in their template, with that name."""
        for disk in sorted(disk_names(pool.spec.template)):
            for other in self.pools.by("disk", (pool.namespace, disk)):
                if isinstance(other, Pool) and other.uid != pool.uid:
                    yield disk, other

    def awaiting_release(self, key: Key) -> tuple[VM, ...]:
        """VMs with names of this pool that are being deleted and wait for their disks.

        They are found by name and not by owner. The pool may be gone, or the VM detached, and without a release the VM
        would stay forever."""
        return tuple(vm for vm in self.vms.by("base_name", key) if vm.retains_disks and vm.deleting)


async def list_stores(api: Api, namespace: str) -> Stores:
    """The stores filled once from lists, with the caller's own rights. Raises the API server's refusal."""
    async with asyncio.TaskGroup() as group:
        pools = group.create_task(POOL_SOURCE.list(api, namespace))
        vms = group.create_task(VM_SOURCE.list(api, namespace))
        revisions = group.create_task(REVISION_SOURCE.list(api, namespace))
        vmis = group.create_task(VMI_SOURCE.list(api, namespace))
        disks = group.create_task(DISK_SOURCE.list(api, namespace))
    return Stores(pools.result(), vms.result(), revisions.result(), vmis.result(), disks.result())
