"""Creates a migration for each VMI that has to leave its node, and deletes obsolete migrations."""

import logging

from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.runtime.api import Api
from poolhouse.runtime.controller import Controller
from poolhouse.stack.engine.informers import Informers
from poolhouse.stack.engine.migration.observed import await_migration, latest
from poolhouse.stack.engine.migration.plan import (
    draining_nodes,
    is_evacuation_obsolete,
    new_evacuation,
    vmis_to_evacuate,
)
from poolhouse.stack.engine.objects import VMI, Migration, Node, either
from poolhouse.stack.engine.resources import MIGRATIONS
from poolhouse.stack.engine.writes import delete_present

log = logging.getLogger(__name__)


def _place(vmi: VMI) -> tuple[str, str, bool]:
    return vmi.phase, vmi.node, vmi.marked_for_eviction


class EvacuationController:
    def __init__(self, api: Api, informers: Informers) -> None:
        self._api, self._informers = api, informers
        self.controller: Controller[str] = Controller("evacuations", self.reconcile, workers=1, metrics=api.metrics)
        informers.migrations.subscribe(self._migration_changed)
        informers.vmis.subscribe(self._vmi_changed)
        informers.nodes.subscribe(self._node_changed)
        informers.kubevirts.subscribe(self._settings_changed)

    def _migration_changed(self, old: Migration | None, new: Migration | None) -> None:
        migration = either(old, new)
        if new is not None and new.phase == "Failed" and new.evacuates:
            self.controller.enqueue(new.evacuates)
        # The target node of a finished migration may be draining too.
        vmi = self._informers.vmis.store.get((migration.namespace, migration.vmi))
        if vmi is not None and (new is None or new.final):
            self.controller.enqueue(vmi.node)

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        if new is not None and (old is None or _place(old) != _place(new)):
            self.controller.enqueue(new.node)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        node = either(old, new)
        self.controller.enqueue(node.name)

    def _settings_changed(self, old: ClusterSettings | None, new: ClusterSettings | None) -> None:
        for node in self._informers.nodes.store.all():
            self.controller.enqueue(node.name)

    async def reconcile(self, node: str) -> float | None:
        nodes, migrations = self._informers.nodes.store.all(), self._informers.migrations.store.all()
        for each in migrations:
            vmi = self._informers.vmis.store.get((each.namespace, each.vmi))
            if each.evacuates == node and vmi is not None and is_evacuation_obsolete(each, vmi, draining_nodes(nodes)):
                log.info("%s/%s: not evacuated: %s is no longer drained", *vmi.key, node)
                await delete_present(self._api, MIGRATIONS, each.key, each.uid)
        vmis = self._informers.vmis.store.by("node", node)
        now, strategy = self._informers.now(), self._informers.cluster_settings().eviction_strategy
        found, requeue_seconds = vmis_to_evacuate(nodes, vmis, migrations, now, strategy)
        for vmi in found:
            current = await latest(self._api, vmi)
            if current is None or not vmis_to_evacuate(nodes, [current], migrations, now, strategy)[0]:
                continue
            created = await self._api.create(MIGRATIONS, new_evacuation(vmi))
            log.info("%s/%s: evacuating %s by migration %s", *vmi.key, node, created["metadata"]["name"])
            await await_migration(self._informers, created["metadata"]["namespace"], created["metadata"]["name"])
        return requeue_seconds
