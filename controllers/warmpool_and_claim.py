"""Builds the controllers of warm pools and of claims, which share caches."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from uuid import uuid4

from controllers.claim.allocator import Allocator, Stores
from controllers.claim.application_watch import ApplicationWatches
from controllers.claim.apply import ClaimWriter
from controllers.claim.controller import ClaimController, ClaimObserver
from controllers.claim.evictions import evicting_since
from controllers.claim.garbage_collector import GarbageCollector
from controllers.claim.metrics import ClaimMetrics
from controllers.claim.pod_notes import PodNote, informer_of
from controllers.claim.snapshot import SOURCE, Claim
from controllers.shared.component import Component, ControllerContext
from controllers.shared.data_sources import DATA_SOURCES, DataSource, parse_data_source
from controllers.shared.evictions import BUDGET_SOURCE, EvictionBudget
from controllers.shared.planner import Planner
from controllers.shared.replica_limits import ReplicaLimits, enqueue_after_changes, limit_of
from controllers.shared.status_writer import StatusWriter
from controllers.shared.subresources import Subresources
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
from controllers.warmpool.ec2.poller import build_ec2
from controllers.warmpool.ec2.settings import EC2Settings
from controllers.warmpool.ec2.tags import is_instance
from controllers.warmpool.events import WarmPoolEvents
from controllers.warmpool.health import HealthTracker
from controllers.warmpool.metrics import WarmPoolMetrics
from controllers.warmpool.probe_address import Network
from controllers.warmpool.snapshot import EvictionFacts
from controllers.warmpool.vm_backend import VMBackend
from controllers.warmpool.warm_pool import WARM_POOLS, InvalidWarmPool, WarmPool
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings, choose, excerpt
from poolhouse.runtime.api import Api
from poolhouse.runtime.backoff import Backoff
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.events import EventRecorder
from poolhouse.runtime.expectations import Expectations
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.optional_informer import OptionalInformer
from poolhouse.runtime.resource import KUBEVIRTS, VMS, Key
from poolhouse.runtime.store import Store

log = logging.getLogger(__name__)

BEGIN_RETRIES = Backoff(base_seconds=0.5, cap_seconds=10)
EXPECTATIONS_SECONDS = 30.0
"""Time limit for the events of a pool's writes. A short limit is safe: deletes carry the UID, and the controller
deletes an excess VM again."""
SETTLE_SECONDS = 30.0
"""Longest wait for the lists of what the cluster may not serve: DataSources, PodDisruptionBudgets, KubeVirt objects."""
WORKERS = 512
"""maximum number of claims that are reconciled at once, including claims that wait for a VM's response"""


@dataclass
class Evictions:
    """What both controllers know of evictions."""

    budgets: OptionalInformer[EvictionBudget]
    kubevirts: OptionalInformer[Json]
    claims: Store[Claim]
    _cluster: ClusterSettings | None = None

    def __post_init__(self) -> None:
        self.kubevirts.subscribe(self._read_cluster)

    def _read_cluster(self) -> None:
        found = choose(self.kubevirts.all)
        self._cluster = ClusterSettings.of(found) if found is not None else None

    def cluster(self) -> ClusterSettings | None:
        return self._cluster

    def facts(self, pool: WarmPool, vms: Iterable[WarmVM]) -> EvictionFacts:
        budgets = tuple(self.budgets.by("namespace", pool.namespace)) if self.budgets.served else None
        claims = ((vm.uid, claim) for vm in vms if vm.claim_uid for claim in self.claims.by("uid", vm.claim_uid))
        begun = {uid: since for uid, claim in claims if (since := evicting_since(claim))}
        return EvictionFacts(budgets, self._cluster, begun)


class ClaimControllers:
    """The controllers of claims. `build` subscribes their handlers to the shared stores."""

    def __init__(
        self,
        api: Api,
        events: EventRecorder,
        metrics: ClaimMetrics,
        *,
        pools: Store[WarmPool | InvalidWarmPool],
        vms: WarmVMCache,
        backend: Callable[[WarmPool | None], Backend],
        demand: Demand,
        pool_creations: Expectations[str],
        claims: Store[Claim],
        vms_unknown: Callable[[WarmPool], str | None] = lambda pool: None,
        pod_notes: Informer[PodNote] | None = None,
        cluster: Callable[[], ClusterSettings | None] = lambda: None,
    ) -> None:
        stores = Stores(claims, pools, vms)
        allocator = Allocator(stores, demand, pool_creations)
        notes: Store[PodNote] = pod_notes.store if pod_notes is not None else Store()
        observe = ClaimObserver(allocator, api.monotonic, vms_unknown, notes, cluster)
        self._watches = ApplicationWatches(self._enqueue_claim, api.monotonic)
        apply = ClaimWriter(api, events, backend, allocator, metrics, self._watches, api.monotonic, api.now)
        self._claims = ClaimController(api, allocator, observe, apply, api.now, self._enqueue_claim)
        self._garbage = GarbageCollector(api, stores, backend, self._enqueue_vm)
        self._claim_queue: Controller[Key] = Controller(
            "claim", self._claims.reconcile, workers=WORKERS, metrics=api.metrics
        )
        self._vm_queue: Controller[Key] = Controller("stray", self._garbage.reconcile, workers=2, metrics=api.metrics)
        self.node_changed, self.pool_changed = self._claims.node_changed, self._claims.pool_changed
        self.vmi_changed = self._claims.vmi_changed
        demand.subscribe(self._claims.wake_queue)
        if pod_notes is not None:
            pod_notes.subscribe(self._claims.pod_note_changed)

    def claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        self._claims.claim_changed(old, new)
        self._garbage.claim_changed(old, new)

    def vm_changed(self, old: WarmVM | None, new: WarmVM | None) -> None:
        self._claims.vm_changed(old, new)
        self._garbage.vm_changed(old, new)

    async def run(self) -> None:
        """Runs the controllers while this process is the leader."""
        try:
            await self._begin()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._claim_queue.run(), name="claims")
                group.create_task(self._vm_queue.run(), name="garbage-collector")
                group.create_task(self._watches.run(), name="application-watches")
        finally:
            self._claims.end()

    async def _begin(self) -> None:
        for failures in count(1):
            try:
                await self._claims.begin()
                break
            except ApiError as error:
                log.warning("claims: cannot list claims, trying again: %s", error)
                await asyncio.sleep(BEGIN_RETRIES.delay(failures))

    def _enqueue_claim(self, key: Key, after_seconds: float) -> None:
        self._claim_queue.enqueue(key, after_seconds)

    def _enqueue_vm(self, key: Key, after_seconds: float) -> None:
        self._vm_queue.enqueue(key, after_seconds)


class WarmPoolControllers:
    """The controllers of warm pools. `build` subscribes their handlers to the shared stores."""

    def __init__(
        self,
        api: Api,
        events: EventRecorder,
        metrics: WarmPoolMetrics,
        *,
        planner: Planner,
        pools: Store[WarmPool | InvalidWarmPool],
        cache: WarmVMCache,
        backend_of: Callable[[WarmPool], BackendView],
        vm_backend: BackendView,
        subresources: Subresources,
        demand: Demand,
        data_sources: OptionalInformer[DataSource],
        evictions: Evictions,
        process_id: str,
        limits: ReplicaLimits | None = None,
    ) -> None:
        self.expectations: Expectations[str] = Expectations(EXPECTATIONS_SECONDS)
        self._pools = pools
        self._metrics = metrics
        self._controller = WarmPoolController(
            stores=WarmPoolStores(
                pools, demand, lambda key: data_sources.get(key[1], key[0]), limit_of(limits), evictions.facts
            ),
            cache=cache,
            backend_of=backend_of,
            vm_backend=vm_backend,
            apply=WarmPoolWriter(api, WarmPoolEvents(events, metrics), self.expectations, api.monotonic),
            status_writer=StatusWriter(api, WARM_POOLS, api.monotonic),
            health=HealthTracker(api.monotonic),
            subresources=subresources,
            metrics=metrics,
            planner=planner,
            clock=api.monotonic,
            now=api.now,
            seed=process_id,
            enqueue=self._enqueue,
        )
        self._reconcile: Controller[Key] = Controller("warmpool", self._controller.reconcile, metrics=api.metrics)
        self._probe: Controller[Key] = Controller("warmpool-checks", self._controller.probe, metrics=api.metrics)
        self.vm_changed, self.vmi_changed = self._controller.vm_changed, self._controller.vmi_changed
        self.node_changed = self._controller.node_changed
        demand.subscribe(self._controller.demand_changed)
        enqueue_after_changes(limits, pools, self._enqueue)
        self._data_sources, self._evictions = data_sources, evictions
        data_sources.subscribe(self._controller.data_source_changed)
        evictions.budgets.subscribe_objects(self._controller.budget_changed)
        evictions.kubevirts.subscribe(self.enqueue_all)

    async def run(self) -> None:
        self._controller.records.begin()
        try:
            async with asyncio.TaskGroup() as group:
                optional = self._data_sources, self._evictions.budgets, self._evictions.kubevirts
                for informer in optional:
                    group.create_task(informer.run())
                # Without the DataSources, the first VMs of a new pool would not have the images that it tracks.
                await asyncio.gather(*(informer.settled(SETTLE_SECONDS) for informer in optional))
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
        self._controller.pool_changed(old, new)
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
    pools, vms = warm_pool.SOURCE.informer(api), WARM_VMS.informer(api)
    vmis, nodes = WARM_VMIS.informer(api), WARM_NODES.informer(api)
    informers = (pools, vms, vmis, nodes)
    pod_notes = informer_of(api, virtual_node) if virtual_node else None
    vm_cache = WarmVMCache(vms.store, vmis.store, nodes.store)
    ec2 = build_ec2(api, ec2_settings, partial(warm_pool.deletion_policy, pools.store))
    instance_cache = ec2.cache.warm_vms
    all_vms, demand = merge_caches(vm_cache, instance_cache), Demand()
    claims = SOURCE.informer(api.urgent)
    kubevirts = OptionalInformer(api, KUBEVIRTS, excerpt)
    evictions = Evictions(BUDGET_SOURCE.optional_informer(api), kubevirts, claims.store)

    subresources = Subresources(api, api.monotonic)

    def vm_backend(api: Api) -> VMBackend:
        creator, sharing = context.creator(VMS, api), subresources.sharing_refusals(api)
        return VMBackend(api, creator, sharing, api.now, machines, agents, authority)

    vm_view = BackendView(vm_backend(api), vm_cache, informers)
    instance_view = BackendView(ec2.backend, instance_cache, (pools, *ec2.sources))
    pool_controllers = WarmPoolControllers(
        api,
        context.events,
        WarmPoolMetrics(context.registry),
        planner=context.planner,
        pools=pools.store,
        cache=all_vms,
        backend_of=lambda pool: vm_view if pool.spec.ec2 is None else instance_view,
        vm_backend=vm_view,
        subresources=subresources,
        demand=demand,
        data_sources=OptionalInformer(api, DATA_SOURCES, parse_data_source),
        evictions=evictions,
        process_id=process_id or uuid4().hex,
        limits=context.limits,
    )
    # Calls for claims use their own client, so that they do not wait behind the calls of a pool that scales out.
    backend_of_claim = _backends_of_claims(vm_backend(api.urgent), ec2.backend)
    claim_controllers = ClaimControllers(
        api.urgent,
        context.events,
        ClaimMetrics(context.registry),
        pools=pools.store,
        vms=all_vms,
        backend=backend_of_claim,
        demand=demand,
        pool_creations=pool_controllers.expectations,
        claims=claims.store,
        vms_unknown=lambda pool: None if pool.spec.ec2 is None else ec2.problem,
        pod_notes=pod_notes,
        cluster=evictions.cluster,
    )
    for each in (claim_controllers, pool_controllers):
        claims.subscribe(each.claim_changed)
    for each in (pool_controllers, claim_controllers):
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

    of_pods = (pod_notes,) if pod_notes is not None else ()
    return Component("warm", (*informers, claims, *of_pods), work)
