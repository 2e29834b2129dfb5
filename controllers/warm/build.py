"""The parts of warm pools and of the claims on them, put together."""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic
from uuid import uuid4

from prometheus_client import CollectorRegistry

from controllers.part import Part
from controllers.prepare import Prepare
from controllers.warm import guest, machine, nodes, pools, queues
from controllers.warm.both import Either, joined
from controllers.warm.claim.build import Claims
from controllers.warm.claim.metrics import ClaimMetrics
from controllers.warm.demand import Demand
from controllers.warm.ec2 import build as ec2
from controllers.warm.machines import Machines
from controllers.warm.pool.apply import Apply
from controllers.warm.pool.checks import Checks
from controllers.warm.pool.controller import WarmPoolController
from controllers.warm.pool.metrics import WarmPoolMetrics
from controllers.warm.pool.observe import Stores, virtual
from controllers.warm.pools import Misfit, Pool
from controllers.warm.vm import GUESTS, MACHINES, NODES, Virtual
from defaulter.contract import Defaulter
from kinds import meta
from runtime.api import Api
from runtime.controller import Controller
from runtime.events import Events
from runtime.expectations import Expectations
from runtime.informer import Informer
from runtime.resource import Key

EXPECTATIONS_SECONDS = 30.0
"""How long a pool waits to see what it made or removed. A call that got no answer must not idle it for long; deletes
carry the UID, and a machine too many is removed again."""


def build(
    api: Api,
    events: Events,
    defaulter: Defaulter | None,
    registry: CollectorRegistry,
    seed: str,
    ec2_terms: ec2.Terms | None = None,
) -> Part:
    pool_informer: Informer[Pool | Misfit] = Informer(
        api, pools.POOLS, pools.pool, indexes={"namespace": pools.by_namespace, "uid": pools.by_uid}
    )
    machine_informer = Informer(api, MACHINES, machine.machine, label_selector=meta.WARM_STATE, indexes=queues.INDEXES)
    guest_informer = Informer(api, GUESTS, guest.guest, label_selector=meta.WARM_POOL, indexes=queues.GUEST_INDEXES)
    node_informer = Informer(api, NODES, nodes.node)
    informers = (pool_informer, machine_informer, guest_informer, node_informer)
    found = queues.Queues(machine_informer.store, guest_informer.store, node_informer.store)
    demand = Demand()
    vms = Virtual(api, Prepare(api, MACHINES, defaulter, seed, monotonic), api.now)
    fleet = virtual(found, vms, informers)
    instances = ec2.hold(api, ec2_terms, partial(pools.deletion_policy, pool_informer.store))
    of_instances = instances.shown.queues
    sights = (pool_informer, instances.scan) if instances.scan is not None else (pool_informer,)
    instance_fleet = virtual(of_instances, instances.machines, sights)
    everything = joined(found, of_instances)
    expectations: Expectations[str] = Expectations(EXPECTATIONS_SECONDS)
    metrics = WarmPoolMetrics(registry)
    pooling = WarmPoolController(
        stores=Stores(pool_informer.store, demand),
        queues=everything,
        fleet=lambda pool: instance_fleet if pool.spec.ec2 is not None else fleet,
        virtual=fleet,
        apply=Apply(api, events, expectations, metrics, monotonic),
        checks=Checks(monotonic),
        expectations=expectations,
        metrics=metrics,
        clock=monotonic,
        now=api.now,
        seed=uuid4().hex,
    )
    filling: Controller[Key] = Controller("warmpool", pooling.reconcile, metrics=api.metrics)
    asking: Controller[Key] = Controller("warmpool-checks", partial(pooling.ask, filling.enqueue), metrics=api.metrics)
    pool_informer.subscribe(partial(pooling.pool_changed, filling.enqueue))
    pool_informer.subscribe(lambda old, new: asking.enqueue(new.key) if new is not None else None)
    machine_informer.subscribe(partial(pooling.machine_changed, filling.enqueue))
    guest_informer.subscribe(partial(pooling.guest_changed, filling.enqueue))
    node_informer.subscribe(partial(pooling.node_changed, filling.enqueue))
    demand.subscribe(partial(pooling.demand_changed, filling.enqueue))

    # Pools that fill make hundreds of calls at once: those of a claim wait for none of them.
    promptly = Virtual(api.urgent, Prepare(api.urgent, MACHINES, defaulter, seed, monotonic), api.now)
    whichever = Either(promptly, instances.machines, ec2.is_instance)

    def holder(pool: Pool | None) -> Machines:
        if pool is None:
            return whichever
        return instances.machines if pool.spec.ec2 is not None else promptly

    def unseen(pool: Pool) -> str | None:
        return instances.scan.problem if instances.scan is not None and pool.spec.ec2 is not None else None

    claims = Claims(
        api.urgent,
        events,
        ClaimMetrics(registry),
        pools=pool_informer.store,
        queues=everything,
        machines=holder,
        demand=demand,
        filling=expectations,
        unseen=unseen,
    )
    pool_informer.subscribe(claims.pool_changed)
    machine_informer.subscribe(claims.machine_changed)
    guest_informer.subscribe(claims.guest_changed)
    node_informer.subscribe(claims.node_changed)
    instances.shown.subscribe(
        partial(pooling.machine_changed, filling.enqueue), partial(pooling.guest_changed, filling.enqueue)
    )
    instances.shown.subscribe(claims.machine_changed, claims.guest_changed)
    scan = instances.scan
    if scan is not None:

        def seen() -> None:
            for each in pool_informer.store.all():
                filling.enqueue(each.key, 0.0)

        scan.seen = seen

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            for each in (filling, asking):
                group.create_task(each.run(), name=each.name)
            group.create_task(claims.run(), name="claims")
            if scan is not None:
                group.create_task(scan.run(), name="ec2")

    return Part("warm", (*informers, claims.informer), work)
