"""VirtualMachineInstances: reads what is there, asks `phases`, and does what it says."""

from __future__ import annotations

import logging
from typing import Any

from local.engine.documents import difference
from local.engine.domain import Domain
from local.engine.faults import Faults
from local.engine.hypervisor import Hypervisor, Refused
from local.engine.phases import Action, Destroy, Launch, PressPower, Seen, Step, finalizers, launch_refused, step
from local.engine.place import place, unplaceable
from local.engine.plan import Pace
from local.engine.resources import INSTANCES, NODE_LABEL
from local.engine.room import Room
from local.engine.views import Claim, Disk, Instance, Machine, Node, Pairs
from local.engine.world import World, now
from runtime.api import Api, Key, NotFound
from runtime.controller import Controller
from runtime.events import Events

log = logging.getLogger(__name__)

Json = dict[str, Any]


class Instances:
    def __init__(
        self,
        api: Api,
        world: World,
        hypervisor: Hypervisor,
        events: Events,
        pace: Pace,
        room: Room,
        *,
        workers: int = 16,
    ) -> None:
        self._api = api
        self._world = world
        self._hypervisor = hypervisor
        self._events = events
        self._pace = pace
        self._room = room
        # VMIs by VM and VMs by name, as they came: for faults that end after so many tries, and for a seed to repeat.
        self._tries: dict[str, dict[str, None]] = {}
        self._lives: dict[Key, dict[str, None]] = {}
        self.controller: Controller[Key] = Controller("instances", self.reconcile, workers=workers, metrics=api.metrics)
        self.orphans: Controller[str] = Controller("orphans", self.end_orphan, workers=2, metrics=api.metrics)
        world.instances.subscribe(self._changed)
        world.nodes.subscribe(self._node_changed)
        world.claims.subscribe(self._volume_changed)
        world.disks.subscribe(self._volume_changed)
        world.machines.subscribe(self._machine_changed)
        world.settings.subscribe(self._settings_changed)
        hypervisor.subscribe(self._domain_changed)
        room.subscribe(self._room_again)

    def _changed(self, old: Instance | None, new: Instance | None) -> None:
        if new is not None:
            if new.node:
                self._room.release(new.uid, seen_on=new.node)
            self.controller.enqueue(new.key)
        elif old is not None:
            self._room.release(old.uid)
        if old is not None and not old.final and (new is None or new.final or (old.node and new.node != old.node)):
            self._room_again()

    def _room_again(self) -> None:
        """There may be a place now for those that found none."""
        for waiting in self._world.instances.store.by("node", ""):
            self.controller.enqueue(waiting.key)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        node = new or old
        assert node is not None
        for instance in self._world.instances.store.all():
            if instance.node in ("", node.name) and not instance.final:
                self.controller.enqueue(instance.key)

    def _volume_changed(self, old: Claim | Disk | None, new: Claim | Disk | None) -> None:
        volume = new or old
        assert volume is not None
        for instance in self._world.instances.store.by("claim", volume.key):
            self.controller.enqueue(instance.key)

    def _machine_changed(self, old: Machine | None, new: Machine | None) -> None:
        if new is None and old is not None:
            self._tries.pop(old.uid, None)

    def _settings_changed(self, old: Pairs | None, new: Pairs | None) -> None:
        for instance in self._world.instances.store.all():
            if instance.phase != "Running":
                self.controller.enqueue(instance.key)

    def _domain_changed(self, uid: str) -> None:
        found = self._world.instances.store.by("uid", uid)
        for instance in found:
            self.controller.enqueue(instance.key)
        if not found and self._world.instances.is_synced:
            self.orphans.enqueue(uid)

    async def end_orphan(self, uid: str) -> None:
        """Ends a domain whose VMI is no more: it was on a node that was away when the VMI went."""
        if not self._world.instances.store.by("uid", uid):
            await self._hypervisor.clear(uid)

    async def reconcile(self, key: Key) -> float | None:
        instance = self._world.instances.store.get(key)
        if instance is None:
            return None
        faults = self._faults(instance)
        seen = self._observe(instance, faults)
        wanted = step(seen, now(), settle_seconds=self._pace.settle_seconds, lost_seconds=faults.node_lost_seconds)
        if not instance.node and (node := wanted.status.get("nodeName")):
            self._room.keep(instance.uid, node, instance.size)
        await self._write(instance, wanted)
        for action in wanted.actions:
            await self._apply(action, instance, seen)
        return wanted.again_seconds

    def _observe(self, instance: Instance, faults: Faults) -> Seen:
        nodes = self._world.nodes.store.all()
        here = next((node for node in nodes if node.name == instance.node), None)
        seen = Seen(instance, self._domain(instance, faults), here)
        if instance.node or instance.final or instance.deleted is not None:
            return seen
        used = self._room.used(nodes)
        target = self._room.kept(instance.uid) or place(instance.selector, instance.size, nodes, used)
        why = "" if target else unplaceable(instance.selector, instance.size, nodes, used)
        return Seen(instance, seen.domain, here, target, why, self._missing(instance))

    def _domain(self, instance: Instance, faults: Faults) -> Domain:
        machine = self._world.machine_of(instance.owner)
        failures, identity = 0, instance.uid
        if machine is not None:
            lives = self._lives.setdefault(machine.key, {})
            lives.setdefault(machine.uid)
            if faults.seed:
                identity = f"{machine.namespace}/{machine.name}/{list(lives).index(machine.uid)}"
            tries = self._tries.setdefault(machine.uid, {})
            tries.setdefault(instance.uid)
            counted = int((machine.status.get("startFailure") or {}).get("consecutiveFailCount") or 0)
            failures = max(list(tries).index(instance.uid), counted)
        return self._hypervisor.domain(instance, faults, identity, failures, now())

    def _faults(self, instance: Instance) -> Faults:
        faults, problems = self._world.faults_of(instance)
        if problems and not instance.phase:
            self._events.emit(
                instance.reference(INSTANCES), "Warning", "BadSimulation", "; ".join(problems), action="Simulate"
            )
        return faults

    def _missing(self, instance: Instance) -> str | None:
        for volume in instance.volumes:
            key = instance.namespace, volume.claim
            disk, claim = self._world.disks.store.get(key), self._world.claims.store.get(key)
            if claim is None:
                return f"PVC {instance.namespace}/{volume.claim} does not exist, waiting for it to appear"
            if disk is not None and not disk.ready:
                return f"DataVolume {instance.namespace}/{volume.claim} is not ready: {disk.phase or 'Pending'}"
            if claim.phase != "Bound":
                return f"PVC {instance.namespace}/{volume.claim} is not bound"
        return None

    async def _apply(self, action: Action, instance: Instance, seen: Seen) -> None:
        match action:
            case Launch(node):
                await self._launch(instance, node, seen, self._faults(instance))
            case PressPower():
                await self._hypervisor.press_power(instance)
            case Destroy():
                await self._hypervisor.destroy(instance)

    async def _launch(self, instance: Instance, node: str, seen: Seen, faults: Faults) -> None:
        document = await self._api.get(INSTANCES, *instance.key)
        if document["metadata"]["uid"] != instance.uid or document["metadata"].get("deletionTimestamp"):
            return
        try:
            await self._hypervisor.launch(document, node, faults)
        except Refused as refused:
            log.warning("%s/%s: cannot be started: %s", *instance.key, refused)
            self._events.emit(instance.reference(INSTANCES), "Warning", "SyncFailed", str(refused), action="Start")
            await self._write(instance, launch_refused(seen, now(), str(refused)))

    async def _write(self, instance: Instance, wanted: Step) -> None:
        metadata: Json = {}
        keep = finalizers(instance, wanted.finalizer)
        if keep != instance.finalizers:
            metadata["finalizers"] = list(keep)
        node = str(wanted.status.get("nodeName") or "")
        if node and node != instance.node_label:
            metadata["labels"] = {NODE_LABEL: node}
        status = difference(instance.status, wanted.status)
        if not metadata and not status:
            return
        # One write for all of it: as in KubeVirt, a VMI has no status subresource.
        body: Json = {"metadata": {**metadata, "resourceVersion": instance.resource_version}}
        if status:
            body["status"] = status
        try:
            await self._api.patch(INSTANCES, *instance.key, body)
        except NotFound:
            log.debug("%s is gone", instance.name)
