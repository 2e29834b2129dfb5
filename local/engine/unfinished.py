"""VMIs that say they are being moved while nobody moves them: their migration went while it could not be ended."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from local.engine.moving import ENGINE_ENDED, Outcome, ended, state_patch
from local.engine.resources import INSTANCES
from local.engine.views import Instance, Migration
from local.engine.world import World, now
from runtime.api import Api, Key, NotFound
from runtime.controller import Controller

log = logging.getLogger(__name__)

Json = dict[str, Any]


class Unfinished:
    def __init__(self, api: Api, world: World) -> None:
        self._api = api
        self._world = world
        # Those that this engine has begun, until all of their end is written: they may be gone by then.
        self._begun: dict[Key, Migration] = {}
        self.controller: Controller[Key] = Controller("unfinished", self.reconcile, workers=1, metrics=api.metrics)
        world.instances.subscribe(self._instance_changed)
        world.migrations.subscribe(self._migration_changed)

    def begins(self, migration: Migration) -> None:
        self._begun[migration.key] = migration

    def begun(self, key: Key) -> Migration | None:
        return self._begun.get(key)

    def over(self, key: Key) -> None:
        """All is written of the one of this name, or never will be."""
        migration = self._begun.pop(key, None)
        if migration is not None:
            self.controller.enqueue((migration.namespace, migration.vmi))

    def _instance_changed(self, old: Instance | None, new: Instance | None) -> None:
        if new is not None and _moves(new):
            self.controller.enqueue(new.key)

    def _migration_changed(self, old: Migration | None, new: Migration | None) -> None:
        if new is None and old is not None:
            self.controller.enqueue((old.namespace, old.vmi))

    async def reconcile(self, key: Key) -> None:
        instance = self._world.instances.store.get(key)
        if instance is None or not _moves(instance):
            return
        state = instance.status["migrationState"]
        known = (*self._world.migrations.store.by("vmi", key), *self._begun.values())
        if any(each.uid == state.get("migrationUid") for each in known):
            return
        there = instance.node == state.get("targetNode")
        state = ended(state, now(), Outcome() if there else Outcome(ENGINE_ENDED))
        # Of the VMI as it is seen: how it ended may have been written since.
        body: Json = {
            "metadata": {"resourceVersion": instance.resource_version},
            "status": {"migrationState": state_patch(state)},
        }
        with contextlib.suppress(NotFound):
            await self._api.patch(INSTANCES, *key, body)
            log.info("%s/%s: its migration is gone; it is on %s", *key, instance.node)


def _moves(instance: Instance) -> bool:
    """By what it says itself."""
    state = instance.status.get("migrationState") or {}
    return bool(state.get("migrationUid")) and not (state.get("completed") or instance.final or instance.deleted)
