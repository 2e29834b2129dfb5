"""What a pool's plans are made from: which objects are read, the small view that is kept of each, and its indexes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from controllers.pool.guest import VMI, parse_vmi
from controllers.pool.machine import VM, by_disk, by_owner, by_stem, join_vmi, parse_vm
from controllers.pool.retained_disks import RetainedDisk, by_namespace, parse_retained_disk
from controllers.pool.revisions import Revision, parse_revision
from controllers.pool.snapshot import InvalidSpec, Pool, parse_pool
from controllers.pool.template import disk_names
from kinds import meta
from runtime.api import Api
from runtime.informer import Informer
from runtime.resource import Key, Resource
from runtime.store import Store

Json = dict[str, Any]
V = TypeVar("V")

POOLS = Resource("kubevirt.io", "v1", "virtualmachinepools", "VirtualMachinePool")
VMS = Resource("kubevirt.io", "v1", "virtualmachines", "VirtualMachine")
VMIS = Resource("kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance")
REVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")
DATA_VOLUMES = Resource("cdi.kubevirt.io", "v1beta1", "datavolumes", "DataVolume")
PVCS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")


@dataclass(frozen=True)
class Source(Generic[V]):
    """Objects of one resource, as they are kept."""

    resource: Resource
    view: Callable[[Json], V]
    indexes: Mapping[str, Callable[[V], Iterable[Hashable]]] = field(default_factory=dict)
    label_selector: str | None = None

    def store(self) -> Store[V]:
        return Store(self.indexes)

    def informer(self, api: Api) -> Informer[V]:
        return Informer(api, self.resource, self.view, indexes=self.indexes, label_selector=self.label_selector)


def shares(p: Pool | InvalidSpec) -> Iterator[Hashable]:
    """Index of the pools that give their disks the same names: (namespace, name in the template)."""
    if isinstance(p, Pool):
        for disk in disk_names(p.spec.template):
            yield p.namespace, disk


def of_pool(r: Revision) -> Iterator[Hashable]:
    if r.owner:
        yield r.owner


POOL_SOURCE: Source[Pool | InvalidSpec] = Source(POOLS, parse_pool, {"disk": shares})
VM_SOURCE = Source(VMS, parse_vm, {"owner": by_owner, "stem": by_stem, "disk": by_disk})
REVISION_SOURCE = Source(REVISIONS, parse_revision, {"owner": of_pool})
VMI_SOURCE: Source[VMI] = Source(VMIS, parse_vmi)
DISK_SOURCE = Source(PVCS, parse_retained_disk, {"namespace": by_namespace}, label_selector=meta.KEPT_BY)


@dataclass(frozen=True)
class Stores:
    """All that was seen. Made without arguments, it is empty."""

    pools: Store[Pool | InvalidSpec] = field(default_factory=POOL_SOURCE.store)
    machines: Store[VM] = field(default_factory=VM_SOURCE.store)
    revisions: Store[Revision] = field(default_factory=REVISION_SOURCE.store)
    guests: Store[VMI] = field(default_factory=VMI_SOURCE.store)
    kept: Store[RetainedDisk] = field(default_factory=DISK_SOURCE.store)
    _joined: dict[Key, tuple[VM, VMI, VM]] = field(default_factory=dict, repr=False, compare=False)

    def members(self, pool_uid: str) -> Iterator[VM]:
        """A pool's VMs, each with its present run."""
        for m in self.machines.by("owner", pool_uid):
            yield self._with_guest(m)

    def _with_guest(self, m: VM) -> VM:
        vmi = self.guests.get(m.key)
        if vmi is None or vmi.owner != m.uid:
            return m
        # Most are as they were at the last look: to put 10,000 together anew takes a tenth of a second.
        known = self._joined.get(m.key)
        if known is not None and known[0] is m and known[1] is vmi:
            return known[2]
        joined = join_vmi(m, vmi)
        self._joined[m.key] = m, vmi, joined
        return joined

    def forget(self, key: Key) -> None:
        """There is no such VM any more."""
        self._joined.pop(key, None)

    def sharing(self, pool: Pool) -> Iterator[tuple[str, Pool]]:
        """Other pools whose VMs' disks have the same names as this one's, with the name in the template."""
        for disk in sorted(disk_names(pool.spec.template)):
            for other in self.pools.by("disk", (pool.namespace, disk)):
                if isinstance(other, Pool) and other.uid != pool.uid:
                    yield disk, other

    def waiting(self, key: Key) -> tuple[VM, ...]:
        """VMs with names of this pool that are being deleted and wait for their disks. By name and not by owner: the
        pool may be gone, or the VM detached, and a VM that nobody lets go would stay for ever."""
        return tuple(m for m in self.machines.by("stem", key) if m.keeping and m.deleting)
