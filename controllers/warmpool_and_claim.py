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
from controllers.warmpool.backends import Backend
from controllers.warmpool.build import WarmPools
from controllers.warmpool.combined_backend import RoutingBackend, merge_caches
from controllers.warmpool.demand import Demand
from controllers.warmpool.ec2.build import build_ec2
from controllers.warmpool.ec2.settings import EC2Settings
from controllers.warmpool.ec2.tags import is_instance
from controllers.warmpool.metrics import WarmPoolMetrics
from controllers.warmpool.observe import virtual
from controllers.warmpool.vm_backend import NODES, VMIS, VMS, VMBackend
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool
from defaulter.contract import Defaulter
from kinds import meta
from runtime.api import Api
from runtime.events import EventRecorder
from runtime.informer import Informer


def build(
    api: Api,
    events: EventRecorder,
    defaulter: Defaulter | None,
    registry: CollectorRegistry,
    seed: str,
    ec2_settings: EC2Settings | None = None,
) -> Component:
    pool_informer: Informer[WarmPool | InvalidWarmPool] = Informer(
        api,
        warm_pool.WARM_POOLS,
        warm_pool.parse_warm_pool,
        indexes={"namespace": warm_pool.by_namespace, "uid": warm_pool.by_uid},
    )
    machine_informer = Informer(
        api, VMS, warm_vm.parse_warm_vm, label_selector=meta.WARM_STATE, indexes=cache.VM_INDEXES
    )
    guest_informer = Informer(api, VMIS, vmi.parse_vmi, label_selector=meta.WARM_POOL, indexes=cache.VMI_INDEXES)
    node_informer = Informer(api, NODES, node.parse_node)
    informers = (pool_informer, machine_informer, guest_informer, node_informer)
    of_vms = cache.WarmVMCache(machine_informer.store, guest_informer.store, node_informer.store)
    ec2 = build_ec2(api, ec2_settings, partial(warm_pool.deletion_policy, pool_informer.store))
    of_instances = ec2.cache.warm_vms
    everything, demand = merge_caches(of_vms, of_instances), Demand()

    def by(api: Api) -> VMBackend:
        return VMBackend(api, DefaultingCreator(api, VMS, defaulter, seed, monotonic), api.now)

    fleet = virtual(of_vms, by(api), informers)
    instance_fleet = virtual(of_instances, ec2.backend, (pool_informer, *ec2.sources))
    filling = WarmPools(
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
    whichever = RoutingBackend(promptly, ec2.backend, is_instance)

    def holder(pool: WarmPool | None) -> Backend:
        if pool is None:
            return whichever
        return promptly if pool.spec.ec2 is None else ec2.backend

    claims = ClaimControllers(
        api.urgent,
        events,
        ClaimMetrics(registry),
        pools=pool_informer.store,
        vms=everything,
        backend=holder,
        demand=demand,
        pool_creations=filling.expectations,
        vms_unknown=lambda pool: None if pool.spec.ec2 is None else ec2.problem,
    )
    parts: tuple[WarmPools, ClaimControllers] = (filling, claims)
    for each in parts:
        pool_informer.subscribe(each.pool_changed)
        machine_informer.subscribe(each.vm_changed)
        guest_informer.subscribe(each.vmi_changed)
        node_informer.subscribe(each.node_changed)
        ec2.cache.subscribe(each.vm_changed, each.vmi_changed)

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(filling.run(), name="filling")
            group.create_task(claims.run(), name="claims")
            group.create_task(ec2.run(filling.look_at_all), name="ec2")

    return Component("warm", (*informers, claims.informer), work)
