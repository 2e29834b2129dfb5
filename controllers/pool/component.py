"""Assembles the pool controller: its informers, the handlers of their events, its queues and its endpoint."""

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from controllers.pool import simulate
from controllers.pool.apply import PoolWriter
from controllers.pool.changes import Enqueue, PoolChanges
from controllers.pool.collected_disks import find_collected
from controllers.pool.controller import PoolController
from controllers.pool.data_volumes import DATA_VOLUME_SOURCE, DiskState
from controllers.pool.events import PoolEvents
from controllers.pool.instancetypes import KnownInstancetypes
from controllers.pool.measure import Measurer
from controllers.pool.metrics import OrphanedDisks, PoolMetrics
from controllers.pool.observe import (
    DISK_SOURCE,
    POOL_SOURCE,
    POOLS,
    REVISION_SOURCE,
    VM_SOURCE,
    VMI_SOURCE,
    Stores,
)
from controllers.pool.revisions import Revision
from controllers.pool.snapshot import InvalidPool, Pool
from controllers.pool.vm_snapshots import RESTORE_SOURCE, SNAPSHOT_SOURCE, VMRestore, VMSnapshot
from controllers.sets.simulation import PlanEndpoint
from controllers.sets.write_batches import WriteBatches
from controllers.shared.component import Component, ControllerContext
from controllers.shared.data_sources import DataSource
from controllers.shared.evictions import EvictionBudget
from controllers.shared.replica_limits import ReplicaLimits, enqueue_after_changes, limit_of
from controllers.shared.sources import NODE_SOURCE, Node
from controllers.shared.status_writer import StatusWriter
from controllers.shared.subresources import Subresources
from controllers.shared.vm import VM, RetainedDisk
from controllers.shared.vmi import VMI
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.pool import POOL
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings, choose
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.expectations import Expectations
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.instancetypes import InstancetypeReader
from poolhouse.runtime.optional_informer import OptionalInformer
from poolhouse.runtime.resource import VMS, Key
from poolhouse.service.prometheus import Prometheus

SETTLE_SECONDS = 30.0
"""Time in which the controller waits to learn whether the cluster serves what it may lack. Until it knows of snapshots,
pools that take snapshots update no VM; without the DataSources, a new pool would first have a revision without their
images."""
UNKNOWN_STATE = DiskState("DataVolumes are not listed yet")
EXPECTATIONS_SECONDS = 30.0
"""Time limit for the events of a pool's writes. The limit is short, so that a call without a response does not stop the
pool for long. Names by ordinal and deletions by UID make plans from stale stores safe."""


@dataclass(frozen=True)
class Informers:
    pools: Informer[Pool | InvalidPool]
    vms: Informer[VM]
    vmis: Informer[VMI]
    revisions: Informer[Revision]
    disks: Informer[RetainedDisk]
    nodes: Informer[Node]
    # What the cluster may not serve.
    snapshots: OptionalInformer[VMSnapshot]
    restores: OptionalInformer[VMRestore]
    data_volumes: OptionalInformer[DiskState]
    data_sources: OptionalInformer[DataSource]
    kubevirts: OptionalInformer[Json]
    budgets: OptionalInformer[EvictionBudget]

    @classmethod
    def connect(cls, context: ControllerContext) -> Self:
        api = context.api
        return cls(
            POOL_SOURCE.informer(api),
            VM_SOURCE.informer(api),
            VMI_SOURCE.informer(api),
            REVISION_SOURCE.informer(api),
            DISK_SOURCE.informer(api),
            NODE_SOURCE.informer(api),
            SNAPSHOT_SOURCE.optional_informer(api),
            RESTORE_SOURCE.optional_informer(api),
            DATA_VOLUME_SOURCE.optional_informer(api),
            context.data_sources,
            context.kubevirts,
            context.budgets,
        )

    @property
    def required(self) -> tuple[Informer[Any], ...]:
        return self.pools, self.vms, self.revisions, self.vmis, self.disks, self.nodes

    @property
    def optional(self) -> tuple[OptionalInformer[Any], ...]:
        return self.snapshots, self.restores, self.data_volumes, self.data_sources, self.kubevirts, self.budgets

    def stores(self, limits: ReplicaLimits | None) -> Stores:
        return Stores(
            pools=self.pools.store,
            vms=self.vms.store,
            revisions=self.revisions.store,
            vmis=self.vmis.store,
            retained_disks=self.disks.store,
            vm_snapshots=self.snapshots,
            restores=self.restores,
            nodes=self.nodes.store,
            disk_state=self._disk_state,
            left_disks=partial(self.data_volumes.by, "left"),
            data_source=lambda key: self.data_sources.get(key[1], key[0]),
            cluster=self._cluster,
            budgets=self.budgets,
            replica_limit=limit_of(limits),
        )

    def _disk_state(self, key: Key) -> DiskState | None:
        if not self.data_volumes.known:
            return UNKNOWN_STATE
        return (self.data_volumes.get(key[1], key[0]) or DiskState()) if self.data_volumes.served else None

    def _cluster(self) -> ClusterSettings | None:
        found = choose(self.kubevirts.all)
        return ClusterSettings.of(found) if found is not None else None

    def subscribe(self, changes: PoolChanges, enqueue: Enqueue) -> None:
        self.pools.subscribe(partial(changes.pool_changed, enqueue))
        self.vms.subscribe(partial(changes.vm_changed, enqueue))
        self.vmis.subscribe(partial(changes.vmi_changed, enqueue))
        self.nodes.subscribe(partial(changes.node_changed, enqueue))
        self.revisions.subscribe(partial(changes.revision_changed, enqueue))
        self.disks.subscribe(partial(changes.disk_changed, enqueue))
        self.snapshots.subscribe(lambda: changes.snapshots_served(enqueue, self.snapshots.served))
        self.snapshots.subscribe_objects(partial(changes.snapshot_changed, enqueue))
        self.restores.subscribe_objects(partial(changes.restore_changed, enqueue))
        self.budgets.subscribe_objects(partial(changes.budget_changed, enqueue))
        self.data_sources.subscribe(partial(changes.data_sources_changed, enqueue))
        self.data_volumes.subscribe(partial(changes.data_volumes_changed, enqueue))
        self.kubevirts.subscribe(partial(changes.cluster_changed, enqueue))


def _controller(context: ControllerContext, stores: Stores) -> PoolController:
    api, events = context.api, PoolEvents(context.events)
    batches = WriteBatches(events, Expectations(EXPECTATIONS_SECONDS), api.monotonic)
    return PoolController(
        stores=stores,
        writer=PoolWriter(api, batches, context.creator(VMS), Subresources(api, api.monotonic), events),
        statuses=StatusWriter(api, POOLS, api.monotonic),
        events=events,
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
    informers = Informers.connect(context)
    instancetypes = KnownInstancetypes(InstancetypeReader(api, api.monotonic).read)
    stores = replace(informers.stores(context.limits), instancetypes=instancetypes, rights=context.reference_rights)
    context.registry.register(OrphanedDisks(stores.pools, stores.retained_disks))
    pooling = _controller(context, stores)
    controller: Controller[Key] = Controller("pool", pooling.reconcile, metrics=api.metrics)
    informers.subscribe(pooling.changes, controller.enqueue)
    enqueue_after_changes(context.limits, stores.pools, controller.enqueue)
    measurer = Measurer(
        api, prometheus, pooling.observe_for_measurement, partial(pooling.measured, controller.enqueue), api.now
    )
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
    endpoint.observe = lambda document: simulate.hypothetical_snapshot(stores, document, context.burst)
    endpoint.complete = instancetypes.complete
    return Component("pool", informers.required, work, answers={POOL.plan_path: endpoint})
