"""Migrations: reads what is there, asks `moving`, and has the hypervisor move guests."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from local.engine.documents import difference
from local.engine.hypervisor import Hypervisor, Refused
from local.engine.moving import (
    End,
    Move,
    Wait,
    begun,
    drained,
    ended,
    evacuation,
    status_of,
    what_next,
)
from local.engine.place import place, unplaceable
from local.engine.resources import INSTANCES, KUBEVIRTS, MIGRATIONS, NAMESPACES, NODE_LABEL, POLICIES
from local.engine.terms import Terms, terms_of
from local.engine.views import Instance, Migration, Node
from local.engine.world import World, now
from runtime.api import Api, Key, NotFound
from runtime.controller import Controller

log = logging.getLogger(__name__)

Json = dict[str, Any]

# KubeVirt's limit of migrations at once, all nodes together: each holds a worker while it lasts.
PARALLEL = 5
LONGEST_SECONDS = 6 * 3600.0


class Migrations:
    def __init__(self, api: Api, world: World, hypervisor: Hypervisor) -> None:
        self._api = api
        self._world = world
        self._hypervisor = hypervisor
        self._moving: dict[Key, asyncio.Task[None]] = {}
        self.controller: Controller[Key] = Controller(
            "migrations", self.reconcile, workers=PARALLEL, deadline_seconds=LONGEST_SECONDS, metrics=api.metrics
        )
        self.evacuations: Controller[str] = Controller("evacuations", self.evacuate, workers=1, metrics=api.metrics)
        world.migrations.subscribe(self._changed)
        world.instances.subscribe(self._instance_changed)
        world.nodes.subscribe(self._node_changed)

    def _changed(self, old: Migration | None, new: Migration | None) -> None:
        migration = new or old
        assert migration is not None
        if new is None or new.deleted is not None:
            # Taking a migration back gives it up.
            task = self._moving.get(migration.key)
            if task is not None:
                task.cancel()
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
            if (new is None or new.deleted is not None) and migration.key in self._moving:
                self._moving[migration.key].cancel()
        if new is not None and (old is None or old.phase != new.phase):
            self.evacuations.enqueue(new.node)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        for migration in self._world.migrations.store.all():
            if not migration.final:
                self.controller.enqueue(migration.key)
        if new is not None:
            self.evacuations.enqueue(new.name)

    async def evacuate(self, node: str) -> None:
        """Asks for a migration of each VMI that must leave the node."""
        here = self._world.instances.store.by("node", node)
        for instance in drained(self._world.nodes.store.all(), here, self._world.migrations.store.all()):
            made = await self._api.create(MIGRATIONS, evacuation(instance))
            log.info("%s/%s: leaves %s by %s", *instance.key, node, made["metadata"]["name"])
            await self._seen(made["metadata"]["namespace"], made["metadata"]["name"])

    async def _seen(self, namespace: str, name: str) -> None:
        """Waits until the store has it, or the next look would ask for another one."""
        for _ in range(50):
            if self._world.migrations.store.get((namespace, name)) is not None:
                return
            await asyncio.sleep(0.1)

    async def reconcile(self, key: Key) -> float | None:
        migration = self._world.migrations.store.get(key)
        if migration is None or key in self._moving:
            return None
        instance = self._world.instances.store.get((migration.namespace, migration.vmi))
        others = self._world.migrations.store.by("vmi", (migration.namespace, migration.vmi))
        target, why_not = self._target(migration, instance) if instance is not None else (None, "")
        match what_next(migration, instance, others, target, why_not):
            case Wait(why):
                await self._write(migration, "Pending", why)
            case End(phase, why):
                await self._write(migration, phase, why)
                if instance is not None and phase == "Failed":
                    await self._close(instance, migration, why)
            case Move(node):
                assert instance is not None
                await self._move(migration, instance, node)
            case None:
                pass
        return None

    def _target(self, migration: Migration, instance: Instance) -> tuple[str | None, str]:
        nodes = self._world.nodes.store.all()
        used = {
            node.name: sum(each.size for each in self._world.instances.store.by("node", node.name)) for node in nodes
        }
        selector = tuple({*instance.selector, *migration.selector})
        found = place(selector, instance.size, nodes, used, avoid=instance.node)
        return found, unplaceable(selector, instance.size, [n for n in nodes if n.name != instance.node], used)

    async def _move(self, migration: Migration, instance: Instance, target: str) -> None:
        document = await self._api.get(INSTANCES, *instance.key)
        terms = await self._terms(document)
        state = begun(instance, migration, target, terms, now())
        await self._write(migration, "Running")
        await self._state(instance, state)
        log.info("%s/%s: moves from %s to %s", *instance.key, instance.node, target)
        if terms.post_copy:
            # It needs vm.unprivileged_userfaultfd or privileges, and guests here have neither.
            log.info("%s/%s: post-copy is allowed and not possible here: it moves by pre-copy", *instance.key)
        task = asyncio.create_task(self._hypervisor.migrate(instance, target, terms), name=f"migrate-{instance.name}")
        self._moving[migration.key] = task
        failure: str | None = None
        try:
            await asyncio.wait({task})
            failure = _failure(task)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
            del self._moving[migration.key]
        await self._state(instance, ended(state, now(), failure), None if failure else target)
        # Written last: from then on the next migration of the VMI may begin.
        await self._write(migration, "Failed" if failure else "Succeeded", failure or "")

    async def _terms(self, instance: Json) -> Terms:
        policies, _ = await self._api.list(POLICIES)
        kubevirts, _ = await self._api.list(KUBEVIRTS)
        namespace = await self._api.get(NAMESPACES, None, instance["metadata"]["namespace"])
        labels = instance["metadata"].get("labels") or {}
        return terms_of(labels, namespace["metadata"].get("labels") or {}, policies, kubevirts)

    async def _close(self, instance: Instance, migration: Migration, why: str) -> None:
        state = instance.status.get("migrationState") or {}
        if state.get("migrationUid") == migration.uid and not state.get("completed"):
            await self._state(instance, ended(state, now(), why))

    async def _state(self, instance: Instance, state: Json, node: str | None = None) -> None:
        body: Json = {"metadata": {"uid": instance.uid}, "status": {"migrationState": state}}
        if node is not None:
            body["metadata"]["labels"] = {NODE_LABEL: node}
            body["status"]["nodeName"] = node
        try:
            await self._api.patch(INSTANCES, *instance.key, body)
        except NotFound:
            log.debug("%s is gone", instance.name)

    async def _write(self, migration: Migration, phase: str, why: str = "") -> None:
        found = self._world.migrations.store.get(migration.key) or migration
        patch = difference(found.status, status_of(found, phase, now(), why))
        if not patch:
            return
        try:
            await self._api.patch(MIGRATIONS, *migration.key, {"status": patch}, subresource="status")
        except NotFound:
            log.debug("%s is gone", migration.name)


def _failure(task: asyncio.Task[None]) -> str | None:
    """Why it failed, or None."""
    if task.cancelled():
        return "it was given up"
    error = task.exception()
    match error:
        case None:
            return None
        case TimeoutError():
            return "it did not come to an end in the time that its policy gives it"
        case Refused():
            return str(error)
        case _:
            log.error("a migration failed in a way that was not foreseen", exc_info=error)
            return repr(error)
