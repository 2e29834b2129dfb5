"""Makes a snapshot of a pool from the stores."""

from __future__ import annotations

from collections.abc import Iterable

from controllers.pool.reasons import PoolReason
from controllers.pool.revisions import content, current_revision
from controllers.pool.snapshot import InvalidPool, Pool, PoolSnapshot
from controllers.pool.stores import Stores
from controllers.shared.disks import RetainedDisk, disk_names
from controllers.shared.names import parent_and_ordinal
from controllers.shared.write_batches import Failure
from runtime.resource import Key


def observe(
    stores: Stores, key: Key, *, synced: bool, failure: Failure | None, burst: int
) -> PoolSnapshot | InvalidPool | None:
    """The pool as it is now, or None without such a pool. Its cost grows with the size of this pool only."""
    pool = stores.pools.get(key)
    if not isinstance(pool, Pool):
        return pool
    revisions = stores.revisions.by("owner", pool.uid)
    revision, saved = current_revision(pool.name, pool.uid, content(pool.spec), revisions)
    retained = stores.retained_disks.by("namespace", pool.namespace)
    foreign_disks = _foreign_disks(stores, pool, retained)
    return PoolSnapshot(
        pool=pool,
        vms=tuple(stores.vms_of(pool.uid)),
        taken_ordinals=_taken_by_vms(stores, key) | _taken_by_disks(pool, foreign_disks),
        foreign_disks=foreign_disks,
        awaiting_release=stores.awaiting_release(key),
        retained_disks=tuple(disk for disk in retained if disk.retained_by == pool.uid),
        revision=revision,
        revision_saved=saved,
        revisions=tuple(revisions),
        disk_conflict=_disk_conflict(pool, stores),
        synced=synced,
        failure=failure,
        burst=burst,
    )


def _disk_conflict(pool: Pool, stores: Stores) -> Failure | None:
    for disk, other in stores.sharing_disks(pool):
        if (other.created_at, other.name) < (pool.created_at, pool.name):
            return Failure(
                PoolReason.DISK_CONFLICT,
                f"dataVolumeTemplate {disk} is also pool {other.name}'s, and VMs of both would write to one disk: "
                "give it another name in this pool, no VM is created until then",
            )
    return None


def _taken_by_vms(stores: Stores, key: Key) -> frozenset[int]:
    return frozenset(vm.ordinal for vm in stores.vms.by("base_name", key) if vm.ordinal is not None)


def _foreign_disks(stores: Stores, pool: Pool, retained: list[RetainedDisk]) -> dict[str, str]:
    """Disks that another pool has retained, and disks of VMs that are not in this pool. The other pool may be an
    earlier one of the same name."""
    found = {
        disk.name: f"retained for VM {disk.retained_for} of another pool"
        for disk in retained
        if disk.retained_by != pool.uid
    }
    for name in disk_names(pool.spec.template):
        for vm in stores.vms.by("disk", (pool.namespace, name)):
            if vm.owner_uid != pool.uid:
                found |= dict.fromkeys(vm.disks, f"which is VM {vm.name}'s")
    return found


def _taken_by_disks(pool: Pool, disks: Iterable[str]) -> frozenset[int]:
    """Ordinals whose VMs would get a disk with one of these names."""
    names = disk_names(pool.spec.template)
    found = map(parent_and_ordinal, disks)
    return frozenset(ordinal for name, ordinal in found if ordinal is not None and name in names)
