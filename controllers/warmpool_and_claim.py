"""Builds the controllers of warm pools and of claims, which share caches."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self
from uuid import uuid4

from controllers.claim.allocator import Stores
from controllers.claim.component import ClaimControllers
from controllers.claim.evictions import evicting_since
from controllers.claim.pod_notes import PodNote, informer_of
from controllers.claim.snapshot import SOURCE, Claim, claim_of
from controllers.shared.component import Component, ControllerContext
from controllers.shared.data_sources import DataSource
from controllers.shared.evictions import EvictionBudget
from controllers.shared.replica_limits import enqueue_after_changes
from controllers.shared.status_writer import StatusWriter
from controllers.shared.subresources import Subresources
from controllers.shared.vmi import VMI
from controllers.warmpool import warm_pool
from controllers.warmpool.agent import AgentClient
from controllers.warmpool.agent_authority import AgentAuthority
from controllers.warmpool.apply import WarmPoolWriter
from controllers.warmpool.backends import Backend, RoutingBackend
from controllers.warmpool.cache import (
    WARM_NODES,
    WARM_VMIS,
    WARM_VMS,
    BackendView,
    Demand,
    WarmPoolStores,
    WarmVMCache,
    merge_caches,
)
from controllers.warmpool.controller import WarmPoolController
from controllers.warmpool.ec2.poller import EC2, build_ec2
from controllers.warmpool.ec2.settings import EC2Settings
from controllers.warmpool.ec2.tags import is_instance
from controllers.warmpool.events import WarmPoolEvents
from controllers.warmpool.health_tracker import HealthTracker
from controllers.warmpool.metrics import WarmPoolMetrics
from controllers.warmpool.probe_address import Network
from controllers.warmpool.snapshot import EvictionFacts
from controllers.warmpool.vm_backend import VMBackend
from controllers.warmpool.warm_pool import WARM_POOLS, InvalidWarmPool, WarmPool
from controllers.warmpool.warm_vm import Node, WarmVM
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.runtime.api import Api
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.expectations import Expectations
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.optional_informer import OptionalInformer
from poolhouse.runtime.resource import VMS, Key
from poolhouse.runtime.store import Store

EXPECTATIONS_SECONDS = 30.0
"""Time limit for the events of a pool's writes. A short limit is safe: deletes carry the UID, and the controller
deletes an excess VM again."""
SETTLE_SECONDS = 30.0
"""Longest wait for the lists of what the cluster may not serve: DataSources, PodDisruptionBudgets, KubeVirt objects."""


@dataclass(frozen=True)
class Informers:
    pools: Informer[WarmPool | InvalidWarmPool]
    vms: Informer[WarmVM]
    vmis: Informer[VMI]
    nodes: Informer[Node]
    claims: Informer[Claim]
    pod_notes: Informer[PodNote] | None
    """None without a virtual node"""
    # What the cluster may not serve.
    data_sources: OptionalInformer[DataSource]
    kubevirts: OptionalInformer[Json]
    budgets: OptionalInformer[EvictionBudget]

    @classmethod
    def connect(cls, context: ControllerContext, virtual_node: str) -> Self:
        api = context.api
        return cls(
            warm_pool.SOURCE.informer(api),
            WARM_VMS.informer(api),
            WARM_VMIS.informer(api),
            WARM_NODES.informer(api),
            SOURCE.informer(api.urgent),
            informer_of(api, virtual_node) if virtual_node else None,
            context.data_sources,
            context.kubevirts,
            context.budgets,
        )

    @property
    def of_vms(self) -> tuple[Informer[Any], ...]:
        return self.pools, self.vms, self.vmis, self.nodes

    @property
    def required(self) -> tuple[Informer[Any], ...]:
        return *self.of_vms, self.claims, *(() if self.pod_notes is None else (self.pod_notes,))

    @property
    def optional(self) -> tuple[OptionalInformer[Any], ...]:
        return self.data_sources, self.kubevirts, self.budgets

    @property
    def cache(self) -> WarmVMCache:
        return WarmVMCache(self.vms.store, self.vmis.store, self.nodes.store)

    def subscribe(self, pools: "WarmPoolControllers", claims: ClaimControllers, ec2: EC2) -> None:
        for each in (claims, pools):
            self.claims.subscribe(each.claim_changed)
        for each in (pools, claims):
            self.pools.subscribe(each.pool_changed)
            self.vms.subscribe(each.vm_changed)
            self.vmis.subscribe(each.vmi_changed)
            self.nodes.subscribe(each.node_changed)
            ec2.cache.subscribe(each.vm_changed, each.vmi_changed)
        if self.pod_notes is not None:
            self.pod_notes.subscribe(claims.pod_note_changed)


class Evictions:
    """What both controllers know of evictions."""

    def __init__(self, informers: Informers) -> None:
        self._budgets, self._claims = informers.budgets, informers.claims.store
        self._kubevirts = informers.kubevirts
        self._kubevirts.subscribe(self._read_cluster)
        self._cluster: ClusterSettings | None = None

    def _read_cluster(self) -> None:
        self._cluster = ClusterSettings.chosen(self._kubevirts.all)

    def cluster(self) -> ClusterSettings | None:
        return self._cluster

    def facts(self, pool: WarmPool, vms: Iterable[WarmVM]) -> EvictionFacts:
        budgets = tuple(self._budgets.by("namespace", pool.namespace)) if self._budgets.served else None
        claims = {vm.uid: claim for vm in vms if (claim := claim_of(self._claims, vm)) is not None}
        begun = {uid: since for uid, claim in claims.items() if (since := evicting_since(claim))}
        return EvictionFacts(budgets, self._cluster, begun)


class WarmPoolControllers:
    """The controllers of warm pools. Their handlers are to be subscribed to the required informers."""

    def __init__(
        self,
        context: ControllerContext,
        informers: Informers,
        evictions: Evictions,
        *,
        cache: WarmVMCache,
        backend_of: Callable[[WarmPool], BackendView],
        vm_backend: BackendView,
        subresources: Subresources,
        demand: Demand,
        process_id: str,
    ) -> None:
        api, pools = context.api, informers.pools.store
        self.expectations: Expectations[str] = Expectations(EXPECTATIONS_SECONDS)
        self._pools = pools
        self._metrics = metrics = WarmPoolMetrics(context.registry)
        stores = WarmPoolStores(pools, demand, context.image_sources, context.replica_limit, evictions.facts)
        self._controller = WarmPoolController(
            stores=stores,
            cache=cache,
            backend_of=backend_of,
            vm_backend=vm_backend,
            apply=WarmPoolWriter(api, WarmPoolEvents(context.events, metrics), self.expectations, api.monotonic),
            status_writer=StatusWriter(api, WARM_POOLS, api.monotonic),
            health=HealthTracker(api.monotonic),
            subresources=subresources,
            metrics=metrics,
            planner=context.planner,
            clock=api.monotonic,
            now=api.now,
            seed=process_id,
            enqueue=self._enqueue,
        )
        self._reconcile: Controller[Key] = Controller("warmpool", self._controller.reconcile, metrics=api.metrics)
        self._probe: Controller[Key] = Controller("warmpool-checks", self._controller.probe, metrics=api.metrics)
        self.vm_changed, self.vmi_changed = self._controller.changes.vm_changed, self._controller.changes.vmi_changed
        self.node_changed = self._controller.changes.node_changed
        demand.subscribe(self._controller.changes.demand_changed)
        enqueue_after_changes(context.limits, pools, self._enqueue)
        self._informers = informers
        informers.data_sources.subscribe_served(self.enqueue_all)
        informers.data_sources.subscribe_objects(self._controller.changes.data_source_changed)
        informers.budgets.subscribe_objects(self._controller.changes.budget_changed)
        informers.kubevirts.subscribe(self.enqueue_all)

    async def run(self) -> None:
        self._controller.records.begin()
        try:
            async with asyncio.TaskGroup() as group:
                for informer in self._informers.optional:
                    group.create_task(informer.run())
                # Without the DataSources, the first VMs of a new pool would not have the images that it tracks.
                await asyncio.gather(*(each.settled(SETTLE_SECONDS) for each in self._informers.optional))
                for each in (self._reconcile, self._probe):
                    group.create_task(each.run(), name=each.name)
        finally:
            self._metrics.clear()

    def enqueue_all(self) -> None:
        for each in self._pools.all():
            self._enqueue(each.key, 0.0)

    def _enqueue(self, key: Key, after_seconds: float) -> None:
        self._reconcile.enqueue(key, after_seconds)

    def claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        """Enqueues the pool of a claim whose VM should leave its node, or may stay again."""
        if new is not None and evicting_since(new) != (evicting_since(old) if old is not None else ""):
            self._enqueue((new.namespace, new.status.pool_name or ""), 0.0)

    def pool_changed(self, old: WarmPool | InvalidWarmPool | None, new: WarmPool | InvalidWarmPool | None) -> None:
        self._controller.changes.pool_changed(old, new)
        if new is not None:
            self._probe.enqueue(new.key)


def _backends_of_claims(vms: Backend, instances: Backend) -> Callable[[WarmPool | None], Backend]:
    """Returns the backend of a claim's pool. Without a pool, the backend depends on each warm VM."""
    routing = RoutingBackend(vms, instances, is_instance)

    def backend_of(pool: WarmPool | None) -> Backend:
        if pool is None:
            return routing
        return vms if pool.spec.ec2 is None else instances

    return backend_of


def build(
    context: ControllerContext,
    ec2_settings: EC2Settings | None = None,
    *,
    process_id: str = "",
    machines: Sequence[Network] = (),
    agents: AgentClient | None = None,
    authority: AgentAuthority | None = None,
    virtual_node: str = "",
) -> Component:
    """`machines` are networks outside the Pod network in which VMs have addresses. `authority` issues certificates to
    agents. `virtual_node` is the name of the Node whose Pods have claims. `process_id` differs between processes, so
    that they generate different VM names. The default is random."""
    api = context.api
    informers = Informers.connect(context, virtual_node)
    pools, evictions = informers.pools.store, Evictions(informers)
    ec2 = build_ec2(api, ec2_settings, partial(warm_pool.deletion_policy, pools))
    vm_cache, instance_cache, demand = informers.cache, ec2.cache.warm_vms, Demand()
    all_vms = merge_caches(vm_cache, instance_cache)
    subresources = Subresources(api, api.monotonic)

    def vm_backend(api: Api) -> VMBackend:
        creator, sharing = context.creator(VMS, api), subresources.sharing_refusals(api)
        return VMBackend(api, creator, sharing, api.now, machines, agents, authority)

    vm_view = BackendView(vm_backend(api), vm_cache, informers.of_vms)
    instance_view = BackendView(ec2.backend, instance_cache, (informers.pools, *ec2.sources))
    pool_controllers = WarmPoolControllers(
        context,
        informers,
        evictions,
        cache=all_vms,
        backend_of=lambda pool: vm_view if pool.spec.ec2 is None else instance_view,
        vm_backend=vm_view,
        subresources=subresources,
        demand=demand,
        process_id=process_id or uuid4().hex,
    )
    claim_controllers = ClaimControllers(
        context,
        Stores(informers.claims.store, pools, all_vms),
        # Calls for claims use their own client, so that they do not wait behind the calls of a pool that scales out.
        backend=_backends_of_claims(vm_backend(api.urgent), ec2.backend),
        demand=demand,
        pool_creations=pool_controllers.expectations,
        vms_unknown=lambda pool: None if pool.spec.ec2 is None else ec2.problem,
        pod_notes=informers.pod_notes.store if informers.pod_notes is not None else Store(),
        cluster=evictions.cluster,
    )
    informers.subscribe(pool_controllers, claim_controllers, ec2)

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(pool_controllers.run(), name="warmpool")
            group.create_task(claim_controllers.run(), name="claim")
            group.create_task(ec2.run(pool_controllers.enqueue_all), name="ec2")

    return Component("warm", informers.required, work)
