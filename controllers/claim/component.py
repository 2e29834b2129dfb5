"""Runs the controllers of claims."""

import asyncio
import logging
from collections.abc import Callable
from itertools import count

from controllers.claim.allocator import Allocator, Stores
from controllers.claim.application_watch import ApplicationWatches
from controllers.claim.apply import ClaimWriter
from controllers.claim.controller import ClaimController
from controllers.claim.garbage_collector import GarbageCollector
from controllers.claim.metrics import ClaimMetrics
from controllers.claim.observe import ClaimObserver
from controllers.claim.pod_notes import PodNote
from controllers.claim.snapshot import Claim
from controllers.shared.component import ControllerContext
from controllers.warmpool.backends import Backend
from controllers.warmpool.cache import Demand
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.runtime.backoff import Backoff
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.expectations import Expectations
from poolhouse.runtime.resource import Key
from poolhouse.runtime.store import Store

log = logging.getLogger(__name__)

BEGIN_RETRIES = Backoff(base_seconds=0.5, cap_seconds=10)
WORKERS = 512
"""maximum number of claims that are reconciled at once, including claims that wait for a VM's response"""


class ClaimControllers:
    """The controllers of claims. Their handlers are to be subscribed to the informers of the stores."""

    def __init__(
        self,
        context: ControllerContext,
        stores: Stores,
        *,
        backend: Callable[[WarmPool | None], Backend],
        demand: Demand,
        pool_creations: Expectations[str],
        vms_unknown: Callable[[WarmPool], str | None],
        pod_notes: Store[PodNote],
        cluster: Callable[[], ClusterSettings | None],
    ) -> None:
        api, events, metrics = context.api.urgent, context.events, ClaimMetrics(context.registry)
        allocator = Allocator(stores, demand, pool_creations)
        observe = ClaimObserver(allocator, api.monotonic, vms_unknown, pod_notes, cluster)
        self._watches = ApplicationWatches(self._enqueue_claim, api.monotonic)
        apply = ClaimWriter(api, events, backend, allocator, metrics, self._watches, api.monotonic, api.now)
        self._claims = ClaimController(api, allocator, observe, apply, api.now, self._enqueue_claim)
        self._garbage = GarbageCollector(api, stores, backend, self._enqueue_vm)
        self._claim_queue: Controller[Key] = Controller(
            "claim", self._claims.reconcile, workers=WORKERS, metrics=api.metrics
        )
        self._vm_queue: Controller[Key] = Controller("stray", self._garbage.reconcile, workers=2, metrics=api.metrics)
        self.node_changed, self.pool_changed = self._claims.node_changed, self._claims.pool_changed
        self.vmi_changed, self.pod_note_changed = self._claims.vmi_changed, self._claims.pod_note_changed
        demand.subscribe(self._claims.wake_queue)

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
                group.create_task(self._claims.queue_checks.run(), name="queue-checks")
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
