"""Migrations: reads what is there, asks `moving`, and has the hypervisor move guests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from local.engine.documents import difference
from local.engine.hypervisor import Aborted, Hypervisor, Refused
from local.engine.moving import (
    End,
    Forget,
    Move,
    Outcome,
    Wait,
    begun,
    ended,
    leaving,
    no_post_copy,
    state_patch,
    status_of,
    surplus,
    switched,
    what_next,
)
from local.engine.place import place, unplaceable
from local.engine.resources import INSTANCES, KUBEVIRTS, MIGRATIONS, NAMESPACES, NODE_LABEL, POLICIES
from local.engine.room import Room
from local.engine.terms import Terms, terms_of
from local.engine.unfinished import Unfinished
from local.engine.views import Instance, Migration, Node
from local.engine.world import World, now
from runtime.api import Api, ApiError, Conflict, Invalid, Key, NotFound
from runtime.controller import Controller
from runtime.events import Events
from runtime.series import Type

log = logging.getLogger(__name__)

Json = dict[str, Any]

# KubeVirt's limit of migrations at once, all nodes together: each holds a worker while it lasts.
PARALLEL = 5


@dataclass(frozen=True)
class Over:
    """How one ended that this engine moved."""

    migration: Migration
    instance: Instance
    state: Json
    node: str | None
    """where the VMI is by that; None where it was"""
    phase: str
    why: str
    notes: Sequence[Json]
    written: bool = False


class Migrations:
    def __init__(self, api: Api, world: World, hypervisor: Hypervisor, events: Events, room: Room) -> None:
        self._api = api
        self._world = world
        self._hypervisor = hypervisor
        self._events = events
        self._room = room
        self.unfinished = Unfinished(api, world)
        self._moving: dict[Key, asyncio.Task[None]] = {}
        self._waiting: dict[Key, None] = {}
        # UIDs of those whose beginning may be written by half, or all of it: their guests have not begun to move.
        self._beginning: set[str] = set()
        # Those that are over, until all of that is written and seen: nobody left them behind. What is not written yet
        # is known here alone, so it is kept even where the migration itself is gone.
        self._over: dict[Key, Over] = {}
        # Its terms alone say how long a guest may take to move, and may say for ever.
        self.controller: Controller[Key] = Controller(
            "migrations", self.reconcile, workers=PARALLEL, deadline_seconds=None, metrics=api.metrics
        )
        world.migrations.subscribe(self._changed)
        world.instances.subscribe(self._instance_changed)
        world.nodes.subscribe(self._node_changed)
        room.subscribe(self._room_again)

    def _changed(self, old: Migration | None, new: Migration | None) -> None:
        migration = new or old
        assert migration is not None
        if new is None or new.final:
            self._beginning.discard(migration.uid)
            self._seen_over(migration.key)
            self._room.release(migration.uid)
        if new is None or new.deleted is not None:
            # Taking a migration back gives it up.
            self._take_back(migration.key)
        if new is None and self.unfinished.begun(migration.key):
            # Nobody else would see that it does not begin any more.
            self.controller.enqueue(migration.key)
        # One that is over lets the next of its VMI begin.
        for each in self._world.migrations.store.by("vmi", (migration.namespace, migration.vmi)):
            if not each.final:
                self.controller.enqueue(each.key)

    def _instance_changed(self, old: Instance | None, new: Instance | None) -> None:
        instance = new or old
        assert instance is not None
        for migration in self._world.migrations.store.by("vmi", instance.key):
            if not migration.final:
                self.controller.enqueue(migration.key)
            if new is None or new.deleted is not None:
                self._take_back(migration.key)
        if old is not None and (new is None or new.final or new.node != old.node):
            self._room_again()

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        for migration in self._world.migrations.store.all():
            if not migration.final:
                self.controller.enqueue(migration.key)

    def _room_again(self) -> None:
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
        migration, begun = self._world.migrations.store.get(key), self.unfinished.begun(key)
        if begun is not None and over is None and (migration is None or migration.uid != begun.uid):
            self.unfinished.over(key)
        if migration is None or key in self._moving or (over is not None and over.migration.uid == migration.uid):
            return None
        if migration.uid in self._beginning:
            migration = replace(migration, status={**migration.status, "phase": "Pending"})
        self._room.release(migration.uid)  # what an earlier try has kept
        instance = self._world.instances.store.get((migration.namespace, migration.vmi))
        others = self._world.migrations.store.by("vmi", (migration.namespace, migration.vmi))
        target, why_not = self._target(migration, instance) if instance is not None else (None, "")
        match what_next(migration, instance, others, target, why_not, leaving(self._world.nodes.store.all())):
            case Wait(why):
                self._waiting[key] = None
                await self._write(migration, "Pending", why)
            case End(phase, why) as end:
                state = await self._close(instance, migration, end) if instance is not None else None
                await self._write(migration, phase, why, state)
            case Forget():
                await self._forget(migration)
            case Move(node):
                assert instance is not None
                self._room.keep(migration.uid, node, instance.size)
                for each in surplus(others):
                    await self._forget(each)
                await self._move(migration, instance, node)
            case None:
                pass
        return None

    def _target(self, migration: Migration, instance: Instance) -> tuple[str | None, str]:
        nodes = self._world.nodes.store.all()
        used = self._room.used(nodes)
        selector = tuple({*instance.selector, *migration.selector})
        found = place(selector, instance.size, nodes, used, avoid=instance.node)
        return found, unplaceable(selector, instance.size, [n for n in nodes if n.name != instance.node], used)

    async def _move(self, migration: Migration, instance: Instance, target: str) -> None:
        terms = await self._terms(await self._api.get(INSTANCES, *instance.key))
        state = begun(instance, migration, target, terms, now())
        notes = []
        if terms.post_copy and (why := await self._hypervisor.no_post_copy()) is not None:
            terms = replace(terms, post_copy=False)
            notes = [no_post_copy(why)]
            self._tell(instance, "Warning", "PostCopyImpossible", f"{why}. It moves by pre-copy alone.")
        self._beginning.add(migration.uid)
        self.unfinished.begins(migration)
        await self._write(migration, "Running", state=state, notes=notes)
        await self._state(instance, state)
        self._beginning.discard(migration.uid)
        log.info("%s/%s: moves from %s to %s", *instance.key, instance.node, target)
        self._tell(instance, "Normal", "Migrating", f"It moves from {instance.node} to {target}.")

        async def post_copied() -> None:
            nonlocal state
            state = switched(state)
            self._tell(instance, "Normal", "PostCopy", f"It runs on {target} now, and its memory follows it.")
            try:
                await self._state(instance, state)
            except ApiError as error:
                # It is no reason to stop a guest on its way; how it ended will tell of it.
                log.warning("%s/%s: that it goes on by post-copy is not written: %s", *instance.key, error)

        faults, _ = self._world.faults_of(instance)
        moving = self._hypervisor.migrate(instance, target, terms, faults, post_copied)
        task = asyncio.create_task(moving, name=f"migrate-{instance.name}")
        self._moving[migration.key] = task
        if self._taken_back(migration, instance):
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
            self._tell(instance, "Normal", "Migrated", f"It has moved to {target}.{late}")
        else:
            self._tell(instance, "Warning", "FailedMigration", f"It stays on {instance.node}: {outcome.failure}.")
        phase, node = ("Failed", None) if outcome.failure else ("Succeeded", target)
        state = ended(state, now(), outcome)
        over = self._over[migration.key] = Over(migration, instance, state, node, phase, outcome.failure, notes)
        await self._end(over)

    def _taken_back(self, migration: Migration, instance: Instance) -> bool:
        """Since it was decided."""
        asked = self._world.migrations.store.get(migration.key)
        vmi = self._world.instances.store.get(instance.key)
        return any(
            seen is None or seen.uid != before.uid or seen.deleted is not None
            for seen, before in ((asked, migration), (vmi, instance))
        )

    async def _end(self, over: Over) -> None:
        if not over.written:
            await self._state(over.instance, over.state, over.node)
            # Written last: from then on the next migration of the VMI may begin.
            await self._write(over.migration, over.phase, over.why, over.state, over.notes)
            self._over[over.migration.key] = replace(over, written=True)
            self.unfinished.over(over.migration.key)
        self._seen_over(over.migration.key)

    def _seen_over(self, key: Key) -> None:
        """Forgets how it ended once that is written and the store shows it."""
        over, seen = self._over.get(key), self._world.migrations.store.get(key)
        if over is not None and over.written and (seen is None or seen.final or seen.uid != over.migration.uid):
            del self._over[key]

    async def _forget(self, migration: Migration) -> None:
        with contextlib.suppress(NotFound, Conflict):  # gone, or another one already
            await self._api.delete(MIGRATIONS, *migration.key, uid=migration.uid)

    async def _terms(self, instance: Json) -> Terms:
        policies, _ = await self._api.list(POLICIES)
        kubevirts, _ = await self._api.list(KUBEVIRTS)
        namespace = await self._api.get(NAMESPACES, None, instance["metadata"]["namespace"])
        labels = instance["metadata"].get("labels") or {}
        return terms_of(labels, namespace["metadata"].get("labels") or {}, policies, kubevirts)

    async def _close(self, instance: Instance, migration: Migration, end: End) -> Json | None:
        """Ends what an engine before this one began; returns how it ended."""
        state: Json = instance.status.get("migrationState") or {}
        if state.get("migrationUid") != migration.uid:
            return None
        if not state.get("completed"):
            state = ended(state, now(), Outcome(end.why))
            await self._state(instance, state)
        return state

    async def _state(self, instance: Instance, state: Json, node: str | None = None) -> None:
        body: Json = {"metadata": {"uid": instance.uid}, "status": {"migrationState": state_patch(state)}}
        if node is not None:
            body["metadata"]["labels"] = {NODE_LABEL: node}
            body["status"]["nodeName"] = node
        try:
            await self._api.patch(INSTANCES, *instance.key, body)
        except NotFound:
            log.debug("%s is gone", instance.name)
        except (Conflict, Invalid):
            # Another one has its name by now, whose UID cannot be changed. Nothing is to be told of that.
            seen = self._world.instances.store.get(instance.key)
            if seen is not None and seen.uid == instance.uid:
                raise

    async def _write(
        self,
        migration: Migration,
        phase: str,
        why: str = "",
        state: Json | None = None,
        notes: Sequence[Json] = (),
    ) -> None:
        seen = self._world.migrations.store.get(migration.key)
        # A status is written to whoever has the name: the API server heeds no UID there.
        if seen is None or seen.uid != migration.uid:
            return
        patch = difference(seen.status, status_of(seen, phase, now(), why, state, notes))
        if not patch:
            return
        with contextlib.suppress(NotFound):
            await self._api.patch(MIGRATIONS, *migration.key, {"status": patch}, subresource="status")

    def _tell(self, instance: Instance, kind: Type, reason: str, note: str) -> None:
        self._events.emit(instance.reference(INSTANCES), kind, reason, note, action="Migrate")


def _outcome(task: asyncio.Task[None]) -> Outcome:
    if task.cancelled():
        return Outcome("Live migration has been aborted: it was taken back", "Succeeded", requested=True)
    error = task.exception()
    match error:
        case None:
            return Outcome(aborted="Failed", requested=True) if task.cancelling() else Outcome()
        case Aborted():
            return Outcome(str(error), "Succeeded")
        case Refused():
            return Outcome(str(error))
        case _:
            log.error("a migration failed in a way that was not foreseen", exc_info=error)
            return Outcome(repr(error))
