"""Lists what plans of pools need, with the rights of a caller who follows no watch."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import TypeVar

from controllers.pool.collected_disks import find_collected
from controllers.pool.data_volumes import DiskState, disk_states
from controllers.pool.images import tracked
from controllers.pool.instancetypes import KnownInstancetypes
from controllers.pool.observe import (
    DISK_SOURCE,
    POOL_SOURCE,
    REVISION_SOURCE,
    VM_SOURCE,
    VMI_SOURCE,
    Stores,
)
from controllers.pool.snapshot import InvalidPool, Pool
from controllers.pool.vm_snapshots import RESTORE_SOURCE, SNAPSHOT_SOURCE, ListedStore
from controllers.shared.data_sources import DATA_SOURCES, DataSource, parse_data_source
from controllers.shared.sources import NODE_SOURCE, Source
from controllers.shared.vm import disk_names
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings, choose
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Forbidden, NotFound
from poolhouse.runtime.instancetypes import InstancetypeReader
from poolhouse.runtime.resource import KUBEVIRTS, Key
from poolhouse.runtime.store import Store

V = TypeVar("V")


async def list_stores(api: Api, namespace: str) -> Stores:
    """Fills the stores from lists, with the caller's own rights. Raises the API server's error."""
    async with asyncio.TaskGroup() as group:
        pools = group.create_task(POOL_SOURCE.list(api, namespace))
        vms = group.create_task(VM_SOURCE.list(api, namespace))
        revisions = group.create_task(REVISION_SOURCE.list(api, namespace))
        vmis = group.create_task(VMI_SOURCE.list(api, namespace))
        disks = group.create_task(DISK_SOURCE.list(api, namespace))
        snapshots = group.create_task(_list_optional(SNAPSHOT_SOURCE, api, namespace))
        restores = group.create_task(_list_optional(RESTORE_SOURCE, api, namespace))
        nodes = group.create_task(_list_visible(NODE_SOURCE, api))
        cluster = group.create_task(_cluster(api))
    found = Stores(
        pools.result(),
        vms.result(),
        revisions.result(),
        vmis.result(),
        disks.result(),
        snapshots.result(),
        restores.result(),
        nodes.result(),
    )
    settings = cluster.result()
    instancetypes = KnownInstancetypes(InstancetypeReader(api, monotonic).read)
    found = replace(found, cluster=lambda: settings, instancetypes=instancetypes)
    waits = any(found.waiting_for_disks())
    states = dict[Key, DiskState]()
    if waits or any(disk_names(pool.spec.template) for pool in found.pools.all() if isinstance(pool, Pool)):
        try:
            states = {key: state async for key, state in disk_states(api, namespace)}
        except (Forbidden, NotFound):
            if waits:
                raise
    found = replace(found, left_disks=lambda _: states.values())
    if waits:
        found = replace(found, disk_state=lambda key: states.get(key, DiskState()))
        found.collected.update(await find_collected(api, found.without_data_volume()))
    sources = [each async for each in _data_sources(api, found.pools.all())]
    return replace(found, data_source={(each.namespace, each.name): each for each in sources}.get)


async def _data_sources(api: Api, pools: Iterable[Pool | InvalidPool]) -> AsyncIterator[DataSource]:
    """The DataSources that the pools track, and that the caller may read."""
    keys = {key for pool in pools if isinstance(pool, Pool) for key in tracked(pool.spec, pool.namespace).values()}
    for key in sorted(keys):
        with suppress(NotFound, Forbidden):
            yield parse_data_source(await api.get(DATA_SOURCES, *key))


async def _cluster(api: Api) -> ClusterSettings | None:
    """The settings of the KubeVirt object, or None if the user may not list it."""
    try:
        found = choose([each async for items, _ in api.pages(KUBEVIRTS, "") for each in items])
    except (Forbidden, NotFound):
        return None
    return ClusterSettings.of(found) if found is not None else None


async def _list_visible(source: Source[V], api: Api) -> Store[V]:
    """The objects of the cluster, or none if the user may not list them."""
    try:
        return await source.list(api, "")
    except Forbidden:
        return source.store()


async def _list_optional(source: Source[V], api: Api, namespace: str) -> ListedStore[V]:
    try:
        return ListedStore(await source.list(api, namespace), served=True)
    except NotFound:
        return ListedStore()
