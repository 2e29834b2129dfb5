"""The parts of warm pools and of the claims on them, put together."""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic

from prometheus_client import CollectorRegistry

from controllers.claim.build import ClaimControllers
from controllers.claim.metrics import ClaimMetrics
from controllers.shared.component import Component
from controllers.shared.creation import DefaultingCreator
from controllers.warmpool import cache, node, vmi, warm_pool, warm_vm
from controllers.warmpool.backends import Machines
from controllers.warmpool.build import Pools
from controllers.warmpool.combined_backend import Either, joined
from controllers.warmpool.demand import Demand
from controllers.warmpool.ec2 import build as ec2
from controllers.warmpool.metrics import WarmPoolMetrics
from controllers.warmpool.observe import virtual
from controllers.warmpool.vm_backend import GUESTS, MACHINES, NODES, Virtual
from controllers.warmpool.warm_pool import Misfit, Pool
from defaulter.contract import Defaulter
from kinds import meta
from runtime.api import Api
from runtime.events import Events
from runtime.informer import Informer


def build(
    api: Api,
    events: Events,
    defaulter: Defaulter | None,
    registry: CollectorRegistry,
    seed: str,
    ec2_settings: ec2.EC2Settings | None = None,
) -> Component:
    pool_informer: Informer[Pool | Misfit] = Informer(
        api, warm_pool.POOLS, warm_pool.pool, indexes={"namespace": warm_pool.by_namespace, "uid": warm_pool.by_uid}
    )
    machine_informer = Informer(api, MACHINES, warm_vm.machine, label_selector=meta.WARM_STATE, indexes=cache.INDEXES)
    guest_informer = Informer(api, GUESTS, vmi.guest, label_selector=meta.WARM_POOL, indexes=cache.GUEST_INDEXES)
    node_informer = Informer(api, NODES, node.node)
    informers = (pool_informer, machine_informer, guest_informer, node_informer)
    of_vms = cache.Queues(machine_informer.store, guest_informer.store, node_informer.store)
    instances = ec2.build_ec2(api, ec2_settings, partial(warm_pool.deletion_policy, pool_informer.store))
    of_instances = instances.shown.queues
    everything, demand = joined(of_vms, of_instances), Demand()

    def by(api: Api) -> Virtual:
        return Virtual(api, DefaultingCreator(api, MACHINES, defaulter, seed, monotonic), api.now)

    fleet = virtual(of_vms, by(api), informers)
    instance_fleet = virtual(of_instances, instances.machines, (pool_informer, *instances.sights))
    filling = Pools(
        api,
        events,
        WarmPoolMetrics(registry),
        pools=pool_informer.store,
        queues=everything,
        fleet=lambda pool: fleet if pool.spec.ec2 is None else instance_fleet,
        virtual=fleet,
        demand=demand,
    )
    # Pools that fill make hundreds of calls at once: those of a claim wait for none of them.
    promptly = by(api.urgent)
    whichever = Either(promptly, instances.machines, ec2.is_instance)

    def holder(pool: Pool | None) -> Machines:
        if pool is None:
            return whichever
        return promptly if pool.spec.ec2 is None else instances.machines

    claims = ClaimControllers(
        api.urgent,
        events,
        ClaimMetrics(registry),
        pools=pool_informer.store,
        queues=everything,
        machines=holder,
        demand=demand,
        filling=filling.expectations,
        unseen=lambda pool: None if pool.spec.ec2 is None else instances.problem,
    )
    parts: tuple[Pools, ClaimControllers] = (filling, claims)
    for each in parts:
        pool_informer.subscribe(each.pool_changed)
        machine_informer.subscribe(each.machine_changed)
        guest_informer.subscribe(each.guest_changed)
        node_informer.subscribe(each.node_changed)
        instances.shown.subscribe(each.machine_changed, each.guest_changed)

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(filling.run(), name="filling")
            group.create_task(claims.run(), name="claims")
            group.create_task(instances.run(filling.look_at_all), name="ec2")

    return Component("warm", (*informers, claims.informer), work)
