"""Reconciles replica sets, and decides which sets an event concerns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from controllers.replicaset.apply import Outcomes, ReplicaSetEvents, ReplicaSetWriter
from controllers.replicaset.metrics import ReplicaSetMetrics
from controllers.replicaset.observe import Stores, is_orphan, observe
from controllers.replicaset.plan import Action, Adopt, Create, Delete, Release, plan
from controllers.replicaset.snapshot import InvalidReplicaSet, ReplicaSet, ReplicaSetSnapshot
from controllers.replicaset.status import invalid_spec_status, replica_set_status
from controllers.shared.invalid_spec import InvalidSpec
from controllers.shared.status_writer import LastWrite, StatusWriter
from controllers.shared.vmi import VMI
from controllers.shared.write_batches import Failure
from kinds.replicaset import ReplicaSetStatus
from runtime.controller import RetryWithBackoff
from runtime.expectations import Expectations
from runtime.resource import Key

GATHER_SECONDS = 0.1
"""Changes of a set's VMIs within this time cause one reconcile. A thousand starting VMIs make thousands of events."""

Enqueue = Callable[[Key, float], None]


@dataclass
class ReplicaSetMemory:
    """What the controller remembers of one set between reconciles."""

    last_status_write: LastWrite = field(default_factory=LastWrite)
    failures: dict[type[Action], Failure] = field(default_factory=dict)

    @property
    def failure(self) -> Failure | None:
        """The one to report: the two of the design document come first."""
        return next((self.failures[kind] for kind in (Create, Delete, Adopt, Release) if kind in self.failures), None)

    def learn(self, outcomes: Outcomes) -> None:
        """A failure holds until the same action succeeds, or is not planned any more."""
        refused = {kind: outcome.failure for kind, outcome in outcomes.items() if outcome.failure}
        # An outcome without a refusal, such as a conflict, says nothing about the refusal before it.
        still = {kind: known for kind, known in self.failures.items() if outcomes[kind].retry}
        self.failures = {**still, **refused}


@dataclass
class ReplicaSetController:
    stores: Stores
    writer: ReplicaSetWriter
    statuses: StatusWriter[ReplicaSetStatus]
    events: ReplicaSetEvents
    expectations: Expectations[str]
    metrics: ReplicaSetMetrics
    burst: int
    clock: Callable[[], float]
    now: Callable[[], datetime]
    _memories: dict[str, ReplicaSetMemory] = field(default_factory=dict)
    """by UID of the set"""

    async def reconcile(self, key: Key) -> float | None:
        known = self.stores.sets.get(key)
        if known is None:
            self.metrics.gone(key)
            return None
        if isinstance(known, InvalidSpec):
            return await self._update_status(known, invalid_spec_status(known, self.now()))
        synced = self.expectations.satisfied(known.uid, self.clock())
        failure = self._memory(known.uid).failure
        snapshot = observe(self.stores, key, synced=synced, failure=failure, burst=self.burst)
        assert isinstance(snapshot, ReplicaSetSnapshot)
        return await self._reconcile(snapshot)

    def _memory(self, uid: str) -> ReplicaSetMemory:
        return self._memories.setdefault(uid, ReplicaSetMemory())

    async def _reconcile(self, snapshot: ReplicaSetSnapshot) -> float | None:
        found, now, memory = snapshot.replica_set, self.now(), self._memory(snapshot.replica_set.uid)
        decided = plan(snapshot, now)
        outcomes = await self.writer.apply(snapshot, decided)
        self.metrics.scaled(found.key, created=len(outcomes[Create].done), deleted=len(outcomes[Delete].done))
        if snapshot.synced:
            memory.learn(outcomes)
        fresh = replica_set_status(replace(snapshot, failure=memory.failure), decided, now)
        self.metrics.replica_set(found, fresh)
        wait = None if found.deleting else await self._update_status(found, fresh)
        if any(outcome.retry for outcome in outcomes.values()):
            raise RetryWithBackoff(memory.failure.message if memory.failure else "the cluster has changed meanwhile")
        waits = (wait, decided.again_seconds, self.expectations.wait_seconds(found.uid, self.clock()))
        return min((w for w in waits if w is not None), default=None)

    async def _update_status(self, found: ReplicaSet | InvalidReplicaSet, fresh: ReplicaSetStatus) -> float | None:
        """Returns how long to wait if the last write was a moment ago."""
        update = await self.statuses.update(found, fresh, self._memory(found.uid).last_status_write)
        if update.written and isinstance(found, InvalidSpec):
            self.events.invalid_spec(found)
        elif update.written and isinstance(found, ReplicaSet) and _is_paused(found.status) != _is_paused(fresh):
            self.events.paused_changed(found)
        return update.wait_seconds

    # Which sets an event concerns

    def set_changed(
        self, enqueue: Enqueue, old: ReplicaSet | InvalidReplicaSet | None, new: ReplicaSet | InvalidReplicaSet | None
    ) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self.writer.batches.forget(old.uid)
            self._memories.pop(old.uid, None)
        for each in (old, new):
            if each is not None:
                enqueue(each.key, 0)

    def vmi_changed(self, enqueue: Enqueue, old: VMI | None, new: VMI | None) -> None:
        owned = [vmi for vmi in (old, new) if vmi is not None and vmi.owner_name]
        owners = {vmi.owner_uid for vmi in owned}
        awaited = self.writer.batches.awaited(owners)
        self._observe_change(old, new)
        # Once the last expected event has come, the next burst can begin at once.
        pause = 0 if awaited - self.writer.batches.awaited(owners) else GATHER_SECONDS
        for key in {(vmi.namespace, vmi.owner_name) for vmi in owned}:
            enqueue(key, pause)
        if new is not None and is_orphan(new):
            for adopter in self.stores.adopters(new):
                enqueue(adopter.key, GATHER_SECONDS)

    def _observe_change(self, old: VMI | None, new: VMI | None) -> None:
        if new is not None and new.owner_name:
            self.expectations.creation_observed(new.owner_uid, new.name)
            if new.deleting:
                self.expectations.deletion_observed(new.owner_uid, new.uid)
        if old is not None and (new is None or (new.uid, new.owner_uid) != (old.uid, old.owner_uid)):
            self.expectations.deletion_observed(old.owner_uid, old.uid)


def _is_paused(status: ReplicaSetStatus) -> bool:
    return any(c.type == "ReplicaPaused" for c in status.conditions)
