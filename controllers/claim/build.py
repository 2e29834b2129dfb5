"""The parts of claims, put together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import count
from time import monotonic

from controllers.claim.apply import ClaimWriter
from controllers.claim.controller import ClaimController
from controllers.claim.garbage_collector import GarbageCollector
from controllers.claim.metrics import ClaimMetrics
from controllers.claim.observe import ClaimObserver, Floor, Stores
from controllers.claim.snapshot import CLAIMS, Claim, by_uid, read_claim
from controllers.warmpool.backends import Backend
from controllers.warmpool.cache import WarmVMCache
from controllers.warmpool.demand import Demand
from controllers.warmpool.node import Node
from controllers.warmpool.vmi import VMI
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

BEGINNINGS = Backoff(base_seconds=0.5, cap_seconds=10)
WORKERS = 512
"""Claims that are worked on at once, those included that only wait for a machine to answer."""


class ClaimControllers:
    """All that gives machines away. Its stores are shared with the pools; whoever builds both subscribes it to them."""

    def __init__(
        self,
        api: Api,
        events: EventRecorder,
        metrics: ClaimMetrics,
        *,
        pools: Store[WarmPool | InvalidWarmPool],
        queues: WarmVMCache,
        machines: Callable[[WarmPool | None], Backend],
        demand: Demand,
        filling: Expectations[str],
        unseen: Callable[[WarmPool], str | None] = lambda pool: None,
    ) -> None:
        self.informer: Informer[Claim] = Informer(api, CLAIMS, read_claim, indexes={"uid": by_uid})
        stores = Stores(self.informer.store, pools, queues)
        floor = Floor(demand=demand)
        claiming = ClaimWriter(api, events, machines, stores, floor, metrics, monotonic, api.now)
        self._controller = ClaimController(
            api,
            stores,
            floor,
            ClaimObserver(stores, floor, filling, monotonic, unseen),
            claiming,
            api.now,
            self._enqueue,
        )
        self._strays = GarbageCollector(api, stores.claims, queues.vms, machines, pools, self._enqueue_stray)
        self._work: Controller[Key] = Controller(
            "claim", self._controller.reconcile, workers=WORKERS, metrics=api.metrics
        )
        self._clearing: Controller[Key] = Controller("stray", self._strays.reconcile, workers=2, metrics=api.metrics)
        demand.subscribe(self._controller.next_in_line)
        self.informer.subscribe(self._controller.claim_changed)
        self.informer.subscribe(self._strays.claim_changed)

    async def run(self) -> None:
        """What only a leader does."""
        try:
            await self._begin()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._work.run(), name="claims")
                group.create_task(self._clearing.run(), name="strays")
        finally:
            self._controller.end()

    async def _begin(self) -> None:
        for failures in count(1):
            try:
                await self._controller.begin()
                break
            except ApiError as error:
                log.warning("claims: cannot begin: %s", error)
                await asyncio.sleep(BEGINNINGS.delay(failures))

    def vm_changed(self, old: WarmVM | None, new: WarmVM | None) -> None:
        self._controller.vm_changed(old, new)
        self._strays.vm_changed(old, new)

    def vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        self._controller.vmi_changed(old, new)

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        self._controller.node_changed(old, new)

    def pool_changed(self, old: WarmPool | InvalidWarmPool | None, new: WarmPool | InvalidWarmPool | None) -> None:
        self._controller.pool_changed(old, new)

    def _enqueue(self, key: Key, after_seconds: float = 0.0) -> None:
        self._work.enqueue(key, after_seconds)

    def _enqueue_stray(self, key: Key, after_seconds: float = 0.0) -> None:
        self._clearing.enqueue(key, after_seconds)
