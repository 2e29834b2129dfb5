"""VirtualMachineInstances: reads what is there, asks `phases`, and does what it says."""

from __future__ import annotations

import logging
from typing import Any

from local.engine.fault_injection import Faults
from local.engine.hypervisor import Domain, Hypervisor, HypervisorRefused
from local.engine.informers import Informers, now
from local.engine.node.scheduler import NodeCapacity, schedule, unschedulable_message
from local.engine.objects import PVC, VM, VMI, DataVolume, Node, Pairs
from local.engine.resources import NODE_LABEL, VMIS, merge_patch
from local.engine.vm.plan import Delays
from local.engine.vmi.phases import (
    Action,
    Destroy,
    Launch,
    PressPower,
    VMIPlan,
    VMISnapshot,
    failed_launch,
    plan_vmi,
    wanted_finalizers,
)
from runtime.api import Api
from runtime.controller import Controller
from runtime.errors import NotFound
from runtime.events import EventRecorder
from runtime.resource import Key

log = logging.getLogger(__name__)

Json = dict[str, Any]


class VMIController:
    def __init__(
        self,
        api: Api,
        informers: Informers,
        hypervisor: Hypervisor,
        events: EventRecorder,
        pace: Delays,
        capacity: NodeCapacity,
        *,
        workers: int = 16,
    ) -> None:
        self._api = api
        self._informers = informers
        self._hypervisor = hypervisor
        self._events = events
        self._pace = pace
        self._capacity = capacity
        # VMIs by VM and VMs by name, as they came: for faults that end after so many tries, and for a seed to repeat.
        self._tries: dict[str, dict[str, None]] = {}
        self._lives: dict[Key, dict[str, None]] = {}
        self.controller: Controller[Key] = Controller("vmis", self.reconcile, workers=workers, metrics=api.metrics)
        self.orphans: Controller[str] = Controller("orphans", self.end_orphan, workers=2, metrics=api.metrics)
        informers.vmis.subscribe(self._changed)
        informers.nodes.subscribe(self._node_changed)
        informers.pvcs.subscribe(self._volume_changed)
        informers.data_volumes.subscribe(self._volume_changed)
        informers.vms.subscribe(self._vm_changed)
        informers.settings.subscribe(self._settings_changed)
        hypervisor.subscribe(self._domain_changed)
        capacity.subscribe(self._memory_freed)

    def _changed(self, old: VMI | None, new: VMI | None) -> None:
        if new is not None:
            if new.node:
                self._capacity.release(new.uid, observed_on=new.node)
            self.controller.enqueue(new.key)
        elif old is not None:
            self._capacity.release(old.uid)
        if old is not None and not old.final and (new is None or new.final or (old.node and new.node != old.node)):
            self._memory_freed()

    def _memory_freed(self) -> None:
        """There may be a place now for those that found none."""
        for waiting in self._informers.vmis.store.by("node", ""):
            self.controller.enqueue(waiting.key)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        node = new or old
        assert node is not None
        for vmi in self._informers.vmis.store.all():
            if vmi.node in ("", node.name) and not vmi.final:
                self.controller.enqueue(vmi.key)

    def _volume_changed(self, old: PVC | DataVolume | None, new: PVC | DataVolume | None) -> None:
        volume = new or old
        assert volume is not None
        for vmi in self._informers.vmis.store.by("pvc", volume.key):
            self.controller.enqueue(vmi.key)

    def _vm_changed(self, old: VM | None, new: VM | None) -> None:
        if new is None and old is not None:
            self._tries.pop(old.uid, None)

    def _settings_changed(self, old: Pairs | None, new: Pairs | None) -> None:
        for vmi in self._informers.vmis.store.all():
            if vmi.phase != "Running":
                self.controller.enqueue(vmi.key)

    def _domain_changed(self, uid: str) -> None:
        found = self._informers.vmis.store.by("uid", uid)
        for vmi in found:
            self.controller.enqueue(vmi.key)
        if not found and self._informers.vmis.is_synced:
            self.orphans.enqueue(uid)

    async def end_orphan(self, uid: str) -> None:
        """Ends a domain whose VMI is no more: it was on a node that was away when the VMI went."""
        if not self._informers.vmis.store.by("uid", uid):
            await self._hypervisor.clear(uid)

    async def reconcile(self, key: Key) -> float | None:
        vmi = self._informers.vmis.store.get(key)
        if vmi is None:
            return None
        faults = self._faults(vmi)
        seen = self._observe(vmi, faults)
        wanted = plan_vmi(seen, now(), settle_seconds=self._pace.settle_seconds, lost_seconds=faults.node_lost_seconds)
        if not vmi.node and (node := wanted.status.get("nodeName")):
            self._capacity.reserve(vmi.uid, node, vmi.memory_with_overhead)
        await self._write(vmi, wanted)
        for action in wanted.actions:
            await self._apply(action, vmi, seen)
        return wanted.requeue_seconds

    def _observe(self, vmi: VMI, faults: Faults) -> VMISnapshot:
        nodes = self._informers.nodes.store.all()
        here = next((node for node in nodes if node.name == vmi.node), None)
        seen = VMISnapshot(vmi, self._domain(vmi, faults), here)
        if vmi.node or vmi.final or vmi.deleted is not None:
            return seen
        used = self._capacity.used(nodes)
        target = self._capacity.reserved_node(vmi.uid) or schedule(
            vmi.node_selector, vmi.memory_with_overhead, nodes, used
        )
        why = "" if target else unschedulable_message(vmi.node_selector, vmi.memory_with_overhead, nodes, used)
        return VMISnapshot(vmi, seen.domain, here, target, why, self._missing(vmi))

    def _domain(self, vmi: VMI, faults: Faults) -> Domain:
        vm = self._informers.vm_of(vmi.controller_uid)
        failures, identity = 0, vmi.uid
        if vm is not None:
            lives = self._lives.setdefault(vm.key, {})
            lives.setdefault(vm.uid)
            if faults.seed:
                identity = f"{vm.namespace}/{vm.name}/{list(lives).index(vm.uid)}"
            tries = self._tries.setdefault(vm.uid, {})
            tries.setdefault(vmi.uid)
            counted = int((vm.status.get("startFailure") or {}).get("consecutiveFailCount") or 0)
            failures = max(list(tries).index(vmi.uid), counted)
        return self._hypervisor.domain(vmi, faults, identity, failures, now())

    def _faults(self, vmi: VMI) -> Faults:
        faults, problems = self._informers.faults_of(vmi)
        if problems and not vmi.phase:
            self._events.emit(vmi.reference(VMIS), "Warning", "BadSimulation", "; ".join(problems), action="Simulate")
        return faults

    def _missing(self, vmi: VMI) -> str | None:
        for volume in vmi.volumes:
            key = vmi.namespace, volume.pvc
            disk, pvc = self._informers.data_volumes.store.get(key), self._informers.pvcs.store.get(key)
            if pvc is None:
                return f"PVC {vmi.namespace}/{volume.pvc} does not exist, waiting for it to appear"
            if disk is not None and not disk.ready:
                return f"DataVolume {vmi.namespace}/{volume.pvc} is not ready: {disk.phase or 'Pending'}"
            if pvc.phase != "Bound":
                return f"PVC {vmi.namespace}/{volume.pvc} is not bound"
        return None

    async def _apply(self, action: Action, vmi: VMI, seen: VMISnapshot) -> None:
        match action:
            case Launch(node):
                await self._launch(vmi, node, seen, self._faults(vmi))
            case PressPower():
                await self._hypervisor.press_power(vmi)
            case Destroy():
                await self._hypervisor.destroy(vmi)

    async def _launch(self, vmi: VMI, node: str, seen: VMISnapshot, faults: Faults) -> None:
        document = await self._api.get(VMIS, *vmi.key)
        if document["metadata"]["uid"] != vmi.uid or document["metadata"].get("deletionTimestamp"):
            return
        try:
            await self._hypervisor.launch(document, node, faults)
        except HypervisorRefused as refused:
            log.warning("%s/%s: cannot be started: %s", *vmi.key, refused)
            self._events.emit(vmi.reference(VMIS), "Warning", "SyncFailed", str(refused), action="Start")
            await self._write(vmi, failed_launch(seen, now(), str(refused)))

    async def _write(self, vmi: VMI, wanted: VMIPlan) -> None:
        metadata: Json = {}
        keep = wanted_finalizers(vmi, wanted.finalizer)
        if keep != vmi.finalizers:
            metadata["finalizers"] = list(keep)
        node = str(wanted.status.get("nodeName") or "")
        if node and node != vmi.node_label:
            metadata["labels"] = {NODE_LABEL: node}
        status = merge_patch(vmi.status, wanted.status)
        if not metadata and not status:
            return
        # One write for all of it: as in KubeVirt, a VMI has no status subresource.
        body: Json = {"metadata": {**metadata, "resourceVersion": vmi.resource_version}}
        if status:
            body["status"] = status
        try:
            await self._api.patch(VMIS, *vmi.key, body)
        except NotFound:
            log.debug("%s is gone", vmi.name)
