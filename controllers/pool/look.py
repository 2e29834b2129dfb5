"""The stores that a controller has, filled once from lists: for who asks now and then, and with his own rights."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from controllers.pool.stores import DISK_SOURCE, POOL_SOURCE, REVISION_SOURCE, VM_SOURCE, VMI_SOURCE, Source, Stores
from runtime.api import Api
from runtime.resource import object_key
from runtime.store import Store

V = TypeVar("V")


async def list_stores(api: Api, namespace: str) -> Stores:
    """What there is in the namespace now. Raises what the API server refuses."""

    async def filled(source: Source[V]) -> Store[V]:
        store = source.store()
        async for items, _ in api.pages(source.resource, namespace, label_selector=source.label_selector):
            for document in items:
                store.put(object_key(document), source.view(document))
        return store

    async with asyncio.TaskGroup() as group:
        pools = group.create_task(filled(POOL_SOURCE))
        machines = group.create_task(filled(VM_SOURCE))
        revisions = group.create_task(filled(REVISION_SOURCE))
        guests = group.create_task(filled(VMI_SOURCE))
        kept = group.create_task(filled(DISK_SOURCE))
    return Stores(pools.result(), machines.result(), revisions.result(), guests.result(), kept.result())
