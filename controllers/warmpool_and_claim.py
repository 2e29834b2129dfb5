"""Builds the controllers of warm pools and of claims, which share their caches."""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic

from prometheus_client import CollectorRegistry

from controllers.claim.build import ClaimControllers
from controllers.claim.metrics import ClaimMetrics
from controllers.shared.component import Component
from controllers.shared.creation import DefaultingCreator
from controllers.warmpool import warm_pool
from controllers.warmpool.backends import Backend, RoutingBackend
from controllers.warmpool.build import WarmPoolControllers
from controllers.warmpool.cache import WARM_NODES, WARM_VMIS, WARM_VMS, BackendView, Demand, WarmVMCache, merge_caches
from controllers.warmpool.ec2.poller import build_ec2
from controllers.warmpool.ec2.settings import EC2Settings
from controllers.warmpool.ec2.tags import is_instance
from controllers.warmpool.metrics import WarmPoolMetrics
from controllers.warmpool.vm_backend import VMBackend
from controllers.warmpool.warm_pool import WarmPool
from defaulter.contract import Defaulter
from runtime.api import Api
from runtime.events import EventRecorder
from runtime.resource import VMS


def build(
    api: Api,
    events: EventRecorder,
    defaulter: Defaulter | None,
    registry: CollectorRegistry,
    seed: str,
    ec2_settings: EC2Settings | None = None,
) -> Component:
    pools, vms = warm_pool.SOURCE.informer(api), WARM_VMS.informer(api)
    vmis, nodes = WARM_VMIS.informer(api), WARM_NODES.informer(api)
    informers = (pools, vms, vmis, nodes)
    vm_cache = WarmVMCache(vms.store, vmis.store, nodes.store)
    ec2 = build_ec2(api, ec2_settings, partial(warm_pool.deletion_policy, pools.store))
    instance_cache = ec2.cache.warm_vms
    all_vms, demand = merge_caches(vm_cache, instance_cache), Demand()

    def vm_backend(api: Api) -> VMBackend:
        return VMBackend(api, DefaultingCreator(api, VMS, defaulter, seed, monotonic), api.now)

    vm_view = BackendView(vm_backend(api), vm_cache, informers)
    instance_view = BackendView(ec2.backend, instance_cache, (pools, *ec2.sources))
    pool_controllers = WarmPoolControllers(
        api,
        events,
        WarmPoolMetrics(registry),
        pools=pools.store,
        cache=all_vms,
        backend_of=lambda pool: vm_view if pool.spec.ec2 is None else instance_view,
        vm_backend=vm_view,
        demand=demand,
    )
    # A pool that scales out has hundreds of calls in flight. Calls for a claim do not wait behind them.
    urgent = vm_backend(api.urgent)
    routing = RoutingBackend(urgent, ec2.backend, is_instance)

    def backend_of(pool: WarmPool | None) -> Backend:
        if pool is None:
            return routing
        return urgent if pool.spec.ec2 is None else ec2.backend

    claim_controllers = ClaimControllers(
        api.urgent,
        events,
        ClaimMetrics(registry),
        pools=pools.store,
        vms=all_vms,
        backend=backend_of,
        demand=demand,
        pool_creations=pool_controllers.expectations,
        vms_unknown=lambda pool: None if pool.spec.ec2 is None else ec2.problem,
    )
    controllers: tuple[WarmPoolControllers, ClaimControllers] = (pool_controllers, claim_controllers)
    for each in controllers:
        pools.subscribe(each.pool_changed)
        vms.subscribe(each.vm_changed)
        vmis.subscribe(each.vmi_changed)
        nodes.subscribe(each.node_changed)
        ec2.cache.subscribe(each.vm_changed, each.vmi_changed)

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(pool_controllers.run(), name="warmpool")
            group.create_task(claim_controllers.run(), name="claim")
            group.create_task(ec2.run(pool_controllers.enqueue_all), name="ec2")

    return Component("warm", (*informers, claim_controllers.informer), work)
