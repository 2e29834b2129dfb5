"""VirtualMachines: reads what is there, asks `plan`, and does what it says."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from local.engine import objects
from local.engine.informers import Informers, now
from local.engine.objects import VM, VMI, DataVolume
from local.engine.resources import DATA_VOLUMES, VM_FINALIZER, VMIS, VMS, merge_patch, new_data_volume, new_vmi
from local.engine.vm.plan import (
    Action,
    AddFinalizer,
    CreateDataVolume,
    CreateVMI,
    Delays,
    DeleteVMI,
    RemoveFinalizer,
    SetRunStrategyAlways,
    VMPlan,
    plan_vm,
)
from runtime.api import Api
from runtime.controller import Controller
from runtime.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound
from runtime.expectations import Expectations
from runtime.resource import Key

log = logging.getLogger(__name__)

Json = dict[str, Any]


class VMController:
    def __init__(self, api: Api, informers: Informers, pace: Delays, *, workers: int = 16) -> None:
        self._api = api
        self._informers = informers
        self._pace = pace
        self._expected: Expectations[Key] = Expectations(timeout_seconds=30)
        self._failures: dict[Key, tuple[str, str]] = {}
        self.controller: Controller[Key] = Controller("vms", self.reconcile, workers=workers, metrics=api.metrics)
        informers.vms.subscribe(self._changed)
        informers.vmis.subscribe(self._vmi_changed)
        informers.data_volumes.subscribe(self._disk_changed)

    def _changed(self, old: VM | None, new: VM | None) -> None:
        vm = new or old
        assert vm is not None
        if new is None:
            self._failures.pop(vm.key, None)
        else:
            self.controller.enqueue(vm.key)

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        vmi = new or old
        assert vmi is not None
        self._expected.creation_observed(vmi.key, vmi.uid)
        if new is None or new.deleted is not None:
            self._expected.deletion_observed(vmi.key, vmi.uid)
        self.controller.enqueue(vmi.key)

    def _disk_changed(self, old: DataVolume | None, new: DataVolume | None) -> None:
        disk = new or old
        assert disk is not None
        for vm in self._informers.vms.store.by("pvc", disk.key):
            self.controller.enqueue(vm.key)

    async def reconcile(self, key: Key) -> float | None:
        vm = self._informers.vms.store.get(key)
        if vm is None:
            return None
        if not self._expected.satisfied(key, asyncio.get_running_loop().time()):
            return 1.0
        document: Json | None = None
        planned = self._plan(vm)
        if AddFinalizer() in planned.actions:
            document = await self._finalizers(vm, (*vm.finalizers, VM_FINALIZER))
            vm = objects.read_vm(document)
            planned = self._plan(vm)
        if planned.actions:
            try:
                for action in planned.actions:
                    await self._apply(action, vm, document)
            except (Invalid, Forbidden, AlreadyExists) as error:
                # It is told in the VM's status, and tried again after a pause that grows.
                self._failures[key] = "FailedCreate", str(error)
                await self._write(vm, self._plan(vm))
                raise
            self._failures.pop(key, None)
        await self._write(vm, planned)
        return planned.requeue_seconds

    def _plan(self, vm: VM) -> VMPlan:
        vmi = self._informers.vmis.store.get(vm.key)
        names = {*vm.data_volume_templates, *(volume.pvc for volume in vm.volumes)}
        found = {name: self._informers.data_volumes.store.get((vm.namespace, name)) for name in names}
        faults, _ = self._informers.faults(vm.faults)
        return plan_vm(
            vm,
            vmi if vmi is not None and vmi.controller_uid == vm.uid else None,
            {name: disk for name, disk in found.items() if disk is not None},
            now(),
            pace=self._pace,
            retry_seconds=faults.retry_seconds,
            failure=self._failures.get(vm.key),
        )

    async def _apply(self, action: Action, vm: VM, document: Json | None) -> None:
        match action:
            case RemoveFinalizer():
                await self._finalizers(vm, tuple(f for f in vm.finalizers if f != VM_FINALIZER))
            case CreateDataVolume(name):
                await self._create_disk(document or await self._fresh(vm), name)
            case CreateVMI(reason):
                log.info("%s/%s: starting, because %s", *vm.key, reason)
                await self._start(vm, document or await self._fresh(vm))
            case DeleteVMI(uid, reason):
                log.info("%s/%s: stopping, because %s", *vm.key, reason)
                await self._stop(vm, uid)
            case SetRunStrategyAlways():
                await self._run_always(await self._fresh(vm))

    async def _fresh(self, vm: VM) -> Json:
        """The document as it is now. What it says may have changed since the plan was made: then the plan is void."""
        document = await self._api.get(VMS, *vm.key)
        if objects.read_vm(document) != vm:
            raise Conflict(f"{vm.name} has changed meanwhile", status=409)
        return document

    async def _start(self, vm: VM, document: Json) -> None:
        paused = any((each.get("data") or {}).get("paused") == "true" for each in _requests(vm)[:1])
        made = await self._api.create(VMIS, new_vmi(document, vm.template_hash, paused=paused))
        uid = made["metadata"]["uid"]
        if next(iter(self._informers.vmis.store.by("uid", uid)), None) is None:
            self._expected.expect(vm.key, creates=[uid], now=asyncio.get_running_loop().time())

    async def _stop(self, vm: VM, uid: str) -> None:
        self._expected.expect(vm.key, deletes=[uid], now=asyncio.get_running_loop().time())
        try:
            await self._api.delete(VMIS, *vm.key, uid=uid)
        except (NotFound, Conflict):
            # Gone, or another one already: what was wanted.
            self._expected.deletion_observed(vm.key, uid)
        except ApiError:
            self._expected.deletion_observed(vm.key, uid)
            raise

    async def _create_disk(self, document: Json, name: str) -> None:
        body = new_data_volume(document, name)
        if body is None:
            return
        try:
            await self._api.create(DATA_VOLUMES, body)
        except AlreadyExists:
            # A disk that was kept from an earlier VM of this name is used again.
            log.debug("%s exists", name)

    async def _run_always(self, document: Json) -> None:
        spec = {"runStrategy": "Always"} if document["spec"].get("runStrategy") else {"running": True}
        metadata = document["metadata"]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "spec": spec}
        await self._api.patch(VMS, metadata["namespace"], metadata["name"], patch)

    async def _finalizers(self, vm: VM, finalizers: tuple[str, ...]) -> Json:
        patch = {"metadata": {"resourceVersion": vm.resource_version, "finalizers": list(finalizers)}}
        return await self._api.patch(VMS, *vm.key, patch)

    async def _write(self, vm: VM, planned: VMPlan) -> None:
        patch = merge_patch(vm.status, planned.status)
        if not patch or RemoveFinalizer() in planned.actions:
            return
        # With the version: a request to start or stop that came meanwhile must not be overwritten.
        body = {"metadata": {"resourceVersion": vm.resource_version}, "status": patch}
        try:
            await self._api.patch(VMS, *vm.key, body, subresource="status")
        except NotFound:
            log.debug("%s is gone", vm.name)


def _requests(vm: VM) -> list[Json]:
    return list(vm.status.get("stateChangeRequests") or ())
