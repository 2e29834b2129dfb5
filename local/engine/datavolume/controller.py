"""DataVolumes and their pvcs: reads what is there, asks `volumes`, and does what it says."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from local.engine.datavolume.importer import Importer
from local.engine.datavolume.phases import Action, BindPVC, CreatePVC, StartImport, plan_data_volume
from local.engine.documents import merge_patch, pvc_for
from local.engine.informers import Informers, now
from local.engine.objects import PVC, DataVolume, Pairs
from local.engine.resources import CONTENT_ANNOTATION, DATA_VOLUMES, PVCS
from runtime.api import Api
from runtime.controller import Controller
from runtime.errors import AlreadyExists, NotFound
from runtime.resource import Key

log = logging.getLogger(__name__)

Json = dict[str, Any]


class DataVolumeController:
    def __init__(self, api: Api, informers: Informers, importer: Importer, *, workers: int = 16) -> None:
        self._api = api
        self._informers = informers
        self._importer = importer
        self._dropped: asyncio.Queue[PVC] = asyncio.Queue()
        self.controller: Controller[Key] = Controller(
            "datavolumes", self.reconcile, workers=workers, metrics=api.metrics
        )
        informers.data_volumes.subscribe(self._changed)
        informers.pvcs.subscribe(self._pvc_changed)
        informers.settings.subscribe(self._settings_changed)
        importer.subscribe(self.controller.enqueue)

    def _changed(self, old: DataVolume | None, new: DataVolume | None) -> None:
        if new is not None:
            self.controller.enqueue(new.key)

    def _pvc_changed(self, old: PVC | None, new: PVC | None) -> None:
        pvc = new or old
        assert pvc is not None
        self.controller.enqueue(pvc.key)
        if old is not None and (new is None or new.uid != old.uid):
            self._dropped.put_nowait(old)

    def _settings_changed(self, old: Pairs | None, new: Pairs | None) -> None:
        for disk in self._informers.data_volumes.store.all():
            if not disk.ready:
                self.controller.enqueue(disk.key)

    async def clear(self) -> None:
        """For ever: removes the files of pvcs that are gone."""
        await self._importer.sweep(self._informers.pvcs.store.all())
        while True:
            await self._importer.drop(await self._dropped.get())

    async def reconcile(self, key: Key) -> float | None:
        disk, pvc = self._informers.data_volumes.store.get(key), self._informers.pvcs.store.get(key)
        if disk is None and pvc is not None and not pvc.data_volume and pvc.phase != "Bound":
            await self._bind(pvc, pvc.content or await self._importer.provide(pvc))
        if disk is None or disk.ready:
            return None
        vm = self._informers.vm_of(disk.owner)
        faults, _ = self._informers.faults(vm.faults if vm is not None else ())
        wanted = plan_data_volume(disk, pvc, self._importer.progress(disk, pvc, faults, now()), now())
        for action in wanted.actions:
            await self._apply(action, disk, pvc)
        await self._write(disk, wanted.status)
        return wanted.requeue_seconds

    async def _apply(self, action: Action, disk: DataVolume, pvc: PVC | None) -> None:
        match action:
            case CreatePVC():
                await self._create_pvc(disk)
            case StartImport():
                assert pvc is not None
                await self._importer.fill(disk, pvc)
            case BindPVC(content):
                assert pvc is not None
                await self._bind(pvc, content)

    async def _create_pvc(self, disk: DataVolume) -> None:
        document = await self._api.get(DATA_VOLUMES, *disk.key)
        if document["metadata"]["uid"] != disk.uid:
            return
        try:
            await self._api.create(PVCS, pvc_for(document))
        except AlreadyExists:
            log.debug("%s/%s: its pvc is there already", *disk.key)

    async def _bind(self, pvc: PVC, content: str) -> None:
        if pvc.content != content:
            annotated = {"metadata": {"uid": pvc.uid, "annotations": {CONTENT_ANNOTATION: content}}}
            await self._api.patch(PVCS, *pvc.key, annotated)
        status = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": pvc.size}}
        # The UID makes it this pvc's alone: another of the same name has nothing in it yet.
        bound = {"metadata": {"uid": pvc.uid}, "status": status}
        await self._api.patch(PVCS, *pvc.key, bound, subresource="status")

    async def _write(self, disk: DataVolume, status: Json) -> None:
        patch = merge_patch(disk.status, status)
        if not patch:
            return
        body = {"metadata": {"resourceVersion": disk.resource_version}, "status": patch}
        try:
            await self._api.patch(DATA_VOLUMES, *disk.key, body, subresource="status")
        except NotFound:
            log.debug("%s is gone", disk.name)
