"""Migrates the VMIs whose guests do not have the CPUs or the memory of their spec, as KubeVirt's workload updater does.

KubeVirt begins such migrations only if its KubeVirt object has LiveMigrate among the workload update methods."""

import logging

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.api.kubevirt.live_updates import LIVE_MIGRATE
from poolhouse.runtime.api import Api
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.resource import Key
from poolhouse.stack.engine.informers import Informers
from poolhouse.stack.engine.migration.observed import await_migration, latest
from poolhouse.stack.engine.migration.plan import new_migration, retry_after
from poolhouse.stack.engine.objects import VMI, Migration, either
from poolhouse.stack.engine.resources import MIGRATIONS, WORKLOAD_UPDATE_ANNOTATION
from poolhouse.stack.engine.vm import live_updates
from poolhouse.stack.engine.writes import delete_present

log = logging.getLogger(__name__)


class WorkloadUpdateController:
    def __init__(self, api: Api, informers: Informers) -> None:
        self._api, self._informers = api, informers
        self.controller: Controller[Key] = Controller(
            "workload-updates", self.reconcile, workers=4, metrics=api.metrics
        )
        informers.vmis.subscribe(self._vmi_changed)
        informers.migrations.subscribe(self._migration_changed)
        informers.kubevirts.subscribe(self._kubevirt_changed)

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        changes = [bool(each and [*live_updates.conditions(each)]) for each in (old, new)]
        if any(changes):
            self.controller.enqueue(either(old, new).key)

    def _migration_changed(self, old: Migration | None, new: Migration | None) -> None:
        migration = either(old, new)
        if new is None or new.final:
            self.controller.enqueue((migration.namespace, migration.vmi))

    def _kubevirt_changed(self, old: ClusterSettings | None, new: ClusterSettings | None) -> None:
        for vmi in self._informers.vmis.store.all():
            if any(live_updates.conditions(vmi)):
                self.controller.enqueue(vmi.key)

    async def reconcile(self, key: Key) -> float | None:
        vmi = self._informers.vmis.store.get(key)
        migrations = self._informers.migrations.store.by("vmi", key)
        if vmi is None or vmi.phase != "Running" or vmi.deleted is not None:
            return None
        unfinished = [each for each in migrations if not each.final]
        if not any(live_updates.conditions(vmi)):
            await self._abort(unfinished)
            return None
        if unfinished or LIVE_MIGRATE not in self._informers.cluster_settings().update_methods:
            return None
        failed = [each for each in migrations if each.updates_workload and each.created >= vmi.created]
        if (wait := retry_after(failed, self._informers.now())) > 0:
            return wait
        current = await latest(self._api, vmi)
        if current is None or not any(live_updates.conditions(current)):
            return None
        created = await self._api.create(MIGRATIONS, _new_update(current))
        log.info("%s/%s: migrating to change the running guest", *key)
        await await_migration(self._informers, key[0], created["metadata"]["name"])
        return None

    async def _abort(self, migrations: list[Migration]) -> None:
        """Deletes migrations that have not begun and are no longer needed."""
        for each in migrations:
            if each.updates_workload and each.phase in ("", "Pending") and each.deleted is None:
                await delete_present(self._api, MIGRATIONS, each.key, each.uid)


def _new_update(vmi: VMI) -> Json:
    return new_migration(vmi, "kubevirt-workload-update-", {WORKLOAD_UPDATE_ANNOTATION: ""})
