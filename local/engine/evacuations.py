"""Drained nodes: asks for the migrations by which their VMIs leave, and takes back those that nobody needs any more."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from local.engine.moving import drained, evacuation, leaving, needless
from local.engine.resources import MIGRATIONS
from local.engine.views import Instance, Migration, Node
from local.engine.world import World, now
from runtime.api import Api, Conflict, NotFound
from runtime.controller import Controller

log = logging.getLogger(__name__)


class Evacuations:
    def __init__(self, api: Api, world: World) -> None:
        self._api = api
        self._world = world
        self.controller: Controller[str] = Controller("evacuations", self.reconcile, workers=1, metrics=api.metrics)
        world.migrations.subscribe(self._migration_changed)
        world.instances.subscribe(self._instance_changed)
        world.nodes.subscribe(self._node_changed)

    def _migration_changed(self, old: Migration | None, new: Migration | None) -> None:
        migration = new or old
        assert migration is not None
        if new is not None and new.phase == "Failed" and new.evacuates:
            self.controller.enqueue(new.evacuates)
        # The VMI may be asked to leave where it is now.
        instance = self._world.instances.store.get((migration.namespace, migration.vmi))
        if instance is not None and (new is None or new.final):
            self.controller.enqueue(instance.node)

    def _instance_changed(self, old: Instance | None, new: Instance | None) -> None:
        if new is not None and (old is None or (old.phase, old.node) != (new.phase, new.node)):
            self.controller.enqueue(new.node)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        node = new or old
        assert node is not None
        self.controller.enqueue(node.name)

    async def reconcile(self, node: str) -> float | None:
        nodes, migrations = self._world.nodes.store.all(), self._world.migrations.store.all()
        for each in migrations:
            instance = self._world.instances.store.get((each.namespace, each.vmi))
            if each.evacuates == node and instance is not None and needless(each, instance, leaving(nodes)):
                log.info("%s/%s: stays, %s is not drained any more", *instance.key, node)
                with contextlib.suppress(NotFound, Conflict):  # gone, or another one already
                    await self._api.delete(MIGRATIONS, *each.key, uid=each.uid)
        found, again = drained(nodes, self._world.instances.store.by("node", node), migrations, now())
        for instance in found:
            made = await self._api.create(MIGRATIONS, evacuation(instance))
            log.info("%s/%s: leaves %s by %s", *instance.key, node, made["metadata"]["name"])
            await self._seen(made["metadata"]["namespace"], made["metadata"]["name"])
        return again

    async def _seen(self, namespace: str, name: str) -> None:
        """Waits until the store has it, or the next look would ask for another one."""
        for _ in range(50):
            if self._world.migrations.store.get((namespace, name)) is not None:
                return
            await asyncio.sleep(0.1)
