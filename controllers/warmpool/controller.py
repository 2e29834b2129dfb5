"""Reconciles warm pools."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from controllers.sets.write_batches import Failure, error_message, retry_unless_done
from controllers.shared.data_sources import Sources, describe_changes
from controllers.shared.image_sources import Tracked
from controllers.shared.planner import Planner, PlanTooExpensive
from controllers.shared.replica_limits import excess
from controllers.shared.status_writer import StatusWriter
from controllers.shared.subresources import Subresources
from controllers.warmpool.apply import WarmPoolOutcome, WarmPoolWriter
from controllers.warmpool.cache import BackendView, WarmPoolStores, WarmVMCache
from controllers.warmpool.changes import WarmPoolChanges
from controllers.warmpool.decisions import decisions
from controllers.warmpool.health import needs_probe
from controllers.warmpool.health_tracker import HealthTracker
from controllers.warmpool.memory import PoolMemory, WarmPoolRecords, template_hash_of
from controllers.warmpool.metrics import WarmPoolMetrics
from controllers.warmpool.orphaning import orphan_leftovers
from controllers.warmpool.plan import plan
from controllers.warmpool.rate_limit import NO_FAILURES, FailureBackoff, TokenBucket
from controllers.warmpool.reasons import WarmPoolReason as Reason
from controllers.warmpool.snapshot import WarmPoolSnapshot
from controllers.warmpool.status import invalid_spec_status, status, tracked_images, unavailable_status
from controllers.warmpool.status_events import status_events
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool, default_pool
from controllers.warmpool.warm_vm import is_unowned
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.api.kinds.warmpool import WarmPoolStatus
from poolhouse.runtime.controller import RetryWithBackoff
from poolhouse.runtime.resource import Key

MEMBERS_SECONDS = 0.25
"""Interval of writes of the status with new VMs. It is shorter than the boot of every guest."""
RESYNC_SECONDS = 30.0
"""Interval of reconciles without an event."""
PROVISIONING_PROBE_SECONDS = 2.0
UNAVAILABLE_SECONDS = 5.0
"""The status reports an unavailable backend after this time, so that a short reconnect is not reported."""


@dataclass
class WarmPoolController:
    stores: WarmPoolStores
    cache: WarmVMCache
    """The merged cache of all backends."""
    backend_of: Callable[[WarmPool], BackendView]
    vm_backend: BackendView
    apply: WarmPoolWriter
    status_writer: StatusWriter[WarmPoolStatus]
    health: HealthTracker
    subresources: Subresources
    metrics: WarmPoolMetrics
    planner: Planner
    clock: Callable[[], float]
    now: Callable[[], datetime]
    seed: str
    """A random string of this process, so that two processes generate different VM names."""
    enqueue: Callable[[Key, float], None]
    """Enqueues a pool for a reconcile after the given seconds."""
    records: WarmPoolRecords = field(init=False)
    changes: WarmPoolChanges = field(init=False)
    _reconciles: int = 0

    def __post_init__(self) -> None:
        self.records = WarmPoolRecords(self.apply, self.stores, self.now)
        self.changes = WarmPoolChanges(
            self.stores,
            self.cache,
            self.backend_of,
            self.records,
            self.apply,
            self.health,
            self.subresources,
            self.metrics,
            self.planner,
            self.now,
            self.enqueue,
        )

    async def reconcile(self, key: Key) -> float | None:
        with self.records.reconciling(lambda: self.stores.pools.get(key)):
            return await self._reconcile_stored(key)

    async def _reconcile_stored(self, key: Key) -> float | None:
        pool = self.stores.pools.get(key)
        if not isinstance(pool, WarmPool) or pool.deleting:
            await self._orphan_leftovers(key)
        if pool is None:
            self.metrics.remove(key)
            self.planner.forget(("warm pool", key))
            return None
        memory = self._memory_of(pool)
        if isinstance(pool, InvalidWarmPool):
            return await self._write_status(pool, memory, invalid_spec_status(pool, self.now()))
        if pause := self.records.pause(pool):
            return pause
        # Admission does not check changes of a pool that is being deleted, so its references prove no right.
        if not pool.deleting:
            tracked, known = Tracked(pool.tracked, pool.images, pool.authors), self.stores.images
            await known.ask(tracked)
            memory.refused_references = known.refusals(tracked, pool.status.conditions)
            images = known.images(tracked, pool.status.conditions)
            if tracked_images(images, pool.tracked) != pool.status.data_sources:
                return await self._record_images(pool, memory, images)
        try:
            return await self._reconcile(pool, memory)
        except PlanTooExpensive as error:
            return await self._set_aside(pool, memory, error)

    async def _reconcile(self, pool: WarmPool, memory: PoolMemory) -> float | None:
        view, now, clock = self.backend_of(pool), self.now(), self.clock()
        if view.problem:
            return await self._wait_for_backend(pool, memory, view)
        memory.unavailable_since = None
        self._count_recovered(pool, memory, view)
        snapshot = self._autoscale(self._observe(pool, memory, view, clock), memory, now)
        of = "warm pool", pool.key
        decided = await self.planner.run(of, plan, snapshot, now)
        memory.set_aside = None
        outcome = await self.apply(snapshot, decided, view.backend)
        memory.last_status_write.record(decisions(pool, outcome.done, now))
        memory.failures = self._failures_after(snapshot, memory, outcome, now)
        memory.refused_budget.follow(pool.uid, snapshot.evictions.refusal, outcome.budget, self.clock())
        refusal = memory.refused_budget.seen(self.clock())
        after = replace(
            snapshot,
            created=snapshot.created | self.apply.created.get(pool.uid, frozenset()),
            failures=memory.failures,
            last_error=error_message(outcome.error) if outcome.error is not None else "",
            refusal=self.subresources.refusal(vm.uid for vm in snapshot.members),
            evictions=replace(snapshot.evictions, refusal=refusal),
        )
        fresh = await self.planner.run(of, status, after, now, decided.budget)
        self.metrics.record(snapshot, fresh, clock)
        wait = await self._write_status(pool, memory, fresh)
        retry_unless_done(replace(outcome, failure=None))
        refill, failures = pool.spec.refill, memory.failures
        due = failures.seconds_until_due(now, refill), self.health.seconds_until_period_ends(pool, snapshot.members)
        times = wait, decided.requeue_seconds, refusal.wait_seconds if refusal is not None else None, *due
        return self.records.seconds_until_next([pool.uid], RESYNC_SECONDS, *times)

    async def _set_aside(self, pool: WarmPool, memory: PoolMemory, error: PlanTooExpensive) -> float | None:
        has = count_noun(sum(1 for _ in self.backend_of(pool).cache.of_pool(pool)), "VM")
        wait = await self._write_status(pool, memory, self.records.set_aside(pool, pool.generation, error, has))
        return self.records.seconds_until_next((), wait, self.records.pause(pool))

    async def _record_images(self, pool: WarmPool, memory: PoolMemory, images: Sources) -> float | None:
        """Writes the images of the tracked DataSources into the status. They are a part of the template, so the pool is
        not planned before every process can read them."""
        fresh = pool.status.model_copy(update={"data_sources": tracked_images(images, pool.tracked)})
        update = await self.status_writer.update(pool, fresh, memory.last_status_write)
        if update.written and (changes := describe_changes(pool.images, images)):
            self.apply.events.emit(pool, "Normal", Reason.IMAGE_CHANGED, changes, "Update")
        return update.wait_seconds

    def _memory_of(self, pool: WarmPool | InvalidWarmPool) -> PoolMemory:
        memory, template_hash = self.records.memory(pool), template_hash_of(pool)
        if template_hash and memory.template_hash != template_hash:
            # A new template resets the failures.
            memory.template_hash, memory.failures = template_hash, NO_FAILURES
        return memory

    async def _wait_for_backend(self, pool: WarmPool, memory: PoolMemory, view: BackendView) -> float:
        if memory.unavailable_since is None:
            memory.unavailable_since = self.clock()
        if self.clock() - memory.unavailable_since >= UNAVAILABLE_SECONDS:
            fresh = unavailable_status(pool, view.problem, self.now(), refused=view.refused)
            await self._write_status(pool, memory, fresh)
        return UNAVAILABLE_SECONDS

    def _count_recovered(self, pool: WarmPool, memory: PoolMemory, view: BackendView) -> None:
        if not memory.counted:
            memory.counted = True
            for state, count in Counter(vm.state.value for vm in view.cache.of_pool(pool) if vm.state).items():
                self.metrics.recovered.labels(*pool.key, state).inc(count)

    def _observe(self, pool: WarmPool, memory: PoolMemory, view: BackendView, clock: float) -> WarmPoolSnapshot:
        rate, tokens = pool.spec.refill.rate_per_second, math.inf
        if rate:
            memory.bucket = (memory.bucket or TokenBucket.full(rate, clock)).refill(rate, clock)
            tokens = memory.bucket.tokens
        self._reconciles += 1
        vms, demand = tuple(view.cache.of_pool(pool)), self.stores.demand
        synced = self.records.synced([pool.uid])
        return WarmPoolSnapshot(
            pool=pool,
            vms=vms,
            unowned=tuple(sorted(vm.name for vm in view.cache.with_pool_name(pool.key) if is_unowned(vm))),
            health=self.health.observe(pool, vms),
            queued_claims=demand.queued(pool.uid),
            creating_for_claims=demand.creating(pool.uid),
            reserved=demand.reserved(pool.uid),
            expectations_met=synced,
            created=self.apply.created_of(pool, vms, all_shown=synced),
            failures=memory.failures,
            tokens=tokens,
            seed=f"{self.seed}.{self._reconciles}",
            default_pool=default_pool(self.stores.pools.by("namespace", pool.namespace)),
            refused_references=memory.refused_references,
            evictions=replace(self.stores.evictions(pool, vms), refusal=memory.refused_budget.seen(clock)),
        )

    def _autoscale(self, snapshot: WarmPoolSnapshot, memory: PoolMemory, now: datetime) -> WarmPoolSnapshot:
        autoscaler, pool = memory.autoscaler, snapshot.pool
        events = self.stores.demand.take_events(pool.uid)
        autoscaler.update(pool, events, len(snapshot.depth), len(snapshot.claimed), now)
        snapshot = replace(
            snapshot,
            autoscaled=autoscaler.decision,
            autoscaling_status=autoscaler.status,
            demand_history=autoscaler.saved,
        )
        return replace(snapshot, excess=excess(snapshot.wanted, self.stores.replica_limit(pool.namespace), pool.status))

    def _failures_after(
        self, snapshot: WarmPoolSnapshot, memory: PoolMemory, outcome: WarmPoolOutcome, now: datetime
    ) -> FailureBackoff:
        pool, failures, refill = snapshot.pool, snapshot.failures, snapshot.pool.spec.refill
        if memory.bucket is not None:
            memory.bucket = memory.bucket.take(outcome.created)
        failed: tuple[Failure, ...] = (outcome.failure,) if outcome.failure else outcome.lost
        if outcome.became_ready:
            failures = NO_FAILURES
        elif failed:
            for each in failed:
                failures = failures.failed(each.reason, each.message, now, refill, pool.uid)
                self.metrics.failures.labels(*pool.key, each.reason).inc()
        elif outcome.created and failures.reason != Reason.READINESS_TIMEOUT:
            failures = NO_FAILURES
        if outcome.created and snapshot.breaker_open:
            failures = failures.tested(now, refill, pool.uid)
        return failures if snapshot.target or snapshot.members else NO_FAILURES

    async def _write_status(
        self, pool: WarmPool | InvalidWarmPool, memory: PoolMemory, fresh: WarmPoolStatus
    ) -> float | None:
        """Returns the seconds until the next allowed write, if the last write was too recent."""
        if isinstance(pool, WarmPool) and pool.deleting:
            return None
        memory.last_status_write.record(self.stores.demand.take_deletions(pool.uid))
        # New VMs become Ready only after the status has them.
        interval = MEMBERS_SECONDS if set(fresh.members or ()) - set(pool.status.members or ()) else None
        update = await self.status_writer.update(pool, fresh, memory.last_status_write, interval_seconds=interval)
        if update.written:
            before, memory.status = memory.status or pool.status, fresh
            for each in status_events(before, fresh):
                self.apply.events.emit(pool, each.type, each.reason, each.note, "Status")
        return update.wait_seconds

    async def _orphan_leftovers(self, key: Key) -> None:
        """Orphans VMs of a deleted pool that have no owner reference to the pool."""
        leftovers = [vm for vm in self.vm_backend.cache.with_pool_name(key) if self.stores.pool_of(vm) is None]
        orphans = [each for vm in leftovers for each in orphan_leftovers([vm], vm.pool_uid)]
        if orphans and not await self.apply.orphan(orphans, self.vm_backend.backend):
            raise RetryWithBackoff("not all VMs of a deleted pool are labelled yet")

    async def probe(self, key: Key) -> float | None:
        """Probes the pool's VMs. Returns the seconds until the next probe."""
        pool = self.stores.pools.get(key)
        if not isinstance(pool, WarmPool) or not needs_probe(pool) or pool.deleting:
            return None
        view = self.backend_of(pool)
        vms = view.cache.of_pool(pool)
        if not view.problem and await self.health.probe(pool, vms, view.backend):
            self.enqueue(key, 0.0)
        provisioning = any(vm.state in (WarmState.PROVISIONING, WarmState.STANDING_BY) for vm in vms)
        period = float(pool.spec.health.period_seconds)
        return min(PROVISIONING_PROBE_SECONDS, period) if provisioning else period
