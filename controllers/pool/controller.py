"""Joins observing, planning and applying for pools, and decides who is looked at when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from controllers.pool.actions import ReleaseDisks
from controllers.pool.apply import Apply
from controllers.pool.machine import Machine
from controllers.pool.metrics import PoolMetrics
from controllers.pool.observe import Stores, observe
from controllers.pool.plan import plan
from controllers.pool.state import Failure, Pool
from controllers.pool.status import status
from runtime.controller import Controller
from runtime.expectations import Expectations
from runtime.resource import Key

GATHER_SECONDS = 0.1
"""Changes of a pool's VMs within this time are looked at once: a thousand VMs that start make thousands of events, and
every look costs a pass over the pool."""
STATUS_SECONDS = 1.0
"""Counts are written at most so often."""


class NotDone(Exception):
    """Something was refused; it is in the pool's status, and will be tried again after a pause."""


@dataclass
class PoolController:
    stores: Stores
    apply: Apply
    expectations: Expectations[Key]
    metrics: PoolMetrics
    burst: int
    clock: Callable[[], float]
    now: Callable[[], datetime]
    _failures: dict[Key, Failure] = field(default_factory=dict)
    _written: dict[Key, float] = field(default_factory=dict)

    async def reconcile(self, key: Key) -> float | None:
        settled = self.expectations.satisfied(key, self.clock())
        failure = self._failures.get(key)
        state = observe(self.stores, key, settled=settled, failure=failure, burst=self.burst)
        if state is None:
            await self._end(key)
            return None
        decided = plan(state, self.now())
        outcome = await self.apply(state, decided)
        if outcome.failure:
            self._failures[key] = outcome.failure
        elif state.settled:
            self._failures.pop(key, None)
        state = replace(state, failure=self._failures.get(key))
        wait = None
        fresh = status(state, decided, self.now())
        self.metrics.pool(state.pool, fresh)
        if fresh != state.pool.status and not state.pool.deleting:
            wait = self._status_wait(key)
            if wait is None:
                await self.apply.write_status(state.pool, fresh)
                self._written[key] = self.clock()
        if outcome.again:
            raise NotDone(outcome.failure.message if outcome.failure else "the cluster has changed meanwhile")
        waits = (wait, decided.again_seconds, self.expectations.wait_seconds(key, self.clock()))
        return min((w for w in waits if w is not None), default=None)

    def _status_wait(self, key: Key) -> float | None:
        left = self._written.get(key, float("-inf")) + STATUS_SECONDS - self.clock()
        return left if left > 0 else None

    async def _end(self, key: Key) -> None:
        """The pool is gone; garbage collection takes its VMs, and those whose disks are kept still wait for us."""
        namespace, name = key
        left = [m for m in self.stores.machines.by("stem", key) if m.deleting and m.keeping and m.owner_name == name]
        outcome = await self.apply.release(
            namespace, [ReleaseDisks(m.name, m.uid, m.disks, m.owner, "its pool is gone") for m in left]
        )
        if outcome.again:
            raise NotDone(outcome.failure.message if outcome.failure else "the cluster has changed meanwhile")
        self.expectations.forget(key)
        self._failures.pop(key, None)
        self._written.pop(key, None)
        self.metrics.gone(key)

    # What changed, and whose business it is

    def pool_changed(self, controller: Controller[Key], old: Pool | None, new: Pool | None) -> None:
        for each in (old, new):
            if each is not None:
                controller.enqueue(each.key)

    def machine_changed(self, controller: Controller[Key], old: Machine | None, new: Machine | None) -> None:
        self.metrics.machine(old, new)
        if new is not None and new.owner_name:
            self.expectations.saw_create((new.namespace, new.owner_name), new.name)
        leaving = old if new is None else new if new.deleting else None
        if leaving is not None and leaving.owner_name:
            self.expectations.saw_delete((leaving.namespace, leaving.owner_name), leaving.uid)
        for each in {(m.namespace, m.owner_name) for m in (old, new) if m is not None and m.owner_name}:
            controller.enqueue(each, GATHER_SECONDS)
