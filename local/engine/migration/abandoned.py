"""VMIs that say they are being moved while nobody moves them: their migration went while it could not be ended."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from local.engine.informers import Informers, now
from local.engine.migration.plan import ENGINE_ENDED, Outcome, finished_state, state_patch
from local.engine.objects import VMI, Migration
from local.engine.resources import VMIS
from runtime.api import Api
from runtime.controller import Controller
from runtime.errors import NotFound
from runtime.resource import Key

log = logging.getLogger(__name__)

Json = dict[str, Any]


class AbandonedMigrations:
    def __init__(self, api: Api, informers: Informers) -> None:
        self._api = api
        self._informers = informers
        # Those that this engine has begun, until all of their end is written: they may be gone by then.
        self._begun: dict[Key, Migration] = {}
        self.controller: Controller[Key] = Controller(
            "abandoned-migrations", self.reconcile, workers=1, metrics=api.metrics
        )
        informers.vmis.subscribe(self._vmi_changed)
        informers.migrations.subscribe(self._migration_changed)

    def begins(self, migration: Migration) -> None:
        self._begun[migration.key] = migration

    def begun(self, key: Key) -> Migration | None:
        return self._begun.get(key)

    def over(self, key: Key) -> None:
        """All is written of the one of this name, or never will be."""
        migration = self._begun.pop(key, None)
        if migration is not None:
            self.controller.enqueue((migration.namespace, migration.vmi))

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        if new is not None and _moves(new):
            self.controller.enqueue(new.key)

    def _migration_changed(self, old: Migration | None, new: Migration | None) -> None:
        if new is None and old is not None:
            self.controller.enqueue((old.namespace, old.vmi))

    async def reconcile(self, key: Key) -> None:
        vmi = self._informers.vmis.store.get(key)
        if vmi is None or not _moves(vmi):
            return
        state = vmi.status["migrationState"]
        known = (*self._informers.migrations.store.by("vmi", key), *self._begun.values())
        if any(each.uid == state.get("migrationUid") for each in known):
            return
        there = vmi.node == state.get("targetNode")
        state = finished_state(state, now(), Outcome() if there else Outcome(ENGINE_ENDED))
        # Of the VMI as it is seen: how it ended may have been written since.
        body: Json = {
            "metadata": {"resourceVersion": vmi.resource_version},
            "status": {"migrationState": state_patch(state)},
        }
        with contextlib.suppress(NotFound):
            await self._api.patch(VMIS, *key, body)
            log.info("%s/%s: its migration is gone; it is on %s", *key, vmi.node)


def _moves(vmi: VMI) -> bool:
    """By what it says itself."""
    state = vmi.status.get("migrationState") or {}
    return bool(state.get("migrationUid")) and not (state.get("completed") or vmi.final or vmi.deleted)
