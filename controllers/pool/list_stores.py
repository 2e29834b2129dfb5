"""Lists what plans of pools need, with the rights of a caller who follows no watch."""

import asyncio
from dataclasses import replace

from controllers.pool.cluster import Cluster
from controllers.pool.collected_disks import find_collected
from controllers.pool.data_volumes import CLAIM_SOURCE, DATA_VOLUME_SOURCE, DiskState, disk_states
from controllers.pool.instancetypes import KnownInstancetypes
from controllers.pool.known_revisions import REVISION_SOURCE, KnownRevisions
from controllers.pool.pools import Pool
from controllers.pool.sources import DISK_SOURCE, POOL_SOURCE, VM_SOURCE, VMI_SOURCE
from controllers.pool.stores import Stores
from controllers.pool.vm_snapshots import SnapshotStores
from controllers.shared.image_sources import ImageSources
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Forbidden, NotFound


async def list_stores(api: Api, namespace: str) -> Stores:
    """Fills the stores from lists, with the caller's own rights. Raises the API server's error."""
    async with asyncio.TaskGroup() as group:
        pools = group.create_task(POOL_SOURCE.list(api, namespace))
        vms = group.create_task(VM_SOURCE.list(api, namespace))
        revisions = group.create_task(REVISION_SOURCE.list(api, namespace))
        vmis = group.create_task(VMI_SOURCE.list(api, namespace))
        disks = group.create_task(DISK_SOURCE.list(api, namespace))
        snapshots = group.create_task(SnapshotStores.list(api, namespace))
        cluster = group.create_task(Cluster.list(api))
    valid = [pool for pool in pools.result().all() if isinstance(pool, Pool)]
    images = await ImageSources.read(api, {key for pool in valid for key in pool.tracked.values()})
    known = KnownRevisions(revisions.result(), images)
    found = Stores(
        pools.result(), vms.result(), known, vmis.result(), disks.result(), snapshots.result(), cluster.result()
    )
    found = replace(found, instancetypes=KnownInstancetypes.of(api))
    waits = any(found.waiting_for_disks())
    states, claims = DATA_VOLUME_SOURCE.store(), CLAIM_SOURCE.store()
    if waits or any(pool.disk_names for pool in valid) or any(each.disks for each in revisions.result().all()):
        claims = await CLAIM_SOURCE.list(api, namespace)
        try:
            async for key, state in disk_states(api, namespace):
                states.put(key, state)
        except (Forbidden, NotFound):
            if waits:
                raise
    found = replace(found, owned_disks=lambda disk: (*states.by("name", disk), *claims.by("name", disk)))
    if waits:
        found = replace(found, disk_state=lambda key: states.get(key) or DiskState())
        found.collected.update(await find_collected(api, found.without_data_volume()))
    return found
