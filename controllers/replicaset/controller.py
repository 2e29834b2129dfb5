"""Joins observing, planning and applying for replica sets, and decides who is looked at when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from controllers.replicaset.actions import Action, Adopt, Create, Delete, Release
from controllers.replicaset.apply import Outcome, ReplicaSetWriter
from controllers.replicaset.instance import VMI
from controllers.replicaset.metrics import ReplicaSetMetrics
from controllers.replicaset.observe import observe
from controllers.replicaset.plan import plan
from controllers.replicaset.snapshot import Failure, InvalidSpec, ReplicaSet, ReplicaSetSnapshot
from controllers.replicaset.status import invalid_spec_status, replica_set_status
from controllers.replicaset.stores import Stores
from kinds.replicaset import ReplicaSetStatus
from runtime.controller import RetryWithBackoff
from runtime.expectations import Expectations
from runtime.resource import Key

GATHER_SECONDS = 0.1
"""Changes of a set's instances within this time are looked at once: a thousand that start make thousands of events, and
every look costs a pass over the set."""
STATUS_SECONDS = 1.0
"""Counts are written at most so often."""

Enqueue = Callable[[Key, float], None]


@dataclass
class ReplicaSetController:
    stores: Stores
    apply: ReplicaSetWriter
    expectations: Expectations[str]
    metrics: ReplicaSetMetrics
    burst: int
    clock: Callable[[], float]
    now: Callable[[], datetime]
    _failures: dict[str, dict[type[Action], Failure]] = field(default_factory=dict)
    """by UID of the set and what was refused"""
    _written: dict[str, float] = field(default_factory=dict)

    async def reconcile(self, key: Key) -> float | None:
        known = self.stores.sets.get(key)
        uid = known.uid if known is not None else ""
        settled = self.expectations.satisfied(uid, self.clock())
        state = observe(self.stores, key, settled=settled, failure=self._failure(uid), burst=self.burst)
        match state:
            case ReplicaSetSnapshot():
                return await self._keep_up(state)
            case InvalidSpec():
                return await self._say_status(state, invalid_spec_status(state, self.now()))
            case None:
                self.metrics.gone(key)
                return None

    async def _keep_up(self, state: ReplicaSetSnapshot) -> float | None:
        found, now = state.replica_set, self.now()
        decided = plan(state, now)
        outcomes = await self.apply(state, decided)
        self.metrics.did(found.key, outcomes[Create].done, outcomes[Delete].done)
        if state.settled:
            self._remember(found.uid, outcomes)
        fresh = replica_set_status(replace(state, failure=self._failure(found.uid)), decided, now)
        self.metrics.replica_set(found, fresh)
        wait = None if found.deleting else await self._say_status(found, fresh)
        self._finished(found.uid, outcomes)
        waits = (wait, decided.again_seconds, self.expectations.wait_seconds(found.uid, self.clock()))
        return min((w for w in waits if w is not None), default=None)

    def _remember(self, uid: str, outcomes: dict[type[Action], Outcome]) -> None:
        """A refusal holds until the same was done, or was not wanted any more."""
        refused = {kind: outcome.failures[0] for kind, outcome in outcomes.items() if outcome.failures}
        # What nobody was to blame for says nothing about what was refused before it.
        still = {k: f for k, f in self._failures.get(uid, {}).items() if outcomes[k].again and not outcomes[k].failures}
        if found := {**still, **refused}:
            self._failures[uid] = found
        else:
            self._failures.pop(uid, None)

    def _failure(self, uid: str) -> Failure | None:
        """The one that is said: the document's own two come first."""
        found = self._failures.get(uid, {})
        return next((found[kind] for kind in (Create, Delete, Adopt, Release) if kind in found), None)

    async def _say_status(self, found: ReplicaSet | InvalidSpec, fresh: ReplicaSetStatus) -> float | None:
        """Writes a status that has changed, or returns how long to wait with it."""
        if fresh == found.status:
            return None
        left = self._written.get(found.uid, float("-inf")) + STATUS_SECONDS - self.clock()
        if left > 0:
            return left
        await self.apply.write_status(found, fresh)
        self._written[found.uid] = self.clock()
        if isinstance(found, InvalidSpec):
            self.apply.say_misfit(found)
        elif _paused(found.status) != _paused(fresh):
            self.apply.say_paused(found)
        return None

    def _finished(self, uid: str, outcomes: dict[type[Action], Outcome]) -> None:
        if any(outcome.again for outcome in outcomes.values()):
            failure = self._failure(uid)
            raise RetryWithBackoff(failure.message if failure else "the cluster has changed meanwhile")

    # What changed, and whose business it is

    def set_changed(
        self, enqueue: Enqueue, old: ReplicaSet | InvalidSpec | None, new: ReplicaSet | InvalidSpec | None
    ) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self.expectations.forget(old.uid)
            self.apply.forget(old.uid)
            self._failures.pop(old.uid, None)
            self._written.pop(old.uid, None)
        for each in (old, new):
            if each is not None:
                enqueue(each.key, 0)

    def instance_changed(self, enqueue: Enqueue, old: VMI | None, new: VMI | None) -> None:
        owners = {i.owner for i in (old, new) if i is not None and i.owner_name}
        waited = self._waiting(owners)
        if new is not None and new.owner_name:
            self.expectations.creation_observed(new.owner, new.name)
            if new.deleting:
                self.expectations.deletion_observed(new.owner, new.uid)
        if old is not None and (new is None or (new.uid, new.owner) != (old.uid, old.owner)):
            self.expectations.deletion_observed(old.owner, old.uid)
        # The last that was waited for is worth a look at once: the next burst begins with it.
        pause = 0 if waited - self._waiting(owners) else GATHER_SECONDS
        for key in {(i.namespace, i.owner_name) for i in (old, new) if i is not None and i.owner_name}:
            enqueue(key, pause)
        if new is not None and new.orphan:
            for adopter in self.stores.adopters(new):
                enqueue(adopter.key, GATHER_SECONDS)

    def _waiting(self, owners: set[str]) -> set[str]:
        """Those for which something is expected to be seen."""
        return {owner for owner in owners if any(self.expectations.open(owner))}


def _paused(status: ReplicaSetStatus) -> bool:
    return any(c.type == "ReplicaPaused" for c in status.conditions)
