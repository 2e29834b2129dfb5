"""Reconciles migrations: observes them, asks `plan` for an action, and lets the hypervisor migrate VMIs."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from poolhouse.api.apimachinery.merge_patch import merge_patch
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.errors import ApiError, Conflict, Invalid, NotFound
from poolhouse.runtime.events import EventRecorder, EventType
from poolhouse.runtime.resource import KUBEVIRTS, NAMESPACES, UPSTREAM_POLICIES, VMIS, Key
from poolhouse.stack.engine.hypervisor import Hypervisor, HypervisorRefused, MigrationAborted
from poolhouse.stack.engine.informers import Informers
from poolhouse.stack.engine.migration import plan
from poolhouse.stack.engine.migration.abandoned import AbandonedMigrations
from poolhouse.stack.engine.migration.settings import MigrationSettings, effective_settings
from poolhouse.stack.engine.node.scheduler import NodeCapacity, schedule, unschedulable_message
from poolhouse.stack.engine.objects import VMI, Migration, Node, either
from poolhouse.stack.engine.reasons import EngineReason
from poolhouse.stack.engine.resources import MIGRATIONS, NODE_LABEL
from poolhouse.stack.engine.vm import live_updates
from poolhouse.stack.engine.writes import delete_present, patch_present

log = logging.getLogger(__name__)


# KubeVirt's default limit for a cluster. The controller has as many workers, because a migration occupies one.
MAX_PARALLEL_MIGRATIONS = 5


@dataclass(frozen=True)
class FinishedMigration:
    """The outcome of a migration that this engine ran."""

    migration: Migration
    vmi: VMI
    state: Json
    node: str | None
    """the VMI's new node; None if the VMI has not migrated"""
    phase: str
    failure: str
    conditions: Sequence[Json]
    plugged: Json
    """the part of the VMI's status about CPUs and memory that its guest got on the target"""
    written: bool = False


class MigrationController:
    def __init__(
        self, api: Api, informers: Informers, hypervisor: Hypervisor, events: EventRecorder, capacity: NodeCapacity
    ) -> None:
        self._api, self._informers, self._hypervisor = api, informers, hypervisor
        self._events, self._capacity = events, capacity
        self.abandoned = AbandonedMigrations(api, informers)
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._unscheduled: dict[Key, None] = {}
        # UIDs of migrations whose phase Running is being written. If the write fails, the phase may be Running although
        # the hypervisor has not started the migration.
        self._starting: set[str] = set()
        # Finished migrations, until their outcome is written and observed. An entry outlives the migration object,
        # because no other place has an outcome that is not written yet.
        self._finished: dict[Key, FinishedMigration] = {}
        # The controller has no deadline, because the migration settings limit the duration.
        self.controller: Controller[Key] = Controller(
            "migrations", self.reconcile, workers=MAX_PARALLEL_MIGRATIONS, deadline_seconds=None, metrics=api.metrics
        )
        informers.migrations.subscribe(self._changed)
        informers.vmis.subscribe(self._vmi_changed)
        informers.nodes.subscribe(self._node_changed)
        capacity.subscribe(self._memory_freed)

    def _changed(self, old: Migration | None, new: Migration | None) -> None:
        migration = either(old, new)
        if new is None or new.final:
            self._starting.discard(migration.uid)
            self._forget_if_observed(migration.key)
            self._capacity.release(migration.uid)
        if new is None or new.deleted is not None:
            self._abort(migration.key)
        if new is None and self.abandoned.started(migration.key):
            # If a migration is deleted before it runs, no other event causes the reconcile that finishes it.
            self.controller.enqueue(migration.key)
        # When a migration ends, the next migration of the VMI may start.
        for each in self._informers.migrations.store.by("vmi", (migration.namespace, migration.vmi)):
            if not each.final:
                self.controller.enqueue(each.key)

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        vmi = either(old, new)
        for migration in self._informers.migrations.store.by("vmi", vmi.key):
            if not migration.final:
                self.controller.enqueue(migration.key)
            if new is None or new.deleted is not None:
                self._abort(migration.key)
        if old is not None and (new is None or new.final or new.node != old.node):
            self._memory_freed()

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        for migration in self._informers.migrations.store.all():
            if not migration.final:
                self.controller.enqueue(migration.key)

    def _memory_freed(self) -> None:
        for key in self._unscheduled:
            self.controller.enqueue(key)
        self._unscheduled.clear()

    def _abort(self, key: Key) -> None:
        task = self._running.get(key)
        # A second cancellation would interrupt the abort.
        if task is not None and not task.cancelling():
            task.cancel()

    async def reconcile(self, key: Key) -> float | None:
        finished = self._finished.get(key)
        if finished is not None:
            await self._write_end(finished)
        migration, started = self._informers.migrations.store.get(key), self.abandoned.started(key)
        if started is not None and finished is None and (migration is None or migration.uid != started.uid):
            self.abandoned.finish(key)
        ended = finished is not None and migration is not None and finished.migration.uid == migration.uid
        if migration is None or key in self._running or ended:
            return None
        if migration.uid in self._starting:
            migration = replace(migration, status={**migration.status, "phase": "Pending"})
        self._capacity.release(migration.uid)  # an earlier try may have a reservation
        await self._apply(migration)
        return None

    async def _apply(self, migration: Migration) -> None:
        vmi = self._informers.vmis.store.get((migration.namespace, migration.vmi))
        others = self._informers.migrations.store.by("vmi", (migration.namespace, migration.vmi))
        target, why_not = self._target(migration, vmi) if vmi is not None else (None, "")
        draining = plan.draining_nodes(self._informers.nodes.store.all())
        match plan.plan_migration(migration, vmi, others, target, why_not, draining):
            case plan.Wait(why):
                self._unscheduled[migration.key] = None
                await self._write(migration, "Pending", why)
            case plan.FinishMigration(phase, why):
                state = await self._finish_for_earlier_engine(vmi, migration, why) if vmi is not None else None
                await self._write(migration, phase, why, state)
            case plan.DeleteMigration():
                await self._delete(migration)
            case plan.StartMigration(node):
                assert vmi is not None
                self._capacity.reserve(migration.uid, node, vmi.memory_with_overhead)
                for each in plan.surplus_migrations(others):
                    await self._delete(each)
                await self._migrate(migration, vmi, node)
            case None:
                pass

    def _target(self, migration: Migration, vmi: VMI) -> tuple[str | None, str]:
        nodes = self._informers.nodes.store.all()
        used, memory = self._capacity.used(nodes), vmi.memory_with_overhead
        selector = tuple({*vmi.node_selector, *migration.node_selector})
        found = schedule(selector, memory, nodes, used, avoid=vmi.node)
        return found, unschedulable_message(selector, memory, [n for n in nodes if n.name != vmi.node], used)

    async def _migrate(self, migration: Migration, vmi: VMI, target: str) -> None:
        settings = await self._settings(await self._api.get(VMIS, *vmi.key))
        state = plan.started_state(vmi, migration, target, settings, self._informers.now())
        conditions = []
        if settings.post_copy and (why := await self._hypervisor.why_no_post_copy()) is not None:
            settings = replace(settings, post_copy=False, disruption=False)
            conditions = [plan.post_copy_unavailable(why)]
            self._emit(vmi, "Warning", EngineReason.POST_COPY_IMPOSSIBLE, f"{why}. The VMI migrates by pre-copy.")
        self._starting.add(migration.uid)
        self.abandoned.start(migration)
        await self._write(migration, "Running", state=state, conditions=conditions)
        await self._write_state(vmi, state)
        self._starting.discard(migration.uid)
        log.info("%s/%s: migrating from %s to %s", *vmi.key, vmi.node, target)
        self._emit(vmi, "Normal", EngineReason.MIGRATING, f"The VMI is migrating from {vmi.node} to {target}.")
        outcome, state = await self._run(migration, vmi, target, settings, state)
        if not outcome.failure:
            late = " The request to abort came too late." if outcome.requested else ""
            self._emit(vmi, "Normal", EngineReason.MIGRATED, f"The VMI migrated to {target}.{late}")
        else:
            note = f"The VMI stays on {vmi.node}: {outcome.failure}."
            self._emit(vmi, "Warning", EngineReason.FAILED_MIGRATION, note)
        phase, node = ("Failed", None) if outcome.failure else ("Succeeded", target)
        plugged = self._plugged(vmi) if node is not None else {}
        state = plan.finished_state(state, self._informers.now(), outcome)
        finished = FinishedMigration(migration, vmi, state, node, phase, outcome.failure, conditions, plugged)
        self._finished[migration.key] = finished
        await self._write_end(finished)

    def _plugged(self, vmi: VMI) -> Json:
        """What the VMI's status says of the CPUs and the memory that its guest gets at the end of the migration."""
        current = self._informers.vmis.store.get(vmi.key)
        return live_updates.applied(current) if current is not None and current.uid == vmi.uid else {}

    async def _run(
        self, migration: Migration, vmi: VMI, target: str, settings: MigrationSettings, state: Json
    ) -> tuple[plan.Outcome, Json]:
        """Runs the migration in the hypervisor. Returns the outcome and the VMI's migrationState."""

        async def switched() -> None:
            nonlocal state
            state = {**state, "mode": settings.at_timeout}
            if settings.at_timeout == "PostCopy":
                note = f"The VMI runs on {target}, and its memory follows."
                self._emit(vmi, "Normal", EngineReason.POST_COPY, note)
            else:
                note = f"The VMI stands still until it runs on {target}."
                self._emit(vmi, "Normal", EngineReason.MIGRATION_PAUSED, note)
            try:
                await self._write_state(vmi, state)
            except ApiError as error:
                # The migration continues. Its final migrationState also contains the mode.
                log.warning("%s/%s: the switch to mode %s is not written: %s", *vmi.key, settings.at_timeout, error)

        faults, _ = self._informers.faults_of(vmi)
        migrating = self._hypervisor.migrate(vmi, target, settings, faults, switched)
        task = asyncio.create_task(migrating, name=f"migrate-{vmi.name}")
        self._running[migration.key] = task
        if self._deleted_meanwhile(migration, vmi):
            self._abort(migration.key)
        try:
            await asyncio.wait({task})
        finally:
            if not task.done():
                self._abort(migration.key)
                await asyncio.wait({task})
            del self._running[migration.key]
        return _outcome(task), state

    def _deleted_meanwhile(self, migration: Migration, vmi: VMI) -> bool:
        current_migration = self._informers.migrations.store.get(migration.key)
        current_vmi = self._informers.vmis.store.get(vmi.key)
        return any(
            current is None or current.uid != before.uid or current.deleted is not None
            for current, before in ((current_migration, migration), (current_vmi, vmi))
        )

    async def _write_end(self, finished: FinishedMigration) -> None:
        key = finished.migration.key
        if not finished.written:
            await self._write_state(finished.vmi, finished.state, finished.node, finished.plugged)
            # The migration's status is written last, because the next migration of the VMI may start after it.
            await self._write(finished.migration, finished.phase, finished.failure, finished.state, finished.conditions)
            self._finished[key] = replace(finished, written=True)
            self.abandoned.finish(key)
        self._forget_if_observed(key)

    def _forget_if_observed(self, key: Key) -> None:
        """Forgets a finished migration when the informer has observed its written outcome."""
        finished, current = self._finished.get(key), self._informers.migrations.store.get(key)
        if finished is None or not finished.written:
            return
        if current is None or current.final or current.uid != finished.migration.uid:
            del self._finished[key]

    async def _delete(self, migration: Migration) -> None:
        await delete_present(self._api, MIGRATIONS, migration.key, migration.uid)

    async def _settings(self, vmi: Json) -> MigrationSettings:
        policies, _ = await self._api.list(UPSTREAM_POLICIES)
        kubevirts, _ = await self._api.list(KUBEVIRTS)
        namespace = await self._api.get(NAMESPACES, None, vmi["metadata"]["namespace"])
        labels = vmi["metadata"].get("labels") or {}
        return effective_settings(labels, namespace["metadata"].get("labels") or {}, policies, kubevirts)

    async def _finish_for_earlier_engine(self, vmi: VMI, migration: Migration, failure: str) -> Json | None:
        """Ends and returns the migrationState that an earlier process of the engine began."""
        state: Json = vmi.status.get("migrationState") or {}
        if state.get("migrationUid") != migration.uid:
            return None
        if not state.get("completed"):
            state = plan.finished_state(state, self._informers.now(), plan.Outcome(failure))
            await self._write_state(vmi, state)
        return state

    async def _write_state(self, vmi: VMI, state: Json, node: str | None = None, plugged: Json | None = None) -> None:
        """Writes the VMI's migrationState and, after a migration, its node and what the guest got there."""
        body: Json = {"metadata": {"uid": vmi.uid}, "status": {"migrationState": plan.state_patch(state)}}
        if node is not None:
            body["metadata"]["labels"] = {NODE_LABEL: node}
            body["status"]["nodeName"] = node
            body["status"]["evacuationNodeName"] = None  # as virt-handler does
            body["status"] |= plugged or {}
        try:
            await self._api.patch(VMIS, *vmi.key, body)
        except NotFound:
            log.debug("%s/%s: the VMI is deleted", *vmi.key)
        except (Conflict, Invalid):
            # The API server refuses the UID if a new VMI has the name. The new VMI has not migrated.
            current = self._informers.vmis.store.get(vmi.key)
            if current is not None and current.uid == vmi.uid:
                raise

    async def _write(
        self,
        migration: Migration,
        phase: str,
        why: str = "",
        state: Json | None = None,
        conditions: Sequence[Json] = (),
    ) -> None:
        current = self._informers.migrations.store.get(migration.key)
        # The API server ignores the UID in a status patch, so a new migration with the name would get the status.
        if current is None or current.uid != migration.uid:
            return
        patch = merge_patch(
            current.status, plan.migration_status(current, phase, self._informers.now(), why, state, conditions)
        )
        if patch:
            await patch_present(self._api, MIGRATIONS, migration.key, {"status": patch}, "status")

    def _emit(self, vmi: VMI, kind: EventType, reason: EngineReason, note: str) -> None:
        self._events.emit(vmi.reference(VMIS), kind, reason, note, action="Migrate")


def _outcome(task: asyncio.Task[None]) -> plan.Outcome:
    if task.cancelled():
        return plan.Outcome("Live migration has been aborted on request", "Succeeded", requested=True)
    error = task.exception()
    match error:
        case None:
            return plan.Outcome(aborted="Failed", requested=True) if task.cancelling() else plan.Outcome()
        case MigrationAborted():
            return plan.Outcome(str(error), "Succeeded")
        case HypervisorRefused():
            return plan.Outcome(str(error))
        case _:
            log.error("a migration failed unexpectedly", exc_info=error)
            return plan.Outcome(repr(error))
