"""Reads the stores of pools into the snapshot of one pool."""

from dataclasses import replace

from controllers.pool.migration_queue import MigrationQueue, may_wait
from controllers.pool.observed_disks import (
    disk_conflict,
    foreign_disks,
    owned_disks,
    taken_by_disks,
    unready_disks,
    waiting_for_deletion,
)
from controllers.pool.outages import open_outages
from controllers.pool.pools import InvalidPool, Pool
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.stores import Stores
from controllers.pool.vm_snapshots import with_restores
from controllers.sets.write_batches import Failure
from controllers.shared.replica_limits import Excess, excess
from poolhouse.runtime.resource import Key


def observe(
    stores: Stores, key: Key, *, synced: bool, failure: Failure | None, burst: int
) -> PoolSnapshot | InvalidPool | None:
    """The snapshot of the pool, or None for an unknown pool. The cost depends only on the size of this pool."""
    pool = stores.pools.get(key)
    if not isinstance(pool, Pool):
        return pool
    pool, beyond = _within_limit(pool, stores.cluster.replica_limit(pool.namespace))
    revisions = stores.revisions.of(pool)
    of_name = list(stores.vms.by("base_name", key))
    vms = with_restores(stores.vms_of(pool))
    found = PoolSnapshot(
        pool=pool,
        vms=vms,
        unowned=tuple(sorted(vm.name for vm in of_name if vm.unowned)),
        foreign_vmis=stores.foreign_vmis(pool),
        awaiting_release=stores.awaiting_release(key),
        retained_disks=tuple(stores.retained_disks.by("pool", (pool.namespace, pool.uid))),
        revision=revisions.current,
        revision_saved=revisions.is_saved,
        revisions=revisions.stored,
        unready_disks=unready_disks(stores, pool),
        unlisted_disks=not stores.lists_data_volumes(),
        disk_conflict=disk_conflict(stores, pool),
        vm_snapshots=tuple(stores.snapshots.taken.by("pool", pool.key)),
        restores=tuple(stores.snapshots.restores.by("pool", pool.key)),
        serves_snapshots=stores.snapshots.taken.served,
        zones=stores.cluster.zones(pool, vms),
        nodes=stores.cluster.readiness(vms, open_outages(pool.status.decisions)),
        cluster=stores.cluster.settings(),
        targets=stores.cluster.targets(),
        queue=stores.queue() if any(map(may_wait, vms)) else MigrationQueue(),
        leaving=stores.cluster.leaving(vm.vmi for vm in vms if vm.vmi is not None),
        budgets=stores.cluster.budgets_of(pool.namespace),
        refused_references=revisions.refused_references,
        excess=beyond,
        synced=synced,
        failure=failure,
        burst=burst,
    )
    owned = owned_disks(stores, found)
    foreign, deleted = foreign_disks(stores, found, owned), waiting_for_deletion(pool, owned)
    taken = taken_by_disks(found, foreign) | {vm.ordinal for vm in of_name if vm.ordinal is not None}
    return stores.instancetypes.expanded(
        replace(found, foreign_disks=foreign, taken_ordinals=taken, recently_deleted=deleted)
    )


def _within_limit(pool: Pool, limit: int | None) -> tuple[Pool, Excess | None]:
    """The pool as if its spec asked for no more than the replica limit, and what it asks for above it."""
    beyond = excess(pool.spec.replicas, limit, pool.status)
    if beyond is None:
        return pool, None
    spec = pool.spec.model_copy(update={"replicas": beyond.replicas})
    return replace(pool, spec=spec, max_unavailable=spec.most_unavailable), beyond
