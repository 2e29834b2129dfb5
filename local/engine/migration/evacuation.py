"""Drained nodes: asks for the migrations by which their VMIs leave, and takes back those that nobody needs any more."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from local.engine.informers import Informers, now
from local.engine.migration.plan import draining_nodes, evacuation, is_evacuation_obsolete, vmis_to_evacuate
from local.engine.objects import VMI, Migration, Node
from local.engine.resources import MIGRATIONS
from runtime.api import Api
from runtime.controller import Controller
from runtime.errors import Conflict, NotFound

log = logging.getLogger(__name__)


class EvacuationController:
    def __init__(self, api: Api, informers: Informers) -> None:
        self._api = api
        self._informers = informers
        self.controller: Controller[str] = Controller("evacuations", self.reconcile, workers=1, metrics=api.metrics)
        informers.migrations.subscribe(self._migration_changed)
        informers.vmis.subscribe(self._vmi_changed)
        informers.nodes.subscribe(self._node_changed)

    def _migration_changed(self, old: Migration | None, new: Migration | None) -> None:
        migration = new or old
        assert migration is not None
        if new is not None and new.phase == "Failed" and new.evacuates:
            self.controller.enqueue(new.evacuates)
        # The VMI may be asked to leave where it is now.
        vmi = self._informers.vmis.store.get((migration.namespace, migration.vmi))
        if vmi is not None and (new is None or new.final):
            self.controller.enqueue(vmi.node)

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        if new is not None and (old is None or (old.phase, old.node) != (new.phase, new.node)):
            self.controller.enqueue(new.node)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        node = new or old
        assert node is not None
        self.controller.enqueue(node.name)

    async def reconcile(self, node: str) -> float | None:
        nodes, migrations = self._informers.nodes.store.all(), self._informers.migrations.store.all()
        for each in migrations:
            vmi = self._informers.vmis.store.get((each.namespace, each.vmi))
            if each.evacuates == node and vmi is not None and is_evacuation_obsolete(each, vmi, draining_nodes(nodes)):
                log.info("%s/%s: stays, %s is not drained any more", *vmi.key, node)
                with contextlib.suppress(NotFound, Conflict):  # gone, or another one already
                    await self._api.delete(MIGRATIONS, *each.key, uid=each.uid)
        found, again = vmis_to_evacuate(nodes, self._informers.vmis.store.by("node", node), migrations, now())
        for vmi in found:
            made = await self._api.create(MIGRATIONS, evacuation(vmi))
            log.info("%s/%s: leaves %s by %s", *vmi.key, node, made["metadata"]["name"])
            await self._seen(made["metadata"]["namespace"], made["metadata"]["name"])
        return again

    async def _seen(self, namespace: str, name: str) -> None:
        """Waits until the store has it, or the next look would ask for another one."""
        for _ in range(50):
            if self._informers.migrations.store.get((namespace, name)) is not None:
                return
            await asyncio.sleep(0.1)
