"""Builds the controllers of claims."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import count
from time import monotonic

from controllers.claim.allocator import Allocator, Stores
from controllers.claim.apply import ClaimWriter
from controllers.claim.controller import ClaimController, ClaimObserver
from controllers.claim.garbage_collector import GarbageCollector
from controllers.claim.metrics import ClaimMetrics
from controllers.claim.snapshot import SOURCE, Claim
from controllers.warmpool.backends import Backend
from controllers.warmpool.cache import Demand, WarmVMCache
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool
from controllers.warmpool.warm_vm import WarmVM
from runtime.api import Api
from runtime.backoff import Backoff
from runtime.controller import Controller
from runtime.errors import ApiError
from runtime.events import EventRecorder
from runtime.expectations import Expectations
from runtime.informer import Informer
from runtime.resource import Key
from runtime.store import Store

log = logging.getLogger(__name__)

BEGIN_RETRIES = Backoff(base_seconds=0.5, cap_seconds=10)
WORKERS = 512
"""claims that are reconciled at once, including those that only wait for a VM to answer"""


class ClaimControllers:
    """Shares its stores with the warm pools; the caller subscribes both to them."""

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
        vms_unknown: Callable[[WarmPool], str | None] = lambda pool: None,
    ) -> None:
        self.informer: Informer[Claim] = SOURCE.informer(api)
        stores = Stores(self.informer.store, pools, vms)
        allocator = Allocator(stores, demand, pool_creations)
        observe = ClaimObserver(allocator, monotonic, vms_unknown)
        apply = ClaimWriter(api, events, backend, allocator, metrics, monotonic, api.now)
        self._claims = ClaimController(api, allocator, observe, apply, api.now, self._enqueue_claim)
        self._garbage = GarbageCollector(api, stores, backend, self._enqueue_vm)
        self._claim_queue: Controller[Key] = Controller(
            "claim", self._claims.reconcile, workers=WORKERS, metrics=api.metrics
        )
        self._vm_queue: Controller[Key] = Controller("stray", self._garbage.reconcile, workers=2, metrics=api.metrics)
        self.node_changed, self.pool_changed = self._claims.node_changed, self._claims.pool_changed
        self.vmi_changed = self._claims.vmi_changed
        demand.subscribe(self._claims.wake_queue)
        self.informer.subscribe(self._claims.claim_changed)
        self.informer.subscribe(self._garbage.claim_changed)

    def vm_changed(self, old: WarmVM | None, new: WarmVM | None) -> None:
        self._claims.vm_changed(old, new)
        self._garbage.vm_changed(old, new)

    async def run(self) -> None:
        """Runs while this process is the leader."""
        try:
            await self._begin()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._claim_queue.run(), name="claims")
                group.create_task(self._vm_queue.run(), name="garbage-collector")
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

    def _enqueue_claim(self, key: Key, after_seconds: float = 0.0) -> None:
        self._claim_queue.enqueue(key, after_seconds)

    def _enqueue_vm(self, key: Key, after_seconds: float = 0.0) -> None:
        self._vm_queue.enqueue(key, after_seconds)
