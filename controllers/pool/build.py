"""Assembles the pool controller."""

from __future__ import annotations

from functools import partial
from time import monotonic

from prometheus_client import CollectorRegistry

from controllers.pool import simulate
from controllers.pool.apply import PoolEvents, PoolWriter, expected_events
from controllers.pool.controller import PoolController
from controllers.pool.metrics import OrphanedDisks, PoolMetrics
from controllers.pool.observe import DISK_SOURCE, POOL_SOURCE, POOLS, REVISION_SOURCE, VM_SOURCE, VMI_SOURCE, Stores
from controllers.shared.component import Component
from controllers.shared.creation import DefaultingCreator
from controllers.shared.simulation import PlanEndpoint
from controllers.shared.status_writer import StatusWriter
from controllers.shared.write_batches import WriteBatches
from defaulter.contract import Defaulter
from kinds.pool import POOL
from runtime.api import Api
from runtime.controller import Controller
from runtime.events import EventRecorder
from runtime.expectations import Expectations
from runtime.resource import VMS, Key

EXPECTATIONS_SECONDS = 30.0
"""How long a pool waits to see its writes. It is short, so that a call without an answer does not stop the pool for
long. Names by ordinal and deletions by UID make it safe to plan from stores that are older."""


def build(
    api: Api, recorder: EventRecorder, defaulter: Defaulter | None, registry: CollectorRegistry, burst: int, seed: str
) -> Component:
    pools, vms, revisions = POOL_SOURCE.informer(api), VM_SOURCE.informer(api), REVISION_SOURCE.informer(api)
    vmis, disks = VMI_SOURCE.informer(api), DISK_SOURCE.informer(api)
    stores = Stores(pools.store, vms.store, revisions.store, vmis.store, disks.store)
    registry.register(OrphanedDisks(pools.store, disks.store))
    expectations: Expectations[str] = Expectations(EXPECTATIONS_SECONDS)
    events = PoolEvents(recorder)
    pooling = PoolController(
        stores=stores,
        writer=PoolWriter(
            api,
            WriteBatches(events, expectations, monotonic, expected_events),
            DefaultingCreator(api, VMS, defaulter, seed, monotonic),
        ),
        statuses=StatusWriter(api, POOLS, monotonic),
        events=events,
        expectations=expectations,
        metrics=PoolMetrics(registry),
        burst=burst,
        clock=monotonic,
        now=api.now,
    )
    controller: Controller[Key] = Controller("pool", pooling.reconcile, metrics=api.metrics)
    pools.subscribe(partial(pooling.pool_changed, controller.enqueue))
    vms.subscribe(partial(pooling.vm_changed, controller.enqueue))
    vmis.subscribe(partial(pooling.vmi_changed, controller.enqueue))
    disks.subscribe(partial(pooling.disk_changed, controller.enqueue))

    async def work() -> None:
        try:
            await controller.run()
        finally:
            pooling.metrics.clear()

    endpoint = PlanEndpoint(api, VMS, "pool", lambda document: simulate.answer(stores, document, burst, api.now()))
    informers = (pools, vms, revisions, vmis, disks)
    return Component("pool", informers, work, answers={POOL.plan_path: endpoint})
