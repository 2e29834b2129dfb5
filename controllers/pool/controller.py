"""Reconciles pools."""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import ParamSpec, TypeVar

from controllers.pool.apply import PoolWriter
from controllers.pool.changes import PoolChanges
from controllers.pool.decide import Decided, conclude, decide, decide_rest, what_costs
from controllers.pool.disk_writers import DiskWriters
from controllers.pool.memory import PoolRecords, pool_records
from controllers.pool.metrics import PoolMetrics
from controllers.pool.observe import observe
from controllers.pool.pool_readiness import invalid_spec_status
from controllers.pool.pools import InvalidPool, Pool
from controllers.pool.reports import report
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.stores import Stores
from controllers.pool.writes.releases import release_left
from controllers.sets.write_batches import retry_unless_done
from controllers.shared.planner import Planner, PlanTooExpensive
from controllers.shared.status_writer import StatusWriter
from poolhouse.api.kinds.pool import PoolStatus
from poolhouse.runtime.resource import Key

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class PoolController:
    stores: Stores
    writer: PoolWriter
    statuses: StatusWriter[PoolStatus]
    metrics: PoolMetrics
    planner: Planner
    burst: int
    clock: Callable[[], float]
    now: Callable[[], datetime]
    find_collected: Callable[[Iterable[Key]], Awaitable[set[Key]]]
    measure_after: Callable[[Key, float], None] = lambda key, seconds: None
    """adds a pool to the queue of measurements"""
    records: PoolRecords = field(init=False)
    disk_writers: DiskWriters = field(init=False)
    changes: PoolChanges = field(init=False)

    def __post_init__(self) -> None:
        self.records = pool_records(self.writer.batches, self.stores.owner_of, self.now)
        self.changes = PoolChanges(self.stores, self.records, self.writer, self.metrics, self.planner, self.clock)
        self.disk_writers = DiskWriters(self.records.expectations)

    def begin(self) -> None:
        """Begins to lead. The previous leader has seen the VMIs that ended before, and recorded its decisions."""
        self.records.begin()
        for memory in self.records.memories.values():
            memory.ended_vmis.clear()

    def forget(self) -> None:
        """Forgets all pools when another replica becomes the leader, which then changes their statuses."""
        self.metrics.clear()
        self.records.memories.clear()
        for key in list(self.stores.former_disks.keys()):
            self.stores.note_former_disks(key, frozenset())

    async def reconcile(self, key: Key) -> float | None:
        with self.records.reconciling(lambda: self.stores.pools.get(key)):
            return await self._reconcile_stored(key)

    async def _reconcile_stored(self, key: Key) -> float | None:
        self.stores.collected.update(await self.find_collected(self.stores.without_data_volume(key)))
        pool = self.stores.pools.get(key)
        if isinstance(pool, Pool) and (pause := self.records.pause(pool)):
            return pause
        try:
            if isinstance(pool, Pool):
                await self.stores.revisions.prepare(pool, partial(self._planned, pool))
            snapshot = self.observe(key)
            if isinstance(snapshot, PoolSnapshot) and await self.stores.instancetypes.read(snapshot):
                snapshot = self.observe(key)
            if isinstance(snapshot, PoolSnapshot):
                return await self._reconcile(snapshot)
        except PlanTooExpensive as error:
            assert isinstance(pool, Pool)
            return await self._set_aside(pool, error)
        # Without a valid pool, the controller only releases disks of deleted VMs.
        left = self.stores.awaiting_release(key)
        retry_unless_done(await release_left(self.writer.api, self.writer.batches, key[0], left))
        if snapshot is not None:
            return await self._update_status(snapshot, invalid_spec_status(snapshot, self.now()))
        self.metrics.gone(key)
        self.planner.forget(("pool", key))
        self.stores.revisions.forget(key)
        self.stores.instancetypes.forget(key)
        self.stores.note_former_disks(key, frozenset())
        return None

    def observe(self, key: Key) -> PoolSnapshot | InvalidPool | None:
        pool = self.stores.pools.get(key)
        if not isinstance(pool, Pool):
            return pool
        memory = self.records.memory(pool)
        snapshot = observe(self.stores, key, synced=True, failure=memory.failure, burst=self.burst)
        assert isinstance(snapshot, PoolSnapshot)
        self.stores.note_former_disks(key, snapshot.disks - pool.disks)
        synced = self.records.synced(self._writers(pool, snapshot))
        leaving = snapshot.leaving | self.stores.cluster.leaving(memory.ended_vmis)
        gone = self.records.gone_disks.names(pool.name, snapshot.disks, self.clock())
        snapshot = replace(
            snapshot,
            synced=synced,
            refused=self.writer.batches.refused(pool.uid),
            leaving=leaving,
            recently_deleted=snapshot.recently_deleted | gone,
        )
        return memory.added_to(snapshot, self.clock())

    def _writers(self, pool: Pool, snapshot: PoolSnapshot) -> set[str]:
        """UIDs of the pools whose writes the stores must show: this pool, and pools that had the same disk names when
        they wrote. Otherwise two pools could use a name at the same time. This pool is reconciled again when another
        one has written."""
        others = self.disk_writers.of(snapshot.new_disks) - {pool.uid}
        self.disk_writers.wait(pool.key, others)
        return {pool.uid, *others}

    async def _reconcile(self, snapshot: PoolSnapshot) -> float | None:
        pool, now, memory = snapshot.pool, self.now(), self.records.memory(snapshot.pool)
        disks = snapshot.new_disks
        self.metrics.follow(pool.key)
        measured, ended = len(memory.measurements), len(snapshot.ended_vmis)
        if pause := self.disk_writers.pause(pool.uid, disks):
            return pause
        with self.disk_writers.planning() as written:
            decided = await self._decide(snapshot, now)
        snapshot = decided.snapshot
        if not written.isdisjoint(disks):
            return 0.0  # another pool may have used a name of a disk that the snapshot shows as free
        with self.disk_writers.writing(pool.uid, disks) if disks and decided.plan.names_disks else nullcontext():
            if decided.before_healing is not None:
                await self._remember_healing(pool, decided.before_healing)
            report(self.writer.events, snapshot, decided.invalid_scale_in, memory, self.clock(), self.now())
            outcome = await self.writer.apply(snapshot, decided.plan)
        memory.written(snapshot, outcome, self.clock())
        refusal = memory.refused_budget.seen(self.clock())
        done = await self._planned(pool, conclude, decided, outcome.not_done, memory.failure, refusal, now)
        fresh = done.status
        memory.last_status_write.record(done.decisions)
        memory.healing, memory.update = fresh.healing, fresh.update
        del memory.measurements[:measured], memory.ended_vmis[:ended]
        self.metrics.acted(pool.key, done.plan.actions)
        if done.plan.healed != decided.plan.healed:
            # A VM that was not replaced must not have a pause.
            await self._remember_healing(pool, fresh)
        self.metrics.pool(pool, fresh)
        if done.measure_seconds is not None:
            self.measure_after(pool.key, done.measure_seconds)
        wait = None if pool.deleting else await self._update_status(self._stored(pool), fresh)
        retry_unless_done(outcome)
        times = wait, decided.plan.again_seconds, refusal.wait_seconds if refusal is not None else None
        return self.records.seconds_until_next(self._writers(pool, snapshot), *times)

    async def _decide(self, snapshot: PoolSnapshot, now: datetime) -> Decided:
        decided = await self._planned(snapshot.pool, decide, snapshot, now)
        if isinstance(decided, PoolSnapshot):
            snapshot = await self._rolled_back(snapshot, decided)
            decided = await self._planned(snapshot.pool, decide_rest, snapshot, now)
        self.records.memory(snapshot.pool).set_aside = None
        return decided

    async def _planned(self, pool: Pool, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        return await self.planner.run(("pool", pool.key), function, *arguments, **named)

    async def _set_aside(self, pool: Pool, error: PlanTooExpensive) -> float | None:
        has = what_costs(pool, len(self.stores.vms.by("owner", (pool.namespace, pool.uid))))
        stored = self._stored(pool)
        wait = await self._update_status(stored, self.records.set_aside(stored, pool.generation, error, has))
        return self.records.seconds_until_next((), wait, self.records.pause(pool))

    async def _rolled_back(self, wanted: PoolSnapshot, found: PoolSnapshot) -> PoolSnapshot:
        """The snapshot in which the pool has its former template, if the update is aborted in `found`."""
        if found.aborted is None:
            return wanted
        aborted, abort = found.aborted
        known = wanted.pool.status.update
        if known is None or known.revision != aborted.name or known.aborted is None:
            self.writer.events.update_aborted(wanted.pool, aborted.name, found.revision.name, abort)
        pool = await self.writer.templates.pool_with_revision(wanted, found.revision.label)
        return replace(found, pool=pool) if pool is not None else wanted

    async def _remember_healing(self, pool: Pool, fresh: PoolStatus) -> None:
        memory = self.records.memory(pool)
        await self.statuses.write(pool, fresh, memory.last_status_write)
        memory.healing = fresh.healing

    async def _update_status(self, pool: Pool | InvalidPool, fresh: PoolStatus) -> float | None:
        update = await self.statuses.update(pool, fresh, self.records.memory(pool).last_status_write)
        if update.written and not isinstance(pool, Pool):
            self.writer.events.invalid_spec(pool)
        return update.wait_seconds

    def _stored(self, pool: Pool) -> Pool:
        """The pool with the stored status. A snapshot has what the memory adds to it, which may not be written yet."""
        stored = self.stores.pools.get(pool.key)
        return stored if isinstance(stored, Pool) and stored.uid == pool.uid else pool
