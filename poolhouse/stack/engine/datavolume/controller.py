"""Reconciles DataVolumes and PVCs: observes them, asks `phases` for a plan, and applies it."""

import asyncio

from poolhouse.api.apimachinery.merge_patch import merge_patch
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.resource import PVCS, Key
from poolhouse.stack.engine.api_object import Pairs
from poolhouse.stack.engine.datavolume.importer import Importer
from poolhouse.stack.engine.datavolume.phases import Action, BindPVC, CreatePVC, StartImport, plan_data_volume
from poolhouse.stack.engine.disk_objects import PVC, DataVolume
from poolhouse.stack.engine.informers import Informers
from poolhouse.stack.engine.objects import VM, either
from poolhouse.stack.engine.resources import CONTENT_ANNOTATION, DATA_VOLUMES, new_pvc
from poolhouse.stack.engine.writes import create_absent, patch_present


class DataVolumeController:
    def __init__(self, api: Api, informers: Informers, importer: Importer) -> None:
        self._api, self._informers, self._importer = api, informers, importer
        self._deleted_pvcs: asyncio.Queue[PVC] = asyncio.Queue()
        self.controller: Controller[Key] = Controller("datavolumes", self.reconcile, workers=16, metrics=api.metrics)
        informers.data_volumes.subscribe(self._changed)
        informers.pvcs.subscribe(self._pvc_changed)
        informers.vms.subscribe(self._vm_changed)
        informers.settings.subscribe(self._settings_changed)
        importer.subscribe(self.controller.enqueue)

    def _changed(self, old: DataVolume | None, new: DataVolume | None) -> None:
        if new is not None:
            self.controller.enqueue(new.key)

    def _pvc_changed(self, old: PVC | None, new: PVC | None) -> None:
        pvc = either(old, new)
        self.controller.enqueue(pvc.key)
        if old is not None and (new is None or new.uid != old.uid):
            self._deleted_pvcs.put_nowait(old)

    def _vm_changed(self, old: VM | None, new: VM | None) -> None:
        if old is not None and new is not None and new.faults != old.faults:
            for name in new.data_volume_templates:
                self.controller.enqueue((new.namespace, name))

    def _settings_changed(self, old: Pairs | None, new: Pairs | None) -> None:
        for data_volume in self._informers.data_volumes.store.all():
            if not data_volume.ready:
                self.controller.enqueue(data_volume.key)

    async def delete_files(self) -> None:
        """Deletes the files of PVCs that no longer exist, in a loop."""
        await self._importer.delete_orphans(self._informers.pvcs.store.all())
        while True:
            await self._importer.delete(await self._deleted_pvcs.get())

    async def reconcile(self, key: Key) -> float | None:
        data_volume, pvc = self._informers.data_volumes.store.get(key), self._informers.pvcs.store.get(key)
        if pvc is not None and pvc.restored_by and pvc.phase != "Bound":
            return None  # a restore fills the disk
        if data_volume is None and pvc is not None and not pvc.data_volume_uid and pvc.phase != "Bound":
            await self._bind(pvc, pvc.content or await self._importer.create_blank(pvc))
        if data_volume is None or data_volume.ready:
            return None
        vm = self._informers.vm_of(data_volume.controller_uid)
        faults, _ = self._informers.faults(vm.faults if vm is not None else ())
        progress = self._importer.progress(data_volume, pvc, faults, self._informers.now())
        plan = plan_data_volume(data_volume, pvc, progress, self._informers.now())
        for action in plan.actions:
            await self._apply(action, data_volume, pvc)
        await self._write_status(data_volume, plan.status)
        return plan.requeue_seconds

    async def _apply(self, action: Action, data_volume: DataVolume, pvc: PVC | None) -> None:
        match action:
            case CreatePVC():
                await self._create_pvc(data_volume)
            case StartImport():
                assert pvc is not None
                await self._importer.start(data_volume, pvc)
            case BindPVC(content):
                assert pvc is not None
                await self._bind(pvc, content)

    async def _create_pvc(self, data_volume: DataVolume) -> None:
        document = await self._api.get(DATA_VOLUMES, *data_volume.key)
        if document["metadata"]["uid"] == data_volume.uid:
            await create_absent(self._api, PVCS, new_pvc(document))

    async def _bind(self, pvc: PVC, content: str) -> None:
        if pvc.content != content:
            annotated = {"metadata": {"uid": pvc.uid, "annotations": {CONTENT_ANNOTATION: content}}}
            await self._api.patch(PVCS, *pvc.key, annotated)
        status = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": pvc.size}}
        # With the UID, the API server refuses the patch if a new PVC has the name; the new PVC's disk is empty.
        bound = {"metadata": {"uid": pvc.uid}, "status": status}
        await self._api.patch(PVCS, *pvc.key, bound, subresource="status")

    async def _write_status(self, data_volume: DataVolume, status: Json) -> None:
        patch = merge_patch(data_volume.status, status)
        if not patch:
            return
        body = {"metadata": {"resourceVersion": data_volume.resource_version}, "status": patch}
        await patch_present(self._api, DATA_VOLUMES, data_volume.key, body, "status")
