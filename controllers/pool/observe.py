"""From the stores to a State. Reads, and decides nothing."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

from controllers.pool.guest import Guest
from controllers.pool.kept import Kept
from controllers.pool.machine import Machine
from controllers.pool.naming import split
from controllers.pool.revisions import Revision, content, current
from controllers.pool.state import Failure, Misfit, Pool, State
from controllers.pool.template import disk_names
from runtime.resource import Key, Resource
from runtime.store import Store

POOLS = Resource("kubevirt.io", "v1", "virtualmachinepools", "VirtualMachinePool")
MACHINES = Resource("kubevirt.io", "v1", "virtualmachines", "VirtualMachine")
GUESTS = Resource("kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance")
REVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")


def by_owner(r: Revision) -> Iterator[Hashable]:
    if r.owner:
        yield r.owner


def by_disk(p: Pool | Misfit) -> Iterator[Hashable]:
    """Index of the pools that give their disks the same names: (namespace, name in the template)."""
    if isinstance(p, Pool):
        for disk in disk_names(p.spec.template):
            yield p.namespace, disk


@dataclass(frozen=True)
class Stores:
    pools: Store[Pool | Misfit]
    """indexed `disk`"""
    machines: Store[Machine]
    """indexed `owner` and `stem`"""
    revisions: Store[Revision]
    """indexed `owner`"""
    guests: Store[Guest]
    kept: Store[Kept]
    """indexed `namespace`"""

    def sharing(self, pool: Pool) -> dict[str, Pool]:
        """Other pools whose VMs' disks have the same names as this one's, by the name in the template."""
        found = {}
        for disk in sorted(disk_names(pool.spec.template)):
            for other in self.pools.by("disk", (pool.namespace, disk)):
                if isinstance(other, Pool) and other.uid != pool.uid:
                    found[disk] = other
        return found

    def waiting(self, key: Key) -> tuple[Machine, ...]:
        """VMs with names of this pool that are being deleted and wait for their disks. By name and not by owner: the
        pool may be gone, or the VM detached, and a VM that nobody lets go would stay for ever."""
        return tuple(m for m in self.machines.by("stem", key) if m.keeping and m.deleting)


def observe(stores: Stores, key: Key, *, settled: bool, failure: Failure | None, burst: int) -> State | Misfit | None:
    """What is known of the pool at this moment, at the cost of its own size; None where there is no such pool."""
    pool = stores.pools.get(key)
    if not isinstance(pool, Pool):
        return pool
    revisions = stores.revisions.by("owner", pool.uid)
    revision, saved = current(pool.name, pool.uid, content(pool.spec), revisions)
    kept = stores.kept.by("namespace", pool.namespace)
    return State(
        pool=pool,
        machines=tuple(_joined(stores, m) for m in stores.machines.by("owner", pool.uid)),
        taken=_machines_names(stores, key) | _strangers_disks(pool, kept),
        waiting=stores.waiting(key),
        kept=tuple(disk for disk in kept if disk.kept_by == pool.uid),
        revision=revision,
        saved=saved,
        revisions=tuple(revisions),
        shared=_shared(pool, stores.sharing(pool)),
        settled=settled,
        failure=failure,
        burst=burst,
    )


def _shared(pool: Pool, sharing: dict[str, Pool]) -> Failure | None:
    for disk, other in sharing.items():
        if (other.born, other.name) < (pool.born, pool.name):
            said = f"dataVolumeTemplate {disk} is also pool {other.name}'s, and VMs of both would write to one disk: "
            return Failure("DisksShared", f"{said}give it another name in this pool, nothing is created until then")
    return None


def _joined(stores: Stores, m: Machine) -> Machine:
    guest = stores.guests.get(m.key)
    return replace(m, guest=guest) if guest is not None and guest.owner == m.uid else m


def _machines_names(stores: Stores, key: Key) -> frozenset[int]:
    return frozenset(m.ordinal for m in stores.machines.by("stem", key) if m.ordinal is not None)


def _strangers_disks(pool: Pool, kept: list[Kept]) -> frozenset[int]:
    """Ordinals whose VMs would find a disk under their disk's name that another pool has kept, perhaps one of the same
    name before this one: it holds somebody else's data."""
    names = disk_names(pool.spec.template)
    split_names = (split(disk.name) for disk in kept if disk.kept_by != pool.uid)
    return frozenset(ordinal for stem, ordinal in split_names if ordinal is not None and stem in names)
