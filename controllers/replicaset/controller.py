"""Reconciles replica sets, and maps events to sets."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from controllers.replicaset.actions import Action, Adopt, Create, Delete, Release
from controllers.replicaset.adopters import Adopters
from controllers.replicaset.apply import WRITES, ReplicaSetEvents
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
from controllers.replicaset.plan import decisions, invalid_spec_status, plan, replica_set_status
from controllers.replicaset.simulate import answer, hypothetical_snapshot
from controllers.sets.records import Memory, Records
from controllers.sets.simulation import PlanEndpoint
from controllers.sets.write_batches import Failure, Outcome, WriteBatches, merge_outcomes, retry_unless_done
from controllers.sets.writes import Writing, carry_out
from controllers.shared.component import Component, ControllerContext
from controllers.shared.crd_presence import OwnCRD
from controllers.shared.creation import DefaultingCreator
from controllers.shared.invalid_spec import InvalidSpec
from controllers.shared.planner import Planner, PlanTooExpensive
from controllers.shared.replica_limits import enqueue_after_changes
from controllers.shared.status_writer import StatusWriter
from controllers.shared.vmi import VMI
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.kinds.replicaset import REPLICA_SET, ReplicaSetStatus
from poolhouse.runtime.api import Api
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.expectations import Expectations
from poolhouse.runtime.optional_informer import POLL_SECONDS, run_while_present
from poolhouse.runtime.resource import VMIS, Key

GATHER_SECONDS = 0.1
"""Delay that joins changes of a set's VMIs into one reconcile. A thousand starting VMIs cause thousands of events."""
EXPECTATIONS_SECONDS = 30.0
"""Time limit for the events of a set's writes. The limit is short, so that a call without a response does not stop the
set for long. Names and deletions by UID make plans from stale stores safe."""

Enqueue = Callable[[Key, float], None]


@dataclass
class ReplicaSetMemory(Memory):
    failures: dict[type[Action], Failure] = field(default_factory=dict)

    @property
    def failure(self) -> Failure | None:
        """The failure to report. The two reasons of the design document come first."""
        return next((self.failures[kind] for kind in (Create, Delete, Adopt, Release) if kind in self.failures), None)

    def learn(self, outcomes: Mapping[type[Action], Outcome]) -> None:
        """Updates the failures. A failure stays until the action succeeds or is no longer planned."""
        refused = {kind: outcome.failure for kind, outcome in outcomes.items() if outcome.failure}
        # After a retryable error, such as a conflict, an earlier failure stays.
        still = {kind: known for kind, known in self.failures.items() if outcomes[kind].retry}
        self.failures = {**still, **refused}


@dataclass
class ReplicaSetController:
    api: Api
    stores: Stores
    creator: DefaultingCreator
    statuses: StatusWriter[ReplicaSetStatus]
    events: ReplicaSetEvents
    metrics: ReplicaSetMetrics
    planner: Planner
    burst: int
    records: Records[VMI, ReplicaSetMemory] = field(init=False)
    adopters: Adopters = field(init=False)

    def __post_init__(self) -> None:
        self.adopters = Adopters(self.stores.sets, self.planner)
        batches = WriteBatches(self.events, Expectations(EXPECTATIONS_SECONDS), self.api.monotonic)
        self.records = Records(
            "replica set", batches, lambda _: ReplicaSetMemory(), _set_uid, self.stores.set_of, self.api.now
        )

    async def reconcile(self, key: Key) -> float | None:
        with self.records.reconciling(lambda: self.stores.sets.get(key)):
            return await self._reconcile_stored(key)

    async def _reconcile_stored(self, key: Key) -> float | None:
        known = self.stores.sets.get(key)
        if known is None:
            self.metrics.gone(key)
            self.planner.forget(("replica set", key))
            return None
        if isinstance(known, InvalidSpec):
            return await self._update_status(known, invalid_spec_status(known, self.api.now()))
        if pause := self.records.pause(known):
            return pause
        synced, failure = self.records.synced([known.uid]), self.records.memory(known).failure
        snapshot = observe(self.stores, key, synced=synced, failure=failure, burst=self.burst)
        assert isinstance(snapshot, ReplicaSetSnapshot)
        try:
            return await self._reconcile(snapshot)
        except PlanTooExpensive as error:
            return await self._set_aside(snapshot, error)

    async def _reconcile(self, snapshot: ReplicaSetSnapshot) -> float | None:
        found, now, batches = snapshot.replica_set, self.api.now(), self.records.batches
        memory, of = self.records.memory(found), ("replica set", found.key)
        decided = await self.planner.run(of, plan, snapshot, now)
        memory.set_aside = None
        to = Writing(self.api, batches, self.creator, found, snapshot.burst)
        outcomes = await carry_out(WRITES, to, decided.actions)
        self.metrics.scaled(found.key, created=len(outcomes[Create].done), deleted=len(outcomes[Delete].done))
        outcome = merge_outcomes(outcomes.values())
        memory.last_status_write.record(decisions(snapshot, outcome.done, now))
        if snapshot.synced:
            memory.learn(outcomes)
        after = replace(snapshot, failure=memory.failure)
        fresh = await self.planner.run(of, replica_set_status, after, decided, now)
        self.metrics.replica_set(found, fresh)
        wait = None if found.deleting else await self._update_status(found, fresh)
        retry_unless_done(outcome, memory.failure)
        return self.records.seconds_until_next([found.uid], wait, decided.again_seconds)

    async def _set_aside(self, snapshot: ReplicaSetSnapshot, error: PlanTooExpensive) -> float | None:
        found, alone = snapshot.replica_set, count_noun(len(snapshot.unowned), "VMI")
        has = f"{count_noun(len(snapshot.owned), 'VMI')}, and the namespace {alone} without a controller"
        wait = await self._update_status(found, self.records.set_aside(found, found.generation, error, has))
        return self.records.seconds_until_next((), wait, self.records.pause(found))

    async def _update_status(self, found: ReplicaSet | InvalidReplicaSet, fresh: ReplicaSetStatus) -> float | None:
        update = await self.statuses.update(found, fresh, self.records.memory(found).last_status_write)
        if update.written and isinstance(found, InvalidSpec):
            self.events.invalid_spec(found)
        elif update.written and isinstance(found, ReplicaSet) and _is_paused(found.status) != _is_paused(fresh):
            self.events.paused_changed(found)
        return update.wait_seconds

    # Event handlers

    def set_changed(
        self, enqueue: Enqueue, old: ReplicaSet | InvalidReplicaSet | None, new: ReplicaSet | InvalidReplicaSet | None
    ) -> None:
        self.records.set_changed(old, new)
        for each in (old, new):
            if each is not None:
                enqueue(each.key, 0)

    def vmi_changed(self, enqueue: Enqueue, old: VMI | None, new: VMI | None) -> None:
        pause = 0 if self.records.changed(old, new) else GATHER_SECONDS
        for key in {(vmi.namespace, vmi.owner_name) for vmi in (old, new) if vmi is not None and vmi.owner_name}:
            enqueue(key, pause)
        # A paused set counts orphans and adopts none, so it must hear of their end too.
        for orphan in (vmi for vmi in (old, new) if vmi is not None and is_orphan(vmi)):
            self.adopters.note(orphan)


def _set_uid(vmi: VMI) -> str:
    return vmi.owner_uid if vmi.owner_name else ""


def _is_paused(status: ReplicaSetStatus) -> bool:
    return any(c.type == "ReplicaPaused" for c in status.conditions)


def build(context: ControllerContext, *, poll_seconds: float = POLL_SECONDS) -> Component:
    api = context.api
    metrics = ReplicaSetMetrics(context.registry)
    endpoint = PlanEndpoint(api, VMIS, REPLICA_SET, context.planner, answer)

    async def work() -> None:
        """Runs the controller with new stores, because stores from before a pause would be outdated."""
        sets, vmis = SET_SOURCE.informer(api), VMI_SOURCE.informer(api)
        stores = Stores(sets.store, vmis.store, context.replica_limit)
        replicating = ReplicaSetController(
            api,
            stores,
            context.creator(VMIS),
            StatusWriter(api, REPLICA_SETS, api.monotonic),
            ReplicaSetEvents(context.events),
            metrics,
            context.planner,
            context.burst,
        )
        controller: Controller[Key] = Controller("replicaset", replicating.reconcile, metrics=api.metrics)
        try:
            async with asyncio.TaskGroup() as group:
                for informer in (sets, vmis):
                    group.create_task(informer.run(), name=f"informer-{informer.resource.plural}")
                for informer in (sets, vmis):
                    await informer.synced()
                replicating.adopters.enqueue = controller.enqueue
                endpoint.observe = lambda document: hypothetical_snapshot(stores, document, context.burst)
                sets.subscribe(partial(replicating.set_changed, controller.enqueue))
                vmis.subscribe(partial(replicating.vmi_changed, controller.enqueue))
                enqueue_after_changes(context.limits, sets.store, controller.enqueue)
                group.create_task(controller.run(), name="replicaset")
                group.create_task(replicating.adopters.run(), name="replicaset-adopters")
        finally:
            endpoint.observe = None
            metrics.clear()

    async def run() -> None:
        await run_while_present(OwnCRD(api, REPLICA_SET).check, work, poll_seconds=poll_seconds)

    # The informers run only if the CRD is this project's, so they are not shared informers of every replica.
    return Component("replicaset", (), run, answers={REPLICA_SET.plan_path: endpoint})
