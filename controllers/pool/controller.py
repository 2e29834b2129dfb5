"""Joins observing, planning and applying for pools, and decides who is looked at when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from controllers.pool.actions import Create, Delete, ReleaseDisks
from controllers.pool.apply import PoolWriter
from controllers.pool.batch import Outcome
from controllers.pool.events import PoolEvents
from controllers.pool.guest import VMI
from controllers.pool.keep import release
from controllers.pool.machine import VM
from controllers.pool.memory import DeletedVMs
from controllers.pool.metrics import PoolMetrics
from controllers.pool.naming import has_revision, ordinal_of, parent_and_ordinal
from controllers.pool.observe import observe
from controllers.pool.plan import Plan, plan
from controllers.pool.retained_disks import RetainedDisk
from controllers.pool.scale_in import with_invalid_scale_in
from controllers.pool.snapshot import Failure, InvalidSpec, Pool, PoolSnapshot
from controllers.pool.status import healed, invalid_spec_status, pool_status
from controllers.pool.stores import Stores
from kinds.pool import Healing, PoolStatus
from runtime.controller import RetryWithBackoff
from runtime.expectations import Expectations
from runtime.resource import Key

GATHER_SECONDS = 0.1
"""Changes of a pool's VMs within this time are looked at once: a thousand VMs that start make thousands of events, and
every look costs a pass over the pool."""
SAID_SECONDS = 30.0
"""News that is older when we come to lead was told by who led before."""
STATUS_SECONDS = 1.0
"""Counts are written at most so often."""

Enqueue = Callable[[Key, float], None]


@dataclass
class PoolController:
    stores: Stores
    apply: PoolWriter
    news: PoolEvents
    expectations: Expectations[str]
    metrics: PoolMetrics
    burst: int
    clock: Callable[[], float]
    now: Callable[[], datetime]
    _failures: dict[str, Failure] = field(default_factory=dict)
    _written: dict[str, float] = field(default_factory=dict)
    _misread: dict[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    """wishes about scale-in that are none, and were said to be so, by pool"""
    _moved: dict[str, dict[str, tuple[bool, float]]] = field(default_factory=dict)
    """VMs whose owner reference came back or went, and when, by pool, until that was said"""
    _leftovers: DeletedVMs = field(default_factory=DeletedVMs)
    _healing: dict[str, Healing | None] = field(default_factory=dict)
    """what was written before VMs were replaced, which the store may not show yet"""

    async def reconcile(self, key: Key) -> float | None:
        state = self._observe(key)
        match state:
            case PoolSnapshot():
                return await self._keep_up(state)
            case InvalidSpec():
                self._finished(await self.apply.release(key[0], self._left(key)))
                return await self._say_status(state, invalid_spec_status(state, self.now()))
            case None:
                self._finished(await self.apply.release(key[0], self._left(key)))
                self.metrics.gone(key)
                return None

    def _observe(self, key: Key) -> PoolSnapshot | InvalidSpec | None:
        uid, *others = self._writers(key)
        settled = all(self.expectations.satisfied(each, self.clock()) for each in (uid, *others))
        state = observe(self.stores, key, settled=settled, failure=self._failures.get(uid), burst=self.burst)
        return self._with_memory(state) if isinstance(state, PoolSnapshot) else state

    def _writers(self, key: Key) -> list[str]:
        """UIDs of those whose writes a plan must have seen: the pool's, and of pools whose VMs have disks of the same
        names. Two of them that are made at once would each find the names free."""
        pool = self.stores.pools.get(key)
        others = self.stores.sharing(pool) if isinstance(pool, Pool) else ()
        return [pool.uid if pool else "", *{other.uid for _, other in others}]

    def _with_memory(self, state: PoolSnapshot) -> PoolSnapshot:
        state = replace(state, unwanted=self.apply.batches.unwanted(state.pool.uid))
        if gone := self._leftovers.suspect(state.pool.uid, self.clock()):
            passed_over = self._leftovers.passed_over(state.pool.uid, self.clock())
            ordinals = {ordinal for name in passed_over if (ordinal := ordinal_of(state.pool.name, name)) is not None}
            state = replace(state, gone=gone, taken=state.taken | ordinals)
        if state.pool.spec.autohealing is None:
            self._healing.pop(state.pool.uid, None)
        pool, known = state.pool, self._healing.get(state.pool.uid)
        if known is None or (pool.status.healing or Healing()).replaced >= known.replaced:
            return state
        return replace(state, pool=replace(pool, status=pool.status.model_copy(update={"healing": known})))

    async def _keep_up(self, state: PoolSnapshot) -> float | None:
        pool, now = state.pool, self.now()
        decided = plan(state, now)
        if healed(decided):
            # Remembered before it is done: who forgets would replace the same VM again and again.
            promised = pool_status(state, decided, now)
            await self.apply.write_status(pool, promised)
            self._healing[pool.uid], self._written[pool.uid] = promised.healing, self.clock()
        self._say_misread(state)
        self._say_moved(pool)
        outcome = await self.apply(state, decided)
        if outcome.failure:
            self._failures[pool.uid] = outcome.failure
        elif state.settled:
            self._failures.pop(pool.uid, None)
        for name in outcome.held:
            self._leftovers.refused(pool.uid, name, self.clock())
        done = replace(decided, actions=tuple(each for each in decided.actions if each not in outcome.undone))
        fresh = pool_status(replace(state, failure=state.shared or self._failures.get(pool.uid)), done, now)
        self.metrics.healed(pool.key, len(healed(done)))
        self.metrics.scaled(pool.key, created=_count(done, Create), deleted=_count(done, Delete))
        if healed(done) != healed(decided):
            # It changed in that moment: who was not replaced is not left alone for it.
            await self.apply.write_status(pool, fresh)
            self._healing[pool.uid] = fresh.healing
        self.metrics.pool(pool, fresh)
        wait = None if pool.deleting else await self._say_status(pool, fresh)
        self._finished(outcome)
        seen = (self.expectations.wait_seconds(each, self.clock()) for each in self._writers(pool.key))
        waits = (wait, decided.again_seconds, *seen)
        return min((w for w in waits if w is not None), default=None)

    async def _say_status(self, pool: Pool | InvalidSpec, fresh: PoolStatus) -> float | None:
        """Writes a status that has changed, or returns how long to wait with it."""
        if fresh == pool.status:
            return None
        left = self._written.get(pool.uid, float("-inf")) + STATUS_SECONDS - self.clock()
        if left > 0:
            return left
        await self.apply.write_status(pool, fresh)
        self._written[pool.uid] = self.clock()
        if isinstance(pool, InvalidSpec):
            self.news.misfit(pool)
        return None

    def _say_misread(self, state: PoolSnapshot) -> None:
        """Once, and again when it is another."""
        found = {(m.uid, m.scale_in): m for m in with_invalid_scale_in(state)}
        said = self._misread.get(state.pool.uid, frozenset())
        for each in found.keys() - said:
            self.news.misread(state.pool, found[each])
        if found or said:
            self._misread[state.pool.uid] = frozenset(found)

    def _say_moved(self, pool: Pool) -> None:
        # What another replica has said while it led is not said again.
        for name, (here, at) in self._moved.pop(pool.uid, {}).items():
            if self.clock() - at < SAID_SECONDS:
                self.news.moved(pool, name, here=here)

    def _left(self, key: Key) -> list[ReleaseDisks]:
        return [release(m, "its pool is gone") for m in self.stores.waiting(key)]

    @staticmethod
    def _finished(outcome: Outcome) -> None:
        if outcome.again:
            raise RetryWithBackoff(outcome.failure.message if outcome.failure else "the cluster has changed meanwhile")

    # What changed, and whose business it is

    def pool_changed(self, enqueue: Enqueue, old: Pool | InvalidSpec | None, new: Pool | InvalidSpec | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self.expectations.forget(old.uid)
            self.apply.batches.forget(old.uid)
            self._failures.pop(old.uid, None)
            self._written.pop(old.uid, None)
            self._healing.pop(old.uid, None)
            self._leftovers.forget(old.uid)
            self._misread.pop(old.uid, None)
            self._moved.pop(old.uid, None)
        for pool in (old, new):
            if isinstance(pool, Pool):
                for other in (each for _, each in self.stores.sharing(pool)):
                    enqueue(other.key, 0.0)
        for each in (old, new):
            if each is not None:
                enqueue(each.key, 0)

    def machine_changed(self, enqueue: Enqueue, old: VM | None, new: VM | None) -> None:
        self.metrics.machine(old, new)
        owners = {m.owner for m in (old, new) if m is not None and m.owner_name}
        waited = self._waiting(owners)
        if new is not None and new.owner_name:
            self._leftovers.came(new.owner, new.name)
            self.expectations.creation_observed(new.owner, new.name)
            self.expectations.creation_observed(new.owner, has_revision(new.name, new.revision))
        if new is None and old is not None:
            self.stores.forget(old.key)
        if new is None and old is not None and old.owner_name:
            self._leftovers.went(old.owner, old.name, self.clock())
        if old is not None and new is not None and old.uid == new.uid and old.owner != new.owner:
            for m, here in ((old, False), (new, True)):
                if m.owner_name:
                    self._moved.setdefault(m.owner, {})[m.name] = here, self.clock()
        leaving = old if new is None else new if new.deleting else None
        if leaving is not None and leaving.owner_name:
            self.expectations.deletion_observed(leaving.owner, leaving.uid)
        # The last that was waited for is worth a look at once: the next burst begins with it.
        pause = 0 if waited - self._waiting(owners) else GATHER_SECONDS
        for key in {key for m in (old, new) if m is not None for key in _concerned(m)}:
            enqueue(key, pause)
        if old is None or new is None or new.disks != old.disks:
            for key in {key for m in (old, new) if m is not None for key in self._near(m)}:
                enqueue(key, GATHER_SECONDS)

    def _near(self, m: VM) -> set[Key]:
        """Other pools that would give their VMs disks of the same names."""
        stems = {stem for stem, ordinal in map(parent_and_ordinal, m.disks) if ordinal is not None}
        pools = (pool for stem in stems for pool in self.stores.pools.by("disk", (m.namespace, stem)))
        return {pool.key for pool in pools if pool.uid != m.owner}

    def _waiting(self, owners: set[str]) -> set[str]:
        """Those for which something is expected to be seen."""
        return {owner for owner in owners if any(self.expectations.open(owner))}

    def guest_changed(self, enqueue: Enqueue, old: VMI | None, new: VMI | None) -> None:
        key = next(each.key for each in (new, old) if each is not None)
        machine = self.stores.machines.get(key)
        if machine is None or not machine.owner_name:
            return
        if old is not None and (new is None or new.deleting or new.uid != old.uid):
            self.expectations.deletion_observed(machine.owner, old.uid)
        pool = machine.namespace, machine.owner_name
        self.metrics.guest(pool, old, new)
        enqueue(pool, GATHER_SECONDS)

    def disk_changed(self, enqueue: Enqueue, old: RetainedDisk | None, new: RetainedDisk | None) -> None:
        for each in (old, new):
            if each is not None:
                enqueue((each.namespace, parent_and_ordinal(each.kept_for)[0]), GATHER_SECONDS)


def _count(done: Plan, kind: type) -> int:
    return sum(isinstance(each, kind) for each in done.actions)


def _concerned(m: VM) -> set[Key]:
    owner = {(m.namespace, m.owner_name)} if m.owner_name else set()
    # Whoever owns it by now: by this name its disks were kept.
    return owner | {(m.namespace, m.stem)} if m.keeping else owner
