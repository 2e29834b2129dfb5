"""Assembles the replica set controller."""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic

from prometheus_client import CollectorRegistry

from controllers.replicaset.apply import ReplicaSetEvents, ReplicaSetWriter, expected_events
from controllers.replicaset.controller import ReplicaSetController
from controllers.replicaset.metrics import ReplicaSetMetrics
from controllers.replicaset.observe import REPLICA_SETS, SET_SOURCE, VMI_SOURCE, Stores
from controllers.replicaset.simulate import answer
from controllers.shared.component import Component
from controllers.shared.crd_presence import POLL_SECONDS, OwnCRD, run_while_present
from controllers.shared.creation import DefaultingCreator
from controllers.shared.simulation import PlanEndpoint
from controllers.shared.status_writer import StatusWriter
from controllers.shared.write_batches import WriteBatches
from defaulter.contract import Defaulter
from kinds.replicaset import REPLICA_SET
from runtime.api import Api
from runtime.controller import Controller
from runtime.events import EventRecorder
from runtime.expectations import Expectations
from runtime.resource import VMIS, Key

EXPECTATIONS_SECONDS = 30.0
"""How long a set waits to see its writes. It is short, so that a call without an answer does not stop the set for long.
Names by UID and deletions by UID make it safe to plan from stores that are older."""


def build(
    api: Api,
    recorder: EventRecorder,
    defaulter: Defaulter | None,
    registry: CollectorRegistry,
    burst: int,
    seed: str,
    *,
    poll_seconds: float = POLL_SECONDS,
) -> Component:
    metrics = ReplicaSetMetrics(registry)
    endpoint = PlanEndpoint(api, VMIS, "replica set", None)

    async def work() -> None:
        """The stores are filled anew each time: after a pause, old ones would show outdated objects."""
        sets, vmis = SET_SOURCE.informer(api), VMI_SOURCE.informer(api)
        stores = Stores(sets.store, vmis.store)
        expectations: Expectations[str] = Expectations(EXPECTATIONS_SECONDS)
        events = ReplicaSetEvents(recorder)
        replicating = ReplicaSetController(
            stores=stores,
            writer=ReplicaSetWriter(
                api,
                WriteBatches(events, expectations, monotonic, expected_events),
                DefaultingCreator(api, VMIS, defaulter, seed, monotonic),
            ),
            statuses=StatusWriter(api, REPLICA_SETS, monotonic),
            events=events,
            expectations=expectations,
            metrics=metrics,
            burst=burst,
            clock=monotonic,
            now=api.now,
        )
        controller: Controller[Key] = Controller("replicaset", replicating.reconcile, metrics=api.metrics)
        try:
            async with asyncio.TaskGroup() as group:
                for informer in (sets, vmis):
                    group.create_task(informer.run(), name=f"informer-{informer.resource.plural}")
                for informer in (sets, vmis):
                    await informer.synced()
                endpoint.simulate = lambda document: answer(stores, document, burst, api.now())
                sets.subscribe(partial(replicating.set_changed, controller.enqueue))
                vmis.subscribe(partial(replicating.vmi_changed, controller.enqueue))
                group.create_task(controller.run(), name="replicaset")
        finally:
            endpoint.simulate = None
            metrics.clear()

    async def run() -> None:
        await run_while_present(OwnCRD(api, REPLICA_SET).check, work, poll_seconds=poll_seconds)

    # Where the resource is KubeVirt's, nothing is read. So the informers are not among those that every replica runs.
    return Component("replicaset", (), run, answers={REPLICA_SET.plan_path: endpoint})
