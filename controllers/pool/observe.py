"""From the stores to a State. Reads, and decides nothing."""

from __future__ import annotations

from controllers.pool.kept import Kept
from controllers.pool.naming import split
from controllers.pool.revisions import content, current
from controllers.pool.state import Failure, Misfit, Pool, State
from controllers.pool.stores import Stores
from controllers.pool.template import disk_names
from runtime.resource import Key


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
        machines=tuple(stores.members(pool.uid)),
        taken=_machines_names(stores, key) | _strangers_disks(stores, pool, kept),
        waiting=stores.waiting(key),
        kept=tuple(disk for disk in kept if disk.kept_by == pool.uid),
        revision=revision,
        saved=saved,
        revisions=tuple(revisions),
        shared=_shared(pool, stores),
        settled=settled,
        failure=failure,
        burst=burst,
    )


def _shared(pool: Pool, stores: Stores) -> Failure | None:
    for disk, other in stores.sharing(pool):
        if (other.born, other.name) < (pool.born, pool.name):
            said = f"dataVolumeTemplate {disk} is also pool {other.name}'s, and VMs of both would write to one disk: "
            return Failure("DisksShared", f"{said}give it another name in this pool, nothing is created until then")
    return None


def _machines_names(stores: Stores, key: Key) -> frozenset[int]:
    return frozenset(m.ordinal for m in stores.machines.by("stem", key) if m.ordinal is not None)


def _strangers_disks(stores: Stores, pool: Pool, kept: list[Kept]) -> frozenset[int]:
    """Ordinals whose VMs would find under their disk's name a disk of somebody else's: one that another pool has kept,
    perhaps one of the same name before this one, or the disk of a VM that is in no pool."""
    names = disk_names(pool.spec.template)
    found = [disk.name for disk in kept if disk.kept_by != pool.uid]
    for name in names:
        for m in stores.machines.by("disk", (pool.namespace, name)):
            found += m.disks
    return frozenset(ordinal for stem, ordinal in map(split, found) if ordinal is not None and stem in names)
