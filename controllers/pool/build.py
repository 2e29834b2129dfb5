"""The parts of the pool controller, put together."""

from __future__ import annotations

from functools import partial
from time import monotonic

from prometheus_client import CollectorRegistry

from controllers.pool import ask
from controllers.pool.apply import PoolWriter
from controllers.pool.batch import Batches
from controllers.pool.controller import PoolController
from controllers.pool.events import PoolEvents
from controllers.pool.metrics import PoolMetrics
from controllers.pool.orphans import OrphanedDisks
from controllers.pool.stores import (
    DISK_SOURCE,
    POOL_SOURCE,
    REVISION_SOURCE,
    VM_SOURCE,
    VMI_SOURCE,
    VMS,
    Stores,
)
from controllers.shared.component import Component
from controllers.shared.creation import DefaultingCreator
from defaulter.contract import Defaulter
from runtime.api import Api
from runtime.controller import Controller
from runtime.events import EventRecorder
from runtime.expectations import Expectations
from runtime.resource import Key

EXPECTATIONS_SECONDS = 30.0
"""How long a pool waits to see what it wrote. Names that follow from ordinals and deletes with a UID bound what a plan
from an old store could do after that; a call that got no answer must not idle a pool for long."""


def build(
    api: Api, events: EventRecorder, defaulter: Defaulter | None, registry: CollectorRegistry, burst: int, seed: str
) -> Component:
    pools, machines, revisions = POOL_SOURCE.informer(api), VM_SOURCE.informer(api), REVISION_SOURCE.informer(api)
    guests, kept = VMI_SOURCE.informer(api), DISK_SOURCE.informer(api)
    stores = Stores(pools.store, machines.store, revisions.store, guests.store, kept.store)
    registry.register(OrphanedDisks(pools.store, kept.store))
    expectations: Expectations[str] = Expectations(EXPECTATIONS_SECONDS)
    news = PoolEvents(events)
    pooling = PoolController(
        stores=stores,
        apply=PoolWriter(
            api, Batches(news, expectations, monotonic), DefaultingCreator(api, VMS, defaulter, seed, monotonic)
        ),
        news=news,
        expectations=expectations,
        metrics=PoolMetrics(registry),
        burst=burst,
        clock=monotonic,
        now=api.now,
    )
    controller: Controller[Key] = Controller("pool", pooling.reconcile, metrics=api.metrics)
    pools.subscribe(partial(pooling.pool_changed, controller.enqueue))
    machines.subscribe(partial(pooling.machine_changed, controller.enqueue))
    guests.subscribe(partial(pooling.guest_changed, controller.enqueue))
    kept.subscribe(partial(pooling.disk_changed, controller.enqueue))

    async def work() -> None:
        try:
            await controller.run()
        finally:
            pooling.metrics.clear()

    informers = (pools, machines, revisions, guests, kept)
    return Component("pool", informers, work, answers={ask.PATH: ask.Ask(api, stores, burst, api.now)})
