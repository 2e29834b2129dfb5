"""Reconciles VMs: observes a VM, its VMI and its DataVolumes, asks `plan` for actions, and applies them."""

import asyncio
import logging
from collections.abc import Collection
from dataclasses import replace

from poolhouse.api.apimachinery.merge_patch import merge_patch
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kubevirt.live_updates import is_live_update
from poolhouse.runtime.api import Api, find
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound
from poolhouse.runtime.expectations import Expectations
from poolhouse.runtime.instancetypes import Unreadable
from poolhouse.runtime.resource import PVCS, VMIS, VMS, Key
from poolhouse.stack.engine.admission.mutation import default_vmi
from poolhouse.stack.engine.disk_objects import PVC, DataVolume, read_pvc
from poolhouse.stack.engine.informers import Informers
from poolhouse.stack.engine.objects import VM, VMI, either, read_vm, read_vmi
from poolhouse.stack.engine.resources import DATA_SOURCES, DATA_VOLUMES, VM_FINALIZER, new_data_volume, new_vmi
from poolhouse.stack.engine.vm import hotplug, live_updates, plan
from poolhouse.stack.engine.vm.hotplug import HotplugRefused
from poolhouse.stack.engine.vm.instancetypes import Instancetypes
from poolhouse.stack.engine.vm.live_updates import Hotplug
from poolhouse.stack.engine.vm.subresources import run_strategy_patch
from poolhouse.stack.engine.writes import create_absent, patch_present

log = logging.getLogger(__name__)


FAILURES: dict[type[Exception], str] = {HotplugRefused: "HotPlugVolumeError"}
"""reasons of the condition Failure that differ from FailedCreate"""


class VMController:
    def __init__(
        self,
        api: Api,
        informers: Informers,
        delays: plan.Delays,
        *,
        hotplugs: Collection[Hotplug] = (),
    ) -> None:
        self._api, self._informers, self._delays, self._hotplugs = api, informers, delays, hotplugs
        self._expectations: Expectations[Key] = Expectations(timeout_seconds=30)
        self._instancetypes = Instancetypes(api)
        self._failures: dict[Key, tuple[str, str]] = {}
        self.controller: Controller[Key] = Controller("vms", self.reconcile, workers=16, metrics=api.metrics)
        informers.vms.subscribe(self._changed)
        informers.vmis.subscribe(self._vmi_changed)
        informers.data_volumes.subscribe(self._data_volume_changed)
        informers.pvcs.subscribe(self._pvc_changed)
        informers.namespaces.subscribe(self._namespace_changed)

    def _changed(self, old: VM | None, new: VM | None) -> None:
        if new is not None:
            self.controller.enqueue(new.key)
        elif old is not None:
            self._failures.pop(old.key, None)

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        vmi = either(old, new)
        self._expectations.creation_observed(vmi.key, vmi.uid)
        if new is None or new.deleted is not None:
            self._expectations.deletion_observed(vmi.key, vmi.uid)
        self.controller.enqueue(vmi.key)

    def _data_volume_changed(self, old: DataVolume | None, new: DataVolume | None) -> None:
        data_volume = either(old, new)
        for vm in self._informers.vms.store.by("pvc", data_volume.key):
            self.controller.enqueue(vm.key)

    def _pvc_changed(self, old: PVC | None, new: PVC | None) -> None:
        pvc = either(old, new)
        if self._informers.data_volumes.store.get(pvc.key) is None:
            for vm in self._informers.vms.store.by("pvc", pvc.key):
                self.controller.enqueue(vm.key)

    def _namespace_changed(self, old: bool | None, new: bool | None) -> None:
        """Reconciles VMs that wait for hardware defaults, when a namespace has opted out of them."""
        for vm in self._informers.vms.store.all() if new else ():
            if vm.awaits_defaults:
                self.controller.enqueue(vm.key)

    async def reconcile(self, key: Key) -> float | None:
        vm = self._informers.vms.store.get(key)
        if vm is None:
            return None
        if not self._expectations.satisfied(key, asyncio.get_running_loop().time()):
            return 1.0
        document: Json | None = None
        wanted = self._plan(vm)
        if plan.AddFinalizer() in wanted.actions:
            document = await self._write_finalizers(vm, (*vm.finalizers, VM_FINALIZER))
            vm = read_vm(document)
            wanted = self._plan(vm)
        if vm.expands and vm.deleted is None:
            return await self._reconcile_expanded(vm)
        return await self._carry_out(vm, wanted, document)

    async def _reconcile_expanded(self, vm: VM) -> float | None:
        """Reconciles a VM with an instance type or a preference."""
        try:
            settings = self._informers.cluster_settings()
            document = await self._instancetypes.expanded(await self._unchanged(vm), settings)
        except Unreadable as error:
            self._failures[vm.key] = "FailedFindInstancetype", str(error)
            await self._write_status(vm, self._plan(vm))
            raise
        vm = read_vm(document)
        return await self._carry_out(vm, self._plan(vm), document)

    async def _carry_out(self, vm: VM, wanted: plan.VMPlan, document: Json | None) -> float | None:
        key = vm.key
        if wanted.actions:
            try:
                for action in wanted.actions:
                    await self._apply(action, vm, document)
            except (Invalid, Forbidden, AlreadyExists, HotplugRefused) as error:
                # The VM's status shows the failure, and the queue retries with a backoff.
                message = error.message if isinstance(error, ApiError) else str(error)
                self._failures[key] = FAILURES.get(type(error), "FailedCreate"), message
                await self._write_status(vm, self._plan(vm))
                raise
            self._failures.pop(key, None)
        await self._write_status(vm, wanted)
        return wanted.requeue_seconds

    def _plan(self, vm: VM) -> plan.VMPlan:
        vmi = self._informers.vmis.store.get(vm.key)
        if self._informers.namespaces.store.get(("", vm.namespace)):
            vm = replace(vm, awaits_defaults=False)
        names = {*vm.data_volume_templates, *(volume.pvc for volume in vm.volumes)}
        found = {name: self._informers.data_volumes.store.get((vm.namespace, name)) for name in names}
        claims = {name: self._informers.pvcs.store.get((vm.namespace, name)) for name in vm.data_volume_templates}
        faults, _ = self._informers.faults(vm.faults)
        return plan.plan_vm(
            vm,
            vmi if vmi is not None and vmi.controller_uid == vm.uid else None,
            {name: data_volume for name, data_volume in found.items() if data_volume is not None},
            self._informers.now(),
            claims={name: claim for name, claim in claims.items() if claim is not None},
            delays=self._delays,
            retry_seconds=faults.retry_seconds,
            failure=self._failures.get(vm.key),
            live=is_live_update(self._informers.cluster_settings()),
        )

    async def _apply(self, action: plan.Action, vm: VM, document: Json | None) -> None:
        match action:
            case plan.RemoveFinalizer():
                await self._write_finalizers(vm, tuple(f for f in vm.finalizers if f != VM_FINALIZER))
            case plan.CreateDataVolume(name):
                if not await self._has_disk(vm, name):
                    await self._create_data_volume(document or await self._unchanged(vm), name)
            case plan.CreateVMI(reason):
                log.info("%s/%s: creating the VMI: %s", *vm.key, reason)
                await self._create_vmi(vm, document or await self._unchanged(vm))
            case plan.DeleteVMI(uid, reason):
                log.info("%s/%s: deleting the VMI: %s", *vm.key, reason)
                await self._delete_vmi(vm, uid)
            case plan.SyncDevices():
                await self._sync_devices(document or await self._unchanged(vm), vm)
            case plan.UpdateVMI():
                await self._update_vmi(vm, document or await self._unchanged(vm))
            case plan.SetRunStrategyAlways():
                await self._api.patch(
                    VMS, *vm.key, run_strategy_patch(document or await self._unchanged(vm), running=True)
                )

    async def _unchanged(self, vm: VM) -> Json:
        """Reads the VM's document. Raises `Conflict` if the VM has changed since the plan."""
        document = await self._api.get(VMS, *vm.key)
        if read_vm(document) != vm:
            raise Conflict(f"VM {vm.name} has changed since it was observed", status=409)
        return document

    async def _create_vmi(self, vm: VM, document: Json) -> None:
        first = (vm.status.get("stateChangeRequests") or [{}])[0]
        paused = (first.get("data") or {}).get("paused") == "true"
        # The API server does not call the mutating webhook for the VMIs of the engine itself.
        settings = self._informers.cluster_settings()
        vmi = default_vmi(new_vmi(document, vm.template_hash, paused=paused), settings)
        vmi = live_updates.prepare(vmi, self._hotplugs, live=is_live_update(settings))
        created = await self._api.create(VMIS, vmi)
        uid = created["metadata"]["uid"]
        if self._informers.vmis.store.first("uid", uid) is None:
            self._expectations.expect(vm.key, creates=[uid], now=asyncio.get_running_loop().time())

    async def _sync_devices(self, document: Json, vm: VM) -> None:
        vmi = await find(self._api, VMIS, *vm.key)
        template = document["spec"]["template"]["spec"]
        status, spec = (vmi.get("status") or {}, vmi["spec"]) if vmi is not None else ({}, None)
        if vmi is not None and (changes := hotplug.plan_vmi(template, vmi["spec"], status)):
            log.info("%s/%s: changing the devices of the VMI", *vm.key)
            await self._api.patch(VMIS, *vm.key, {"metadata": _version(vmi), "spec": changes})
        elif left := hotplug.plan_vm(template, spec, status):
            patch = {"metadata": _version(document), "spec": {"template": {"spec": left}}}
            await self._api.patch(VMS, *vm.key, patch)

    async def _update_vmi(self, vm: VM, document: Json) -> None:
        vmi = await find(self._api, VMIS, *vm.key)
        view = read_vmi(vmi) if vmi is not None else None
        if vmi is None or view is None or not live_updates.needs_update(vm, view, live=True):
            return
        if changes := live_updates.plan_vmi(document["spec"]["template"]["spec"], vmi["spec"], vm, view):
            log.info("%s/%s: changing the running VMI", *vm.key)
            await self._api.patch(VMIS, *vm.key, {"metadata": _version(vmi), "spec": changes})

    async def _delete_vmi(self, vm: VM, uid: str) -> None:
        self._expectations.expect(vm.key, deletes=[uid], now=asyncio.get_running_loop().time())
        try:
            await self._api.delete(VMIS, *vm.key, uid=uid)
        except ApiError as error:
            self._expectations.deletion_observed(vm.key, uid)
            # NotFound: the VMI is deleted. Conflict: another VMI has its name.
            if not isinstance(error, NotFound | Conflict):
                raise

    async def _has_disk(self, vm: VM, name: str) -> bool:
        """Whether the VM can use a PVC without its DataVolume. The informer of PVCs may be later than that of
        DataVolumes, which no longer has the DataVolume."""
        if self._informers.pvcs.store.get((vm.namespace, name)) is None:
            return False
        claim = await find(self._api, PVCS, vm.namespace, name)
        return claim is not None and plan.is_complete(read_pvc(claim), vm)

    async def _create_data_volume(self, document: Json, name: str) -> None:
        body = new_data_volume(document, name)
        if body is None:
            return
        if reference := body["spec"].pop("sourceRef", None):
            body["spec"]["source"] = await self._resolve(reference, body["metadata"]["namespace"])
        # The VM uses an existing disk of an earlier VM with the same name.
        await create_absent(self._api, DATA_VOLUMES, body)

    async def _resolve(self, reference: Json, namespace: str) -> Json:
        """Returns what a DataSource points at, as the source of a DataVolume. Like virt-controller, raises NotFound
        without the DataSource."""
        namespace = reference.get("namespace") or namespace
        found = await self._api.get(DATA_SOURCES, namespace, reference["name"])
        source: Json = (found.get("status") or {}).get("source") or found["spec"]["source"]
        return {kind: {"namespace": namespace, **target} for kind, target in source.items()}

    async def _write_finalizers(self, vm: VM, finalizers: tuple[str, ...]) -> Json:
        patch = {"metadata": {"resourceVersion": vm.resource_version, "finalizers": list(finalizers)}}
        return await self._api.patch(VMS, *vm.key, patch)

    async def _write_status(self, vm: VM, wanted: plan.VMPlan) -> None:
        patch = merge_patch(vm.status, wanted.status)
        if not patch or plan.RemoveFinalizer() in wanted.actions:
            return
        # With the resource version, the patch does not overwrite start and stop requests that are newer than the plan.
        body = {"metadata": {"resourceVersion": vm.resource_version}, "status": patch}
        await patch_present(self._api, VMS, vm.key, body, "status")


def _version(document: Json) -> Json:
    return {"resourceVersion": document["metadata"]["resourceVersion"]}
