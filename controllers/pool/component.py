"""Assembles the pool controller: its parts, its queues and its endpoint."""

import asyncio
from functools import partial

from controllers.pool import simulate
from controllers.pool.apply import PoolWriter
from controllers.pool.collected_disks import find_collected
from controllers.pool.controller import PoolController
from controllers.pool.events import PoolEvents
from controllers.pool.hypothetical_snapshot import hypothetical_snapshot
from controllers.pool.informers import Informers
from controllers.pool.measure import Measurer
from controllers.pool.memory import remember_measurement
from controllers.pool.metrics import OrphanedDisks, PoolMetrics
from controllers.pool.pools import POOLS
from controllers.pool.stores import Stores
from controllers.sets.simulation import PlanEndpoint
from controllers.sets.write_batches import WriteBatches
from controllers.shared.component import Component, ControllerContext
from controllers.shared.replica_limits import enqueue_after_changes
from controllers.shared.status_writer import StatusWriter
from controllers.shared.subresources import Subresources
from poolhouse.api.kinds.pool import POOL
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.expectations import Expectations
from poolhouse.runtime.resource import VMS, Key
from poolhouse.service.prometheus import Prometheus

SETTLE_SECONDS = 30.0
"""Time in which the controller waits to learn whether the cluster serves what it may lack. Until it knows of snapshots,
pools that take snapshots update no VM; without the DataSources, a new pool would first have a revision without their
images."""
EXPECTATIONS_SECONDS = 30.0
"""Time limit for the events of a pool's writes. The limit is short, so that a call without a response does not stop the
pool for long. Names by ordinal and deletions by UID make plans from stale stores safe."""


def _controller(context: ControllerContext, stores: Stores) -> PoolController:
    api, events = context.api, PoolEvents(context.events)
    batches = WriteBatches(events, Expectations(EXPECTATIONS_SECONDS), api.monotonic)
    return PoolController(
        stores=stores,
        writer=PoolWriter(api, batches, context.creator(VMS), Subresources(api, api.monotonic), events),
        statuses=StatusWriter(api, POOLS, api.monotonic),
        metrics=PoolMetrics(context.registry),
        planner=context.planner,
        burst=context.burst,
        clock=api.monotonic,
        now=api.now,
        find_collected=partial(find_collected, api),
    )


def build(context: ControllerContext, prometheus: Prometheus | None = None) -> Component:
    """Without a Prometheus, the queries of analyses are errors."""
    api = context.api
    informers = Informers(context)
    stores = informers.stores
    context.registry.register(OrphanedDisks(stores.pools, stores.retained_disks))
    pooling = _controller(context, stores)
    controller: Controller[Key] = Controller("pool", pooling.reconcile, metrics=api.metrics)
    pooling.disk_writers.enqueue = controller.enqueue
    informers.subscribe(pooling.changes, controller.enqueue)
    enqueue_after_changes(context.limits, stores.pools, controller.enqueue)
    remember = partial(remember_measurement, pooling.records, controller.enqueue)
    measurer = Measurer(api, prometheus, pooling.observe, remember, api.now)
    # The slots of the queries limit the measurements, and the time that a query waits for one must be in no deadline.
    measuring: Controller[Key] = Controller(
        "pool-analysis", measurer.measure, workers=None, deadline_seconds=None, metrics=api.metrics
    )
    pooling.measure_after = measuring.enqueue

    async def work() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for each in informers.optional:
                    group.create_task(each.run())
                await asyncio.gather(*(each.settled(SETTLE_SECONDS) for each in informers.optional))
                pooling.begin()
                group.create_task(measuring.run(), name="pool-analysis")
                await controller.run()
        finally:
            pooling.forget()

    endpoint = PlanEndpoint(api, VMS, POOL, context.planner, simulate.answer)
    endpoint.observe = lambda document: hypothetical_snapshot(stores, document, context.burst)
    endpoint.complete = stores.instancetypes.complete
    return Component("pool", informers.required, work, answers={POOL.plan_path: endpoint})
