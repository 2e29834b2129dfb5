"""The parts of warm pools, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from uuid import uuid4

from controllers.warmpool.apply import WarmPoolWriter
from controllers.warmpool.cache import WarmVMCache
from controllers.warmpool.controller import WarmPoolController
from controllers.warmpool.demand import Demand
from controllers.warmpool.health_tracker import HealthTracker
from controllers.warmpool.metrics import WarmPoolMetrics
from controllers.warmpool.node import Node
from controllers.warmpool.observe import BackendView, WarmPoolStores
from controllers.warmpool.vmi import VMI
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool
from controllers.warmpool.warm_vm import WarmVM
from runtime.api import Api
from runtime.controller import Controller
from runtime.events import EventRecorder
from runtime.expectations import Expectations
from runtime.resource import Key
from runtime.store import Store

EXPECTATIONS_SECONDS = 30.0
"""How long a pool waits to see what it made or removed. A call that got no answer must not idle it for long; deletes
carry the UID, and a machine too many is removed again."""


class WarmPools:
    """All that fills pools and keeps them well. Whoever builds it subscribes it to the stores that it reads."""

    def __init__(
        self,
        api: Api,
        events: EventRecorder,
        metrics: WarmPoolMetrics,
        *,
        pools: Store[WarmPool | InvalidWarmPool],
        queues: WarmVMCache,
        fleet: Callable[[WarmPool], BackendView],
        virtual: BackendView,
        demand: Demand,
    ) -> None:
        self.expectations: Expectations[str] = Expectations(EXPECTATIONS_SECONDS)
        self._pools = pools
        self._metrics = metrics
        self._controller = WarmPoolController(
            stores=WarmPoolStores(pools, demand),
            queues=queues,
            fleet=fleet,
            virtual=virtual,
            apply=WarmPoolWriter(api, events, self.expectations, metrics, monotonic),
            checks=HealthTracker(monotonic),
            expectations=self.expectations,
            metrics=metrics,
            clock=monotonic,
            now=api.now,
            seed=uuid4().hex,
        )
        self._filling: Controller[Key] = Controller("warmpool", self._controller.reconcile, metrics=api.metrics)
        self._asking: Controller[Key] = Controller("warmpool-checks", self._ask, metrics=api.metrics)
        demand.subscribe(self._demand_changed)

    async def run(self) -> None:
        """What only a leader does."""
        try:
            async with asyncio.TaskGroup() as group:
                for each in (self._filling, self._asking):
                    group.create_task(each.run(), name=each.name)
        finally:
            self._metrics.clear()

    def look_at_all(self) -> None:
        for each in self._pools.all():
            self._filling.enqueue(each.key, 0.0)

    def pool_changed(self, old: WarmPool | InvalidWarmPool | None, new: WarmPool | InvalidWarmPool | None) -> None:
        self._controller.pool_changed(self._filling.enqueue, old, new)
        if new is not None:
            self._asking.enqueue(new.key)

    def vm_changed(self, old: WarmVM | None, new: WarmVM | None) -> None:
        self._controller.vm_changed(self._filling.enqueue, old, new)

    def vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        self._controller.vmi_changed(self._filling.enqueue, old, new)

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        self._controller.node_changed(self._filling.enqueue, old, new)

    def _demand_changed(self, pool_uid: str) -> None:
        self._controller.demand_changed(self._filling.enqueue, pool_uid)

    async def _ask(self, key: Key) -> float | None:
        return await self._controller.ask(self._filling.enqueue, key)
