"""From the stores to a State. Reads, and decides nothing."""

from __future__ import annotations

from collections.abc import Iterable

from controllers.pool.naming import parent_and_ordinal
from controllers.pool.retained_disks import RetainedDisk
from controllers.pool.revisions import content, current_revision
from controllers.pool.snapshot import Failure, InvalidSpec, Pool, PoolSnapshot
from controllers.pool.stores import Stores
from controllers.pool.template import disk_names
from runtime.resource import Key


def observe(
    stores: Stores, key: Key, *, settled: bool, failure: Failure | None, burst: int
) -> PoolSnapshot | InvalidSpec | None:
    """What is known of the pool at this moment, at the cost of its own size; None where there is no such pool."""
    pool = stores.pools.get(key)
    if not isinstance(pool, Pool):
        return pool
    revisions = stores.revisions.by("owner", pool.uid)
    revision, saved = current_revision(pool.name, pool.uid, content(pool.spec), revisions)
    kept = stores.kept.by("namespace", pool.namespace)
    strangers = _strangers_disks(stores, pool, kept)
    return PoolSnapshot(
        pool=pool,
        machines=tuple(stores.members(pool.uid)),
        taken=_machines_names(stores, key) | _ordinals(pool, strangers),
        strangers=strangers,
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


def _strangers_disks(stores: Stores, pool: Pool, kept: list[RetainedDisk]) -> dict[str, str]:
    """Disks that are somebody else's, among them all whose names this pool could give: those that another pool has
    kept, perhaps one of the same name before this one, and those of VMs that are not in this pool."""
    found = {disk.name: f"kept for VM {disk.kept_for} of another pool" for disk in kept if disk.kept_by != pool.uid}
    for name in disk_names(pool.spec.template):
        for m in stores.machines.by("disk", (pool.namespace, name)):
            if m.owner != pool.uid:
                found |= dict.fromkeys(m.disks, f"which is VM {m.name}'s")
    return found


def _ordinals(pool: Pool, disks: Iterable[str]) -> frozenset[int]:
    """Those whose VMs would find one of these under the name of their own."""
    names = disk_names(pool.spec.template)
    return frozenset(
        ordinal for stem, ordinal in map(parent_and_ordinal, disks) if ordinal is not None and stem in names
    )
