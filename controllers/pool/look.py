"""The stores that a controller has, filled once from lists: for who asks now and then, and with his own rights."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from controllers.pool.stores import GUEST_VIEWS, KEPT_VIEWS, MACHINE_VIEWS, POOL_VIEWS, REVISION_VIEWS, Source, Stores
from runtime.api import Api
from runtime.resource import key_of
from runtime.store import Store

V = TypeVar("V")


async def look(api: Api, namespace: str) -> Stores:
    """What there is in the namespace now. Raises what the API server refuses."""

    async def filled(source: Source[V]) -> Store[V]:
        store = source.store()
        async for items, _ in api.pages(source.resource, namespace, label_selector=source.label_selector):
            for document in items:
                store.put(key_of(document), source.view(document))
        return store

    async with asyncio.TaskGroup() as group:
        pools = group.create_task(filled(POOL_VIEWS))
        machines = group.create_task(filled(MACHINE_VIEWS))
        revisions = group.create_task(filled(REVISION_VIEWS))
        guests = group.create_task(filled(GUEST_VIEWS))
        kept = group.create_task(filled(KEPT_VIEWS))
    return Stores(pools.result(), machines.result(), revisions.result(), guests.result(), kept.result())
