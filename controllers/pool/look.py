"""The stores that a controller has, filled once from lists: for who asks now and then, and with his own rights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from controllers.pool import disks, guest, kept, machine, observe, revisions, state
from controllers.pool.observe import Stores
from kinds import meta
from runtime.api import Api, Resource
from runtime.resource import key_of
from runtime.store import Store

V = TypeVar("V")


async def look(api: Api, namespace: str) -> Stores:
    """What there is in the namespace now. Raises what the API server refuses."""

    async def filled(
        resource: Resource,
        view: Callable[[dict[str, Any]], V],
        label_selector: str | None = None,
        **indexes: Callable[[V], Iterable[Hashable]],
    ) -> Store[V]:
        store: Store[V] = Store(indexes)
        async for items, _ in api.pages(resource, namespace, label_selector=label_selector):
            for document in items:
                store.put(key_of(document), view(document))
        return store

    async with asyncio.TaskGroup() as group:
        pools = group.create_task(filled(observe.POOLS, state.pool, disk=observe.by_disk))
        machines = group.create_task(
            filled(observe.MACHINES, machine.machine, owner=machine.by_owner, stem=machine.by_stem)
        )
        guests = group.create_task(filled(observe.GUESTS, guest.guest))
        templates = group.create_task(filled(observe.REVISIONS, revisions.revision, owner=observe.by_owner))
        claims = group.create_task(filled(disks.CLAIMS, kept.kept, meta.KEPT_BY, namespace=kept.by_namespace))
    return Stores(
        pools=pools.result(),
        machines=machines.result(),
        guests=guests.result(),
        revisions=templates.result(),
        kept=claims.result(),
    )
