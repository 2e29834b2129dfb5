"""Ends the migrationState of a VMI whose migration object was deleted before the engine wrote the outcome."""

import contextlib
import logging

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.resource import VMIS, Key
from poolhouse.stack.engine.informers import Informers
from poolhouse.stack.engine.migration.plan import ENGINE_RESTARTED, Outcome, finished_state, state_patch
from poolhouse.stack.engine.objects import VMI, Migration

log = logging.getLogger(__name__)


class AbandonedMigrations:
    def __init__(self, api: Api, informers: Informers) -> None:
        self._api, self._informers = api, informers
        # Started migrations whose outcome is not written yet. Users may delete the objects before that.
        self._started: dict[Key, Migration] = {}
        self.controller: Controller[Key] = Controller(
            "abandoned-migrations", self.reconcile, workers=1, metrics=api.metrics
        )
        informers.vmis.subscribe(self._vmi_changed)
        informers.migrations.subscribe(self._migration_changed)

    def start(self, migration: Migration) -> None:
        self._started[migration.key] = migration

    def started(self, key: Key) -> Migration | None:
        return self._started.get(key)

    def finish(self, key: Key) -> None:
        """Forgets a migration whose outcome is written or will never be written."""
        migration = self._started.pop(key, None)
        if migration is not None:
            self.controller.enqueue((migration.namespace, migration.vmi))

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        if new is not None and _has_open_state(new):
            self.controller.enqueue(new.key)

    def _migration_changed(self, old: Migration | None, new: Migration | None) -> None:
        if new is None and old is not None:
            self.controller.enqueue((old.namespace, old.vmi))

    async def reconcile(self, key: Key) -> None:
        vmi = self._informers.vmis.store.get(key)
        if vmi is None or not _has_open_state(vmi):
            return
        state = vmi.status["migrationState"]
        known = (*self._informers.migrations.store.by("vmi", key), *self._started.values())
        if any(each.uid == state.get("migrationUid") for each in known):
            return
        migrated = vmi.node == state.get("targetNode")
        state = finished_state(state, self._informers.now(), Outcome() if migrated else Outcome(ENGINE_RESTARTED))
        # With the resource version, the patch does not overwrite an outcome that is newer than the observed VMI.
        body: Json = {
            "metadata": {"resourceVersion": vmi.resource_version},
            "status": {"migrationState": state_patch(state)},
        }
        with contextlib.suppress(NotFound):
            await self._api.patch(VMIS, *key, body)
            log.info("%s/%s: its migration was deleted; the VMI runs on %s", *key, vmi.node)


def _has_open_state(vmi: VMI) -> bool:
    state = vmi.status.get("migrationState") or {}
    return bool(state.get("migrationUid")) and not (state.get("completed") or vmi.final or vmi.deleted)
