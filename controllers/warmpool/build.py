"""Builds the controllers of warm pools: one that reconciles and one that probes VMs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from uuid import uuid4

from controllers.shared.status_writer import StatusWriter
from controllers.warmpool.apply import WarmPoolWriter
from controllers.warmpool.cache import BackendView, Demand, WarmPoolStores, WarmVMCache
from controllers.warmpool.controller import WarmPoolController
from controllers.warmpool.health import HealthTracker
from controllers.warmpool.metrics import WarmPoolMetrics
from controllers.warmpool.warm_pool import WARM_POOLS, InvalidWarmPool, WarmPool
from runtime.api import Api
from runtime.controller import Controller
from runtime.events import EventRecorder
from runtime.expectations import Expectations
from runtime.resource import Key
from runtime.store import Store

EXPECTATIONS_SECONDS = 30.0
"""How long a pool waits for the events of its writes. It is short because a call without an answer must not stop the
pool for long: deletes carry the UID, and a VM too many is deleted again."""


class WarmPoolControllers:
    """`controllers.warmpool_and_claim` subscribes the methods `..._changed` to the caches."""

    def __init__(
        self,
        api: Api,
        events: EventRecorder,
        metrics: WarmPoolMetrics,
        *,
        pools: Store[WarmPool | InvalidWarmPool],
        cache: WarmVMCache,
        backend_of: Callable[[WarmPool], BackendView],
        vm_backend: BackendView,
        demand: Demand,
    ) -> None:
        self.expectations: Expectations[str] = Expectations(EXPECTATIONS_SECONDS)
        self._pools = pools
        self._metrics = metrics
        self._controller = WarmPoolController(
            stores=WarmPoolStores(pools, demand),
            cache=cache,
            backend_of=backend_of,
            vm_backend=vm_backend,
            apply=WarmPoolWriter(api, events, self.expectations, metrics, monotonic),
            status_writer=StatusWriter(api, WARM_POOLS, monotonic),
            health=HealthTracker(monotonic),
            expectations=self.expectations,
            metrics=metrics,
            clock=monotonic,
            now=api.now,
            seed=uuid4().hex,
            enqueue=self._enqueue,
        )
        self._reconcile: Controller[Key] = Controller("warmpool", self._controller.reconcile, metrics=api.metrics)
        self._probe: Controller[Key] = Controller("warmpool-checks", self._controller.probe, metrics=api.metrics)
        self.vm_changed, self.vmi_changed = self._controller.vm_changed, self._controller.vmi_changed
        self.node_changed = self._controller.node_changed
        demand.subscribe(self._controller.demand_changed)

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for each in (self._reconcile, self._probe):
                    group.create_task(each.run(), name=each.name)
        finally:
            self._metrics.clear()

    def enqueue_all(self) -> None:
        for each in self._pools.all():
            self._enqueue(each.key, 0.0)

    def _enqueue(self, key: Key, seconds: float) -> None:
        self._reconcile.enqueue(key, seconds)

    def pool_changed(self, old: WarmPool | InvalidWarmPool | None, new: WarmPool | InvalidWarmPool | None) -> None:
        self._controller.pool_changed(old, new)
        if new is not None:
            self._probe.enqueue(new.key)
