"""Reconciles replica sets, and maps events to sets."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from prometheus_client import CollectorRegistry

from apimachinery.timestamps import format_time
from controllers.replicaset.apply import Outcomes, ReplicaSetEvents, ReplicaSetWriter
from controllers.replicaset.metrics import ReplicaSetMetrics
from controllers.replicaset.observe import (
    REPLICA_SETS,
    SET_SOURCE,
    VMI_SOURCE,
    InvalidReplicaSet,
    ReplicaSet,
    ReplicaSetSnapshot,
    Stores,
    is_orphan,
    observe,
)
from controllers.replicaset.plan import (
    Action,
    Adopt,
    Create,
    Delete,
    Release,
    decisions,
    invalid_spec_status,
    plan,
    replica_set_status,
)
from controllers.replicaset.simulate import answer
from controllers.shared.component import Component
from controllers.shared.crd_presence import OwnCRD
from controllers.shared.creation import DefaultingCreator
from controllers.shared.decisions import deleted_by_other
from controllers.shared.invalid_spec import InvalidSpec
from controllers.shared.simulation import PlanEndpoint
from controllers.shared.status_writer import LastWrite, StatusWriter
from controllers.shared.vmi import VMI
from controllers.shared.write_batches import Failure, WriteBatches
from defaulter.contract import Defaulter
from kinds.decisions import vm_reference
from kinds.replicaset import REPLICA_SET, ReplicaSetStatus
from runtime.api import Api
from runtime.controller import Controller, RetryWithBackoff
from runtime.events import EventRecorder
from runtime.expectations import Expectations
from runtime.optional_informer import POLL_SECONDS, run_while_present
from runtime.resource import VMIS, Key

GATHER_SECONDS = 0.1
"""Delay that joins changes of a set's VMIs into one reconcile. A thousand starting VMIs cause thousands of events."""

Enqueue = Callable[[Key, float], None]


@dataclass
class ReplicaSetMemory:
    """The controller's memory of one set between reconciles."""

    last_status_write: LastWrite = field(default_factory=LastWrite)
    failures: dict[type[Action], Failure] = field(default_factory=dict)

    @property
    def failure(self) -> Failure | None:
        """The failure to report. The two reasons of the design document come first."""
        return next((self.failures[kind] for kind in (Create, Delete, Adopt, Release) if kind in self.failures), None)

    def learn(self, outcomes: Outcomes) -> None:
        """Updates the failures. A failure stays until the action succeeds or is no longer planned."""
        refused = {kind: outcome.failure for kind, outcome in outcomes.items() if outcome.failure}
        # After a retryable error, such as a conflict, an earlier failure stays.
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
        done = [action for outcome in outcomes.values() for action in outcome.done]
        memory.last_status_write.record(decisions(snapshot, done, now))
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
        update = await self.statuses.update(found, fresh, self._memory(found.uid).last_status_write)
        if update.written and isinstance(found, InvalidSpec):
            self.events.invalid_spec(found)
        elif update.written and isinstance(found, ReplicaSet) and _is_paused(found.status) != _is_paused(fresh):
            self.events.paused_changed(found)
        return update.wait_seconds

    # Event handlers

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
        # After the last expected event, the next burst starts at once.
        pause = 0 if awaited - self.writer.batches.awaited(owners) else GATHER_SECONDS
        for key in {(vmi.namespace, vmi.owner_name) for vmi in owned}:
            enqueue(key, pause)
        if new is not None and is_orphan(new):
            for adopter in self.stores.adopters(new):
                enqueue(adopter.key, GATHER_SECONDS)

    def _note_deletion(self, old: VMI | None, new: VMI | None) -> None:
        """Records that another client deletes a VMI of a replica set."""
        if old is None or old.deleting or not old.owner_name:
            return
        found = self.stores.sets.get((old.namespace, old.owner_name))
        kept = new is not None and new.uid == old.uid and not new.deleting
        if kept or found is None or found.uid != old.owner_uid or old.uid in self.expectations.open(found.uid)[1]:
            return
        deletion = deleted_by_other(format_time(self.now()), "replica set", vm_reference(old.name, old.uid))
        self._memory(found.uid).last_status_write.record_deletion(deletion, found.status)

    def _observe_change(self, old: VMI | None, new: VMI | None) -> None:
        self._note_deletion(old, new)
        if new is not None and new.owner_name:
            self.expectations.creation_observed(new.owner_uid, new.name)
            if new.deleting:
                self.expectations.deletion_observed(new.owner_uid, new.uid)
        if old is not None and (new is None or (new.uid, new.owner_uid) != (old.uid, old.owner_uid)):
            self.expectations.deletion_observed(old.owner_uid, old.uid)


def _is_paused(status: ReplicaSetStatus) -> bool:
    return any(c.type == "ReplicaPaused" for c in status.conditions)


EXPECTATIONS_SECONDS = 30.0
"""Time limit for the events of a set's writes. The limit is short, so that a call without a response does not stop the
set for long. Names and deletions by UID make plans from stale stores safe."""


def build(
    api: Api,
    recorder: EventRecorder,
    defaulter: Defaulter | None,
    registry: CollectorRegistry,
    burst: int,
    seed: str,
    *,
    poll_seconds: float = POLL_SECONDS,
) -> Component:
    metrics = ReplicaSetMetrics(registry)
    endpoint = PlanEndpoint(api, VMIS, REPLICA_SET, None)

    async def work() -> None:
        """Runs the controller with new stores, because stores from before a pause would be outdated."""
        sets, vmis = SET_SOURCE.informer(api), VMI_SOURCE.informer(api)
        stores = Stores(sets.store, vmis.store)
        expectations: Expectations[str] = Expectations(EXPECTATIONS_SECONDS)
        events = ReplicaSetEvents(recorder)
        replicating = ReplicaSetController(
            stores=stores,
            writer=ReplicaSetWriter(
                api,
                WriteBatches(events, expectations, api.monotonic),
                DefaultingCreator(api, VMIS, defaulter, seed, api.monotonic),
            ),
            statuses=StatusWriter(api, REPLICA_SETS, api.monotonic),
            events=events,
            expectations=expectations,
            metrics=metrics,
            burst=burst,
            clock=api.monotonic,
            now=api.now,
        )
        controller: Controller[Key] = Controller("replicaset", replicating.reconcile, metrics=api.metrics)
        try:
            async with asyncio.TaskGroup() as group:
                for informer in (sets, vmis):
                    group.create_task(informer.run(), name=f"informer-{informer.resource.plural}")
                for informer in (sets, vmis):
                    await informer.synced()
                endpoint.simulate = lambda document: answer(stores, document, burst, api.now())
                sets.subscribe(partial(replicating.set_changed, controller.enqueue))
                vmis.subscribe(partial(replicating.vmi_changed, controller.enqueue))
                group.create_task(controller.run(), name="replicaset")
        finally:
            endpoint.simulate = None
            metrics.clear()

    async def run() -> None:
        await run_while_present(OwnCRD(api, REPLICA_SET).check, work, poll_seconds=poll_seconds)

    # The informers run only if the CRD is this project's, so they are not shared informers of every replica.
    return Component("replicaset", (), run, answers={REPLICA_SET.plan_path: endpoint})
