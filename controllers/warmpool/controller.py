"""Joins observing, planning and applying for warm pools, and decides who is looked at when."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from controllers.warmpool.apply import Outcome, WarmPoolWriter
from controllers.warmpool.cache import WarmVMCache
from controllers.warmpool.events import status_events
from controllers.warmpool.health_tracker import HealthTracker, needs_probe
from controllers.warmpool.metrics import WarmPoolMetrics
from controllers.warmpool.node import Node
from controllers.warmpool.observe import BackendView, WarmPoolStores, observe
from controllers.warmpool.orphaning import orphan_leftovers
from controllers.warmpool.plan import plan
from controllers.warmpool.rate_limit import NO_FAILURES, FailureBackoff, TokenBucket
from controllers.warmpool.snapshot import WarmPoolSnapshot, waits_for_scheduling
from controllers.warmpool.status import invalid_spec_status, status, unavailable_status
from controllers.warmpool.vmi import VMI
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool
from controllers.warmpool.warm_vm import WarmVM, seconds_since
from kinds.warm_states import WarmState
from kinds.warmpool import WarmPoolStatus
from runtime.controller import RetryWithBackoff
from runtime.errors import Throttled
from runtime.expectations import Expectations
from runtime.resource import Key

GATHER_SECONDS = 0.1
"""Changes of a pool's machines within this time are looked at once,"""
SHARE = 5.0
"""and within so many times what a look takes: a pool of thousands must not keep the process from serving claims."""
STATUS_SECONDS = 1.0
"""Counts are written at most so often."""
DEPTH_CHECK_SECONDS = 30.0
"""The document's check on a time basis. It finds what no event told, and writes nothing where nothing has changed."""
PROVISIONING_PERIOD_SECONDS = 2.0
"""Machines that have to be asked are asked so often until they are ready."""

BLIND_SECONDS = 5.0
"""For so long nobody is told that machines can't be seen: a connection that is made anew is no news."""

Enqueue = Callable[[Key, float], None]


@dataclass
class WarmPoolController:
    stores: WarmPoolStores
    queues: WarmVMCache
    fleet: Callable[[WarmPool], BackendView]
    """who holds this pool's machines"""
    virtual: BackendView
    apply: WarmPoolWriter
    checks: HealthTracker
    expectations: Expectations[str]
    metrics: WarmPoolMetrics
    clock: Callable[[], float]
    now: Callable[[], datetime]
    seed: str
    """another one in every process: names that it makes are its own"""
    _failures: dict[str, FailureBackoff] = field(default_factory=dict)
    _templates: dict[str, str] = field(default_factory=dict)
    """of which template the failures are"""
    _buckets: dict[str, TokenBucket] = field(default_factory=dict)
    _written: dict[str, float] = field(default_factory=dict)
    _said: dict[str, WarmPoolStatus] = field(default_factory=dict)
    """what was written last, which the store may not show yet"""
    _blind_since: dict[str, float] = field(default_factory=dict)
    _took: dict[Key, float] = field(default_factory=dict)
    """how long a look at a pool kept the process from all else"""
    _looks: int = 0

    async def reconcile(self, key: Key) -> float | None:
        pool = self.stores.pools.get(key)
        if not isinstance(pool, WarmPool) or pool.deleting:
            await self._leave_alone(key)
        match pool:
            case None:
                self.metrics.gone(key)
                self._took.pop(key, None)
                return None
            case InvalidWarmPool():
                return await self._say_status(pool, invalid_spec_status(pool, self.now()))
            case WarmPool():
                return await self._keep_up(pool)

    async def _keep_up(self, pool: WarmPool) -> float:
        fleet, now, clock = self.fleet(pool), self.now(), self.clock()
        if fleet.blind:
            return await self._wait_for_sight(pool, fleet.blind)
        self._blind_since.pop(pool.uid, None)
        if pool.uid not in self._failures:
            self._begin(pool, fleet)
        self._begin_anew(pool)
        state = self._observe(pool, fleet, clock)
        decided = plan(state, now)
        took = self.clock() - clock
        outcome = await self.apply(state, decided, fleet.machines)
        failures = self._learned(state, outcome, now)
        if self.stores.of(pool.uid) is not None:  # it may have gone meanwhile, and what was known of it
            self._failures[pool.uid] = failures
        summing_up = self.clock()
        fresh = status(replace(state, failures=failures, last_error=_said(outcome.last_error)), now)
        self.metrics.pool(state, fresh, clock)
        self._took[pool.key] = took + self.clock() - summing_up
        wait = await self._say_status(pool, fresh)
        if outcome.again:
            # A server that says when to come back is obeyed.
            if isinstance(outcome.last_error, Throttled):
                raise outcome.last_error
            raise RetryWithBackoff(_said(outcome.last_error) or "the cluster has changed meanwhile")
        waits = (
            wait,
            decided.requeue_seconds,
            self.checks.seconds_until_period_ends(pool, state.members),
            self.expectations.wait_seconds(pool.uid, clock),
            # What was refused is tried again when its pause is over, not when the next thing happens.
            failures.seconds_until_due(now),
        )
        return min(w for w in (DEPTH_CHECK_SECONDS, *waits) if w is not None)

    async def _wait_for_sight(self, pool: WarmPool, why: str) -> float:
        """Who can't see neither counts nor does anything; a while later it says so."""
        since = self._blind_since.setdefault(pool.uid, self.clock())
        if self.clock() - since >= BLIND_SECONDS:
            await self._say_status(pool, unavailable_status(pool, why, self.now()))
        return BLIND_SECONDS

    def _observe(self, pool: WarmPool, fleet: BackendView, clock: float) -> WarmPoolSnapshot:
        rate = pool.spec.refill.rate_per_second
        if rate:
            bucket = self._buckets.get(pool.uid) or TokenBucket.full(rate, clock)
            self._buckets[pool.uid] = bucket.filled(rate, clock)
        self._looks += 1
        return observe(
            self.stores,
            pool,
            fleet,
            self.checks.look,
            expectations_met=self.expectations.satisfied(pool.uid, clock),
            failures=self._failures[pool.uid],
            tokens=self._buckets[pool.uid].tokens if rate else math.inf,
            seed=f"{self.seed}.{self._looks}",
        )

    def _begin(self, pool: WarmPool, fleet: BackendView) -> None:
        """The first look of this process at the pool: what it must not forget is read from what it wrote before."""
        self._failures[pool.uid] = FailureBackoff.read(pool.status)
        for word, count in Counter(m.state.value for m in fleet.all(pool.uid) if m.state).items():
            self.metrics.recovered.labels(*pool.key, word).inc(count)

    def _begin_anew(self, pool: WarmPool) -> None:
        """What failed with another template says nothing about this one: nobody who mends it waits for old pauses."""
        before = self._templates.setdefault(pool.uid, pool.status.template_hash or pool.template_hash)
        if before != pool.template_hash:
            self._templates[pool.uid], self._failures[pool.uid] = pool.template_hash, NO_FAILURES

    def _learned(self, state: WarmPoolSnapshot, outcome: Outcome, now: datetime) -> FailureBackoff:
        """Failures in a row, after what came of the last calls."""
        pool, failures, refill = state.pool, state.failures, state.pool.spec.refill
        if outcome.created and (bucket := self._buckets.get(pool.uid)) is not None:
            self._buckets[pool.uid] = bucket.spent(outcome.created)
        if outcome.ripe:
            failures = NO_FAILURES
        elif outcome.refusal:
            failures = failures.failed(outcome.refusal.reason, outcome.refusal.message, now, refill, pool.uid)
            self.metrics.failures.labels(*pool.key, outcome.refusal.reason).inc()
        elif outcome.lost:
            for each in outcome.lost:
                failures = failures.failed(each.reason, each.message, now, refill, pool.uid)
                self.metrics.failures.labels(*pool.key, each.reason).inc()
        elif outcome.created and failures.reason != "ReadinessTimeout":
            failures = NO_FAILURES
        if outcome.created and state.breaker_open:
            failures = failures.probed(now, refill, pool.uid)
        return failures if state.target or state.members else NO_FAILURES

    async def _say_status(self, pool: WarmPool | InvalidWarmPool, fresh: WarmPoolStatus) -> float | None:
        """Writes a status that has changed, or returns how long to wait with it."""
        if isinstance(pool, WarmPool) and pool.deleting:
            return None
        known = self._said.get(pool.uid, pool.status)
        if fresh == pool.status and known == fresh:
            return None
        left = self._written.get(pool.uid, float("-inf")) + STATUS_SECONDS - self.clock()
        if left > 0:
            return left
        await self.apply.write_status(pool, fresh)
        self._written[pool.uid], self._said[pool.uid] = self.clock(), fresh
        for each in status_events(known, fresh):
            self.apply.say(pool, each.type, each.reason, each.note, "Status")
        return None

    async def _leave_alone(self, key: Key) -> None:
        """Machines whose pool is gone, and that it does not own any more."""
        gone = [m for m in self.virtual.named(key) if self.stores.of(m.pool_uid) is None]
        orphans = [each for m in gone for each in orphan_leftovers([m], m.pool_uid)]
        if orphans and not await self.apply.orphan(orphans, self.virtual.machines):
            raise RetryWithBackoff("not all machines of a pool that is gone are labelled")

    async def ask(self, enqueue: Enqueue, key: Key) -> float | None:
        """Checks the machines that have to be asked; when to come back."""
        pool = self.stores.pools.get(key)
        if not isinstance(pool, WarmPool) or not needs_probe(pool) or pool.deleting:
            return None
        fleet = self.fleet(pool)
        machines = fleet.all(pool.uid)
        if not fleet.blind and await self.checks.ask(pool, machines, fleet.machines):
            enqueue(key, 0.0)
        waiting = any(m.state in (WarmState.PROVISIONING, WarmState.STANDING_BY) for m in machines)
        period = float(pool.spec.health.period_seconds)
        return min(PROVISIONING_PERIOD_SECONDS, period) if waiting else period

    @property
    def _memories(self) -> tuple[dict[str, Any], ...]:
        """By UID of the pool."""
        return self._failures, self._templates, self._buckets, self._written, self._said, self._blind_since

    # What changed, and whose business it is

    def pool_changed(
        self, enqueue: Enqueue, old: WarmPool | InvalidWarmPool | None, new: WarmPool | InvalidWarmPool | None
    ) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self.expectations.forget(old.uid)
            self.apply.forget(old.uid)
            for memory in self._memories:
                memory.pop(old.uid, None)
        for each in (old, new):
            if each is not None:
                enqueue(each.key, 0)
        if _wish(old) != _wish(new):
            pool = new or old
            assert pool is not None
            for other in self.stores.pools.by("namespace", pool.namespace):
                enqueue(other.key, 0)

    def vm_changed(self, enqueue: Enqueue, old: WarmVM | None, new: WarmVM | None) -> None:
        uids = {m.pool_uid for m in (old, new) if m is not None and m.pool_uid}
        waited = self._waiting(uids)
        if new is not None:
            self.expectations.creation_observed(new.pool_uid, new.name)
            self._refilled(old, new)
        leaving = old if new is None else new if new.deleting else None
        if leaving is not None:
            self.expectations.deletion_observed(leaving.pool_uid, leaving.uid)
        if old is not None and (new is None or new.uid != old.uid):
            self.checks.forget(old.uid)
            self._vacated(old)
        # The last that was waited for is worth a look at once: the next burst begins with it.
        seen = bool(waited - self._waiting(uids))
        for key in {(m.namespace, m.pool) for m in (old, new) if m is not None and m.pool}:
            enqueue(key, 0 if seen else self._pause(key))

    def _vacated(self, gone: WarmVM) -> None:
        """The pause after what makes room begins when the room is there: a guest takes its time to end, and only then
        is there a place to be taken by who waits for one."""
        pool, failures = self.stores.pools.get((gone.namespace, gone.pool)), self._failures.get(gone.pool_uid)
        if not isinstance(pool, WarmPool) or failures is None or failures.reason != "NoRoom" or gone.claim_uid:
            return
        if any(waits_for_scheduling(m) for m in self.fleet(pool).all(gone.pool_uid)):
            self._failures[gone.pool_uid] = failures.probed(self.now(), pool.spec.refill, gone.pool_uid)

    def vmi_changed(self, enqueue: Enqueue, old: VMI | None, new: VMI | None) -> None:
        key = next(each.key for each in (new, old) if each is not None)
        self._enqueue_of(enqueue, self.queues.vms.get(key))

    def node_changed(self, enqueue: Enqueue, old: Node | None, new: Node | None) -> None:
        name = next(each.name for each in (new, old) if each is not None)
        for m in self.queues.on(name):
            self._enqueue_of(enqueue, m)

    def demand_changed(self, enqueue: Enqueue, pool_uid: str) -> None:
        """The first claim in line need not wait; thousands that join it are not a look each."""
        if (pool := self.stores.of(pool_uid)) is not None:
            enqueue(pool.key, 0.0 if self.stores.demand.queued(pool_uid) <= 1 else self._pause(pool.key))

    def _enqueue_of(self, enqueue: Enqueue, m: WarmVM | None) -> None:
        if m is not None and m.pool:
            key = m.namespace, m.pool
            enqueue(key, self._pause(key))

    def _pause(self, key: Key) -> float:
        return max(GATHER_SECONDS, SHARE * self._took.get(key, 0.0))

    def _refilled(self, old: WarmVM | None, new: WarmVM) -> None:
        if (
            old is not None
            and old.state in (WarmState.PROVISIONING, WarmState.STANDING_BY)
            and new.state is WarmState.READY
        ):
            self.metrics.refill.labels(new.namespace, new.pool).observe(
                max(0.0, seconds_since(new.created_at, self.now()))
            )

    def _waiting(self, owners: set[str]) -> set[str]:
        """Those for which something is expected to be seen."""
        return {owner for owner in owners if any(self.expectations.open(owner))}


def _said(error: Exception | None) -> str:
    return "" if error is None else str(error) or "no answer in time"


def _wish(pool: WarmPool | InvalidWarmPool | None) -> tuple[str, bool]:
    return (pool.uid, pool.spec.default and not pool.deleting) if isinstance(pool, WarmPool) else ("", False)
