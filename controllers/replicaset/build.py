"""The parts of the replica set controller, put together."""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic

from prometheus_client import CollectorRegistry

from controllers.replicaset import ask
from controllers.replicaset.apply import ReplicaSetWriter, trace
from controllers.replicaset.ask import Ask
from controllers.replicaset.controller import ReplicaSetController
from controllers.replicaset.metrics import ReplicaSetMetrics
from controllers.replicaset.stores import VMIS, Stores, instance_informer, set_informer
from controllers.shared.component import Component
from controllers.shared.crd_presence import POLL_SECONDS, OwnCRD, run_while_present
from controllers.shared.creation import DefaultingCreator
from defaulter.contract import Defaulter
from kinds.replicaset import REPLICA_SET
from runtime.api import Api
from runtime.batch_writer import BatchWriter
from runtime.controller import Controller
from runtime.events import EventRecorder
from runtime.expectations import Expectations
from runtime.resource import Key

EXPECTATIONS_SECONDS = 30.0
"""How long a set waits to see what it wrote. Names that follow from the set and deletes with a UID bound what a plan
from an old store could do after that; a call that got no answer must not idle a set for long."""


def build(
    api: Api,
    events: EventRecorder,
    defaulter: Defaulter | None,
    registry: CollectorRegistry,
    burst: int,
    seed: str,
    *,
    poll_seconds: float = POLL_SECONDS,
) -> Component:
    metrics = ReplicaSetMetrics(registry)
    asking = Ask(api, burst, api.now)

    async def work() -> None:
        """With stores that are filled now: after a pause, old ones would tell of sets and instances as they were."""
        sets, instances = set_informer(api), instance_informer(api)
        expectations: Expectations[str] = Expectations(EXPECTATIONS_SECONDS)
        replicating = ReplicaSetController(
            stores=Stores(sets.store, instances.store),
            apply=ReplicaSetWriter(
                api,
                events,
                BatchWriter(expectations, monotonic, trace),
                DefaultingCreator(api, VMIS, defaulter, seed, monotonic),
            ),
            expectations=expectations,
            metrics=metrics,
            burst=burst,
            clock=monotonic,
            now=api.now,
        )
        controller: Controller[Key] = Controller("replicaset", replicating.reconcile, metrics=api.metrics)
        try:
            async with asyncio.TaskGroup() as group:
                for informer in (sets, instances):
                    group.create_task(informer.run(), name=f"informer-{informer.resource.plural}")
                for informer in (sets, instances):
                    await informer.synced()
                asking.stores = replicating.stores
                sets.subscribe(partial(replicating.set_changed, controller.enqueue))
                instances.subscribe(partial(replicating.instance_changed, controller.enqueue))
                group.create_task(controller.run(), name="replicaset")
        finally:
            asking.stores = None
            metrics.clear()

    # Its informers are not among those that every replica runs: where the resource is KubeVirt's, none of it is read.
    async def run() -> None:
        await run_while_present(OwnCRD(api, REPLICA_SET).check, work, poll_seconds=poll_seconds)

    return Component("replicaset", (), run, answers={ask.PATH: asking})
