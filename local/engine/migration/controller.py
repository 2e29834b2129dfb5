"""Migrations: reads what is there, asks `moving`, and has the hypervisor move guests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from local.engine.hypervisor import Hypervisor, HypervisorRefused, MigrationAborted
from local.engine.informers import Informers, now
from local.engine.migration.abandoned import AbandonedMigrations
from local.engine.migration.plan import (
    DeleteMigration,
    FinishMigration,
    Outcome,
    StartMigration,
    Wait,
    draining_nodes,
    finished_state,
    migration_status,
    plan_migration,
    post_copy_state,
    post_copy_unavailable,
    started_state,
    state_patch,
    surplus_migrations,
)
from local.engine.migration.settings import MigrationSettings, effective_settings
from local.engine.node.scheduler import NodeCapacity, schedule, unschedulable_message
from local.engine.objects import VMI, Migration, Node
from local.engine.resources import KUBEVIRTS, MIGRATION_POLICIES, MIGRATIONS, NAMESPACES, NODE_LABEL, VMIS, merge_patch
from runtime.api import Api
from runtime.controller import Controller
from runtime.errors import ApiError, Conflict, Invalid, NotFound
from runtime.events import EventRecorder, EventType
from runtime.resource import Key

log = logging.getLogger(__name__)

Json = dict[str, Any]

# KubeVirt's limit of migrations at once, all nodes together: each holds a worker while it lasts.
MAX_PARALLEL_MIGRATIONS = 5


@dataclass(frozen=True)
class FinishedMigration:
    """How one ended that this engine moved."""

    migration: Migration
    vmi: VMI
    state: Json
    node: str | None
    """where the VMI is by that; None where it was"""
    phase: str
    why: str
    notes: Sequence[Json]
    written: bool = False


class MigrationController:
    def __init__(
        self, api: Api, informers: Informers, hypervisor: Hypervisor, events: EventRecorder, capacity: NodeCapacity
    ) -> None:
        self._api = api
        self._informers = informers
        self._hypervisor = hypervisor
        self._events = events
        self._capacity = capacity
        self.unfinished = AbandonedMigrations(api, informers)
        self._moving: dict[Key, asyncio.Task[None]] = {}
        self._waiting: dict[Key, None] = {}
        # UIDs of those whose beginning may be written by half, or all of it: their guests have not begun to move.
        self._beginning: set[str] = set()
        # Those that are over, until all of that is written and seen: nobody left them behind. What is not written yet
        # is known here alone, so it is kept even where the migration itself is gone.
        self._over: dict[Key, FinishedMigration] = {}
        # Its settings alone say how long a guest may take to move, and may say for ever.
        self.controller: Controller[Key] = Controller(
            "migrations", self.reconcile, workers=MAX_PARALLEL_MIGRATIONS, deadline_seconds=None, metrics=api.metrics
        )
        informers.migrations.subscribe(self._changed)
        informers.vmis.subscribe(self._vmi_changed)
        informers.nodes.subscribe(self._node_changed)
        capacity.subscribe(self._memory_freed)

    def _changed(self, old: Migration | None, new: Migration | None) -> None:
        migration = new or old
        assert migration is not None
        if new is None or new.final:
            self._beginning.discard(migration.uid)
            self._seen_over(migration.key)
            self._capacity.release(migration.uid)
        if new is None or new.deleted is not None:
            # Taking a migration back gives it up.
            self._take_back(migration.key)
        if new is None and self.unfinished.begun(migration.key):
            # Nobody else would see that it does not begin any more.
            self.controller.enqueue(migration.key)
        # One that is over lets the next of its VMI begin.
        for each in self._informers.migrations.store.by("vmi", (migration.namespace, migration.vmi)):
            if not each.final:
                self.controller.enqueue(each.key)

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        vmi = new or old
        assert vmi is not None
        for migration in self._informers.migrations.store.by("vmi", vmi.key):
            if not migration.final:
                self.controller.enqueue(migration.key)
            if new is None or new.deleted is not None:
                self._take_back(migration.key)
        if old is not None and (new is None or new.final or new.node != old.node):
            self._memory_freed()

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        for migration in self._informers.migrations.store.all():
            if not migration.final:
                self.controller.enqueue(migration.key)

    def _memory_freed(self) -> None:
        """There may be a place now for those that found none."""
        for key in self._waiting:
            self.controller.enqueue(key)
        self._waiting.clear()

    def _take_back(self, key: Key) -> None:
        task = self._moving.get(key)
        # Once: giving up takes a while, and would itself be cancelled by a second time.
        if task is not None and not task.cancelling():
            task.cancel()

    async def reconcile(self, key: Key) -> float | None:
        over = self._over.get(key)
        if over is not None:
            await self._end(over)
        migration, started = self._informers.migrations.store.get(key), self.unfinished.begun(key)
        if started is not None and over is None and (migration is None or migration.uid != started.uid):
            self.unfinished.over(key)
        if migration is None or key in self._moving or (over is not None and over.migration.uid == migration.uid):
            return None
        if migration.uid in self._beginning:
            migration = replace(migration, status={**migration.status, "phase": "Pending"})
        self._capacity.release(migration.uid)  # what an earlier try has kept
        vmi = self._informers.vmis.store.get((migration.namespace, migration.vmi))
        others = self._informers.migrations.store.by("vmi", (migration.namespace, migration.vmi))
        target, why_not = self._target(migration, vmi) if vmi is not None else (None, "")
        match plan_migration(
            migration, vmi, others, target, why_not, draining_nodes(self._informers.nodes.store.all())
        ):
            case Wait(why):
                self._waiting[key] = None
                await self._write(migration, "Pending", why)
            case FinishMigration(phase, why) as end:
                state = await self._close(vmi, migration, end) if vmi is not None else None
                await self._write(migration, phase, why, state)
            case DeleteMigration():
                await self._forget(migration)
            case StartMigration(node):
                assert vmi is not None
                self._capacity.reserve(migration.uid, node, vmi.memory_with_overhead)
                for each in surplus_migrations(others):
                    await self._forget(each)
                await self._move(migration, vmi, node)
            case None:
                pass
        return None

    def _target(self, migration: Migration, vmi: VMI) -> tuple[str | None, str]:
        nodes = self._informers.nodes.store.all()
        used = self._capacity.used(nodes)
        selector = tuple({*vmi.node_selector, *migration.node_selector})
        found = schedule(selector, vmi.memory_with_overhead, nodes, used, avoid=vmi.node)
        return found, unschedulable_message(
            selector, vmi.memory_with_overhead, [n for n in nodes if n.name != vmi.node], used
        )

    async def _move(self, migration: Migration, vmi: VMI, target: str) -> None:
        settings = await self._effective_settings(await self._api.get(VMIS, *vmi.key))
        state = started_state(vmi, migration, target, settings, now())
        notes = []
        if settings.post_copy and (why := await self._hypervisor.why_no_post_copy()) is not None:
            settings = replace(settings, post_copy=False)
            notes = [post_copy_unavailable(why)]
            self._tell(vmi, "Warning", "PostCopyImpossible", f"{why}. It moves by pre-copy alone.")
        self._beginning.add(migration.uid)
        self.unfinished.begins(migration)
        await self._write(migration, "Running", state=state, notes=notes)
        await self._state(vmi, state)
        self._beginning.discard(migration.uid)
        log.info("%s/%s: moves from %s to %s", *vmi.key, vmi.node, target)
        self._tell(vmi, "Normal", "Migrating", f"It moves from {vmi.node} to {target}.")

        async def post_copied() -> None:
            nonlocal state
            state = post_copy_state(state)
            self._tell(vmi, "Normal", "PostCopy", f"It runs on {target} now, and its memory follows it.")
            try:
                await self._state(vmi, state)
            except ApiError as error:
                # It is no reason to stop a guest on its way; how it ended will tell of it.
                log.warning("%s/%s: that it goes on by post-copy is not written: %s", *vmi.key, error)

        faults, _ = self._informers.faults_of(vmi)
        moving = self._hypervisor.migrate(vmi, target, settings, faults, post_copied)
        task = asyncio.create_task(moving, name=f"migrate-{vmi.name}")
        self._moving[migration.key] = task
        if self._taken_back(migration, vmi):
            self._take_back(migration.key)
        try:
            await asyncio.wait({task})
        finally:
            if not task.done():
                self._take_back(migration.key)
                await asyncio.wait({task})
            del self._moving[migration.key]
        outcome = _outcome(task)
        if not outcome.failure:
            late = " It was too late to take that back." if outcome.requested else ""
            self._tell(vmi, "Normal", "Migrated", f"It has moved to {target}.{late}")
        else:
            self._tell(vmi, "Warning", "FailedMigration", f"It stays on {vmi.node}: {outcome.failure}.")
        phase, node = ("Failed", None) if outcome.failure else ("Succeeded", target)
        state = finished_state(state, now(), outcome)
        over = self._over[migration.key] = FinishedMigration(migration, vmi, state, node, phase, outcome.failure, notes)
        await self._end(over)

    def _taken_back(self, migration: Migration, vmi: VMI) -> bool:
        """Since it was decided."""
        migration_now = self._informers.migrations.store.get(migration.key)
        vmi_now = self._informers.vmis.store.get(vmi.key)
        return any(
            seen is None or seen.uid != before.uid or seen.deleted is not None
            for seen, before in ((migration_now, migration), (vmi_now, vmi))
        )

    async def _end(self, over: FinishedMigration) -> None:
        if not over.written:
            await self._state(over.vmi, over.state, over.node)
            # Written last: from then on the next migration of the VMI may begin.
            await self._write(over.migration, over.phase, over.why, over.state, over.notes)
            self._over[over.migration.key] = replace(over, written=True)
            self.unfinished.over(over.migration.key)
        self._seen_over(over.migration.key)

    def _seen_over(self, key: Key) -> None:
        """Forgets how it ended once that is written and the store shows it."""
        over, seen = self._over.get(key), self._informers.migrations.store.get(key)
        if over is not None and over.written and (seen is None or seen.final or seen.uid != over.migration.uid):
            del self._over[key]

    async def _forget(self, migration: Migration) -> None:
        with contextlib.suppress(NotFound, Conflict):  # gone, or another one already
            await self._api.delete(MIGRATIONS, *migration.key, uid=migration.uid)

    async def _effective_settings(self, vmi: Json) -> MigrationSettings:
        policies, _ = await self._api.list(MIGRATION_POLICIES)
        kubevirts, _ = await self._api.list(KUBEVIRTS)
        namespace = await self._api.get(NAMESPACES, None, vmi["metadata"]["namespace"])
        labels = vmi["metadata"].get("labels") or {}
        return effective_settings(labels, namespace["metadata"].get("labels") or {}, policies, kubevirts)

    async def _close(self, vmi: VMI, migration: Migration, end: FinishMigration) -> Json | None:
        """Ends what an engine before this one began; returns how it ended."""
        state: Json = vmi.status.get("migrationState") or {}
        if state.get("migrationUid") != migration.uid:
            return None
        if not state.get("completed"):
            state = finished_state(state, now(), Outcome(end.why))
            await self._state(vmi, state)
        return state

    async def _state(self, vmi: VMI, state: Json, node: str | None = None) -> None:
        body: Json = {"metadata": {"uid": vmi.uid}, "status": {"migrationState": state_patch(state)}}
        if node is not None:
            body["metadata"]["labels"] = {NODE_LABEL: node}
            body["status"]["nodeName"] = node
        try:
            await self._api.patch(VMIS, *vmi.key, body)
        except NotFound:
            log.debug("%s is gone", vmi.name)
        except (Conflict, Invalid):
            # Another one has its name by now, whose UID cannot be changed. Nothing is to be told of that.
            seen = self._informers.vmis.store.get(vmi.key)
            if seen is not None and seen.uid == vmi.uid:
                raise

    async def _write(
        self,
        migration: Migration,
        phase: str,
        why: str = "",
        state: Json | None = None,
        notes: Sequence[Json] = (),
    ) -> None:
        seen = self._informers.migrations.store.get(migration.key)
        # A status is written to whoever has the name: the API server heeds no UID there.
        if seen is None or seen.uid != migration.uid:
            return
        patch = merge_patch(seen.status, migration_status(seen, phase, now(), why, state, notes))
        if not patch:
            return
        with contextlib.suppress(NotFound):
            await self._api.patch(MIGRATIONS, *migration.key, {"status": patch}, subresource="status")

    def _tell(self, vmi: VMI, kind: EventType, reason: str, note: str) -> None:
        self._events.emit(vmi.reference(VMIS), kind, reason, note, action="Migrate")


def _outcome(task: asyncio.Task[None]) -> Outcome:
    if task.cancelled():
        return Outcome("Live migration has been aborted: it was taken back", "Succeeded", requested=True)
    error = task.exception()
    match error:
        case None:
            return Outcome(aborted="Failed", requested=True) if task.cancelling() else Outcome()
        case MigrationAborted():
            return Outcome(str(error), "Succeeded")
        case HypervisorRefused():
            return Outcome(str(error))
        case _:
            log.error("a migration failed in a way that was not foreseen", exc_info=error)
            return Outcome(repr(error))
