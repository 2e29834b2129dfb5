"""Reconciles VMIs: observes a VMI and its domain, asks `phases` for a plan, and applies it."""

import logging

from poolhouse.api.apimachinery.merge_patch import merge_patch
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.events import EventRecorder
from poolhouse.runtime.resource import VMIS, Key
from poolhouse.stack.engine.api_object import Pairs
from poolhouse.stack.engine.disk_objects import PVC, DataVolume
from poolhouse.stack.engine.fault_injection import Faults
from poolhouse.stack.engine.hypervisor import Domain, Hypervisor, HypervisorRefused, NotStartable
from poolhouse.stack.engine.informers import Informers
from poolhouse.stack.engine.launcher.pods import shut_down_at
from poolhouse.stack.engine.node.scheduler import NodeCapacity, schedule, unschedulable_message
from poolhouse.stack.engine.objects import VM, VMI, Launcher, Node, Volume, either, read_vmi
from poolhouse.stack.engine.reasons import EngineReason
from poolhouse.stack.engine.resources import NODE_LABEL
from poolhouse.stack.engine.vm.plan import Delays
from poolhouse.stack.engine.vmi import phases
from poolhouse.stack.engine.vmi.devices import is_done
from poolhouse.stack.engine.vmi.prober import Prober
from poolhouse.stack.engine.writes import patch_present

log = logging.getLogger(__name__)

RETRY_SECONDS = 2.0
"""pause between two tries of a hotplug, and until the guest has released a device"""


class VMIController:
    def __init__(
        self,
        api: Api,
        informers: Informers,
        hypervisor: Hypervisor,
        events: EventRecorder,
        delays: Delays,
        capacity: NodeCapacity,
    ) -> None:
        self._api, self._informers, self._hypervisor = api, informers, hypervisor
        self._events, self._delays, self._capacity = events, delays, capacity
        # `_tries`: UIDs of VMIs by VM, for faults with a number of tries. `_namesakes`: UIDs of VMs by name, for seeds.
        self._tries: dict[str, dict[str, None]] = {}
        self._namesakes: dict[Key, dict[str, None]] = {}
        self.controller: Controller[Key] = Controller("vmis", self.reconcile, workers=16, metrics=api.metrics)
        self.orphans: Controller[str] = Controller("orphans", self.clear_orphan, workers=2, metrics=api.metrics)
        self.prober = Prober(informers, hypervisor, events, self._domain_changed)
        informers.vmis.subscribe(self._changed)
        informers.nodes.subscribe(self._node_changed)
        informers.pvcs.subscribe(self._volume_changed)
        informers.data_volumes.subscribe(self._volume_changed)
        informers.vms.subscribe(self._vm_changed)
        informers.launchers.subscribe(self._launcher_changed)
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
        for unscheduled in self._informers.vmis.store.by("node", ""):
            self.controller.enqueue(unscheduled.key)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        node = either(old, new)
        for vmi in self._informers.vmis.store.all():
            if vmi.node in ("", node.name) and not vmi.final:
                self.controller.enqueue(vmi.key)

    def _volume_changed(self, old: PVC | DataVolume | None, new: PVC | DataVolume | None) -> None:
        volume = either(old, new)
        for vmi in self._informers.vmis.store.by("pvc", volume.key):
            self.controller.enqueue(vmi.key)

    def _vm_changed(self, old: VM | None, new: VM | None) -> None:
        if new is None and old is not None:
            self._tries.pop(old.uid, None)
        if old is not None and new is not None and new.faults != old.faults:
            self.controller.enqueue(new.key)  # the VMI has the name of its VM

    def _launcher_changed(self, old: Launcher | None, new: Launcher | None) -> None:
        if new is not None and new.deleted is not None:
            self.controller.enqueue(new.vmi)

    def _settings_changed(self, old: Pairs | None, new: Pairs | None) -> None:
        for vmi in self._informers.vmis.store.all():
            if not vmi.final:
                self.controller.enqueue(vmi.key)

    def _domain_changed(self, uid: str) -> None:
        found = self._informers.vmis.store.by("uid", uid)
        for vmi in found:
            self.controller.enqueue(vmi.key)
        if not found and self._informers.vmis.is_synced:
            self.orphans.enqueue(uid)

    async def clear_orphan(self, uid: str) -> None:
        """Clears a domain without a VMI, whose node was unavailable when the VMI was deleted."""
        if not self._informers.vmis.store.by("uid", uid):
            await self._hypervisor.clear(uid)

    async def reconcile(self, key: Key) -> float | None:
        vmi = self._informers.vmis.store.get(key)
        if vmi is None:
            return None
        faults = self._faults(vmi)
        snapshot = self._observe(vmi, faults)
        wanted = phases.plan_vmi(
            snapshot,
            self._informers.now(),
            settle_seconds=self._delays.settle_seconds,
            lost_seconds=faults.node_lost_seconds,
        )
        if not vmi.node and (node := wanted.status.get("nodeName")):
            self._capacity.reserve(vmi.uid, node, vmi.memory_with_overhead)
        await self._write(vmi, wanted)
        for action in wanted.actions:
            await self._apply(action, vmi, snapshot)
        return wanted.requeue_seconds

    def _observe(self, vmi: VMI, faults: Faults) -> phases.VMISnapshot:
        nodes = self._informers.nodes.store.all()
        by_name = {node.name: node for node in nodes}
        domain = self._domain(vmi, faults)
        if vmi.node or vmi.final or vmi.deleted is not None:
            end = shut_down_at(vmi, self._informers.launchers.store.by("vmi", vmi.key))
            probes = self.prober.results(vmi)
            return phases.VMISnapshot(vmi, domain, by_name.get(vmi.node), probes=probes, shut_down_at=end)
        used, memory = self._capacity.used(nodes), vmi.memory_with_overhead
        target = self._capacity.reserved_node(vmi.uid) or schedule(vmi.node_selector, memory, nodes, used)
        why_not = "" if target else unschedulable_message(vmi.node_selector, memory, nodes, used)
        node = by_name.get(target) if target else None
        return phases.VMISnapshot(
            vmi, domain, node, target, why_not, self._missing_volume(vmi), self.prober.results(vmi)
        )

    def _domain(self, vmi: VMI, faults: Faults) -> Domain:
        vm = self._informers.vm_of(vmi.controller_uid)
        failures, identity = 0, vmi.uid
        if vm is not None:
            namesakes = self._namesakes.setdefault(vm.key, {})
            namesakes.setdefault(vm.uid)
            if faults.seed:
                identity = f"{vm.namespace}/{vm.name}/{list(namesakes).index(vm.uid)}"
            tries = self._tries.setdefault(vm.uid, {})
            tries.setdefault(vmi.uid)
            counted = int((vm.status.get("startFailure") or {}).get("consecutiveFailCount") or 0)
            failures = max(list(tries).index(vmi.uid), counted)
        return self._hypervisor.domain(vmi, faults, identity, failures, self._informers.now())

    def _faults(self, vmi: VMI) -> Faults:
        faults, problems = self._informers.faults_of(vmi)
        if problems and not vmi.phase:
            note = "; ".join(problems)
            self._events.emit(vmi.reference(VMIS), "Warning", EngineReason.INVALID_SIMULATION, note, action="Simulate")
        return faults

    def _missing_volume(self, vmi: VMI) -> str | None:
        """Returns virt-controller's message for the first volume that is not ready; None if all volumes are ready."""
        return next(filter(None, (self._why_not_ready(vmi.namespace, volume) for volume in vmi.volumes)), None)

    def _why_not_ready(self, namespace: str, volume: Volume) -> str | None:
        key = namespace, volume.pvc
        data_volume, pvc = self._informers.data_volumes.store.get(key), self._informers.pvcs.store.get(key)
        if pvc is None:
            return f"PVC {namespace}/{volume.pvc} does not exist, waiting for it to appear"
        if data_volume is not None and not data_volume.ready:
            return f"DataVolume {namespace}/{volume.pvc} is not ready: {data_volume.phase or 'Pending'}"
        return None if pvc.phase == "Bound" else f"PVC {namespace}/{volume.pvc} is not bound"

    async def _apply(self, action: phases.Action, vmi: VMI, snapshot: phases.VMISnapshot) -> None:
        match action:
            case phases.Launch(node):
                await self._launch(vmi, node, snapshot, self._faults(vmi))
            case phases.PressPower():
                await self._hypervisor.press_power(vmi)
            case phases.Destroy():
                await self._hypervisor.clear(vmi.uid)
            case phases.SyncDevices():
                await self._sync_devices(vmi)

    async def _launch(self, vmi: VMI, node: str, snapshot: phases.VMISnapshot, faults: Faults) -> None:
        document = await self._api.get(VMIS, *vmi.key)
        if document["metadata"]["uid"] != vmi.uid or document["metadata"].get("deletionTimestamp"):
            return
        try:
            await self._hypervisor.launch(document, node, faults)
        except NotStartable as why:
            log.info("%s/%s: the VMI is not started yet: %s", *vmi.key, why)
            self._retry(vmi)
        except HypervisorRefused as refused:
            log.warning("%s/%s: the VMI cannot be started: %s", *vmi.key, refused)
            self._events.emit(vmi.reference(VMIS), "Warning", EngineReason.SYNC_FAILED, str(refused), action="Start")
            await self._write(vmi, phases.failed_launch(snapshot, self._informers.now(), str(refused)))

    async def _sync_devices(self, vmi: VMI) -> None:
        document = await self._api.get(VMIS, *vmi.key)
        current = read_vmi(document)
        if current.uid != vmi.uid or current.deleted is not None:
            return
        volumes = [volume for volume in current.volumes if volume.hotpluggable]
        pending = {volume.name: why for volume in volumes if (why := self._why_not_ready(current.namespace, volume))}
        try:
            report = await self._hypervisor.sync_devices(current, document, pending)
        except HypervisorRefused as refused:
            log.warning("%s/%s: the devices of the VMI are unknown: %s", *vmi.key, refused)
            self._retry(vmi)
            return
        if report.problem:
            log.warning("%s/%s: a hotplug failed: %s", *vmi.key, report.problem)
            problem = f"server error. command SyncVMI failed: {report.problem}"
            self._events.emit(vmi.reference(VMIS), "Warning", EngineReason.SYNC_FAILED, problem, action="Hotplug")
        if not is_done(current, report, pending):
            self._retry(vmi)
        await self._write(
            current, phases.VMIPlan(phases.synced_devices(current, self._informers.now(), report, pending))
        )

    def _retry(self, vmi: VMI) -> None:
        self.controller.enqueue(vmi.key, RETRY_SECONDS)

    async def _write(self, vmi: VMI, wanted: phases.VMIPlan) -> None:
        metadata: Json = {}
        finalizers = phases.wanted_finalizers(vmi, wanted.finalizer)
        if finalizers != vmi.finalizers:
            metadata["finalizers"] = list(finalizers)
        node = str(wanted.status.get("nodeName") or "")
        if node and node != vmi.node_label:
            metadata["labels"] = {NODE_LABEL: node}
        status = merge_patch(vmi.status, wanted.status)
        if not metadata and not status:
            return
        # As in KubeVirt, a VMI has no status subresource, so a single patch writes metadata and status.
        body: Json = {"metadata": {**metadata, "resourceVersion": vmi.resource_version}}
        if status:
            body["status"] = status
        await patch_present(self._api, VMIS, vmi.key, body)
