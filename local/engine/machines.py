"""VirtualMachines: reads what is there, asks `plan`, and does what it says."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from local.engine import reading
from local.engine.documents import difference, disk_of, instance_of
from local.engine.plan import (
    Action,
    AddFinalizer,
    CreateDisk,
    DropFinalizer,
    Pace,
    Plan,
    RunAlways,
    Start,
    Stop,
    plan,
)
from local.engine.resources import DATA_VOLUMES, INSTANCES, MACHINE_FINALIZER, MACHINES
from local.engine.views import Disk, Instance, Machine
from local.engine.world import World, now
from runtime.api import AlreadyExists, Api, ApiError, Conflict, Forbidden, Invalid, Key, NotFound
from runtime.controller import Controller
from runtime.expectations import Expectations

log = logging.getLogger(__name__)

Json = dict[str, Any]


class Machines:
    def __init__(self, api: Api, world: World, pace: Pace, *, workers: int = 16) -> None:
        self._api = api
        self._world = world
        self._pace = pace
        self._expected: Expectations[Key] = Expectations(timeout_seconds=30)
        self._failures: dict[Key, tuple[str, str]] = {}
        self.controller: Controller[Key] = Controller("machines", self.reconcile, workers=workers, metrics=api.metrics)
        world.machines.subscribe(self._changed)
        world.instances.subscribe(self._instance_changed)
        world.disks.subscribe(self._disk_changed)

    def _changed(self, old: Machine | None, new: Machine | None) -> None:
        machine = new or old
        assert machine is not None
        if new is None:
            self._failures.pop(machine.key, None)
        else:
            self.controller.enqueue(machine.key)

    def _instance_changed(self, old: Instance | None, new: Instance | None) -> None:
        instance = new or old
        assert instance is not None
        self._expected.saw_create(instance.key, instance.uid)
        if new is None or new.deleted is not None:
            self._expected.saw_delete(instance.key, instance.uid)
        self.controller.enqueue(instance.key)

    def _disk_changed(self, old: Disk | None, new: Disk | None) -> None:
        disk = new or old
        assert disk is not None
        for machine in self._world.machines.store.by("claim", disk.key):
            self.controller.enqueue(machine.key)

    async def reconcile(self, key: Key) -> float | None:
        machine = self._world.machines.store.get(key)
        if machine is None:
            return None
        if not self._expected.satisfied(key, asyncio.get_running_loop().time()):
            return 1.0
        document: Json | None = None
        planned = self._plan(machine)
        if AddFinalizer() in planned.actions:
            document = await self._finalizers(machine, (*machine.finalizers, MACHINE_FINALIZER))
            machine = reading.machine(document)
            planned = self._plan(machine)
        if planned.actions:
            try:
                for action in planned.actions:
                    await self._apply(action, machine, document)
            except (Invalid, Forbidden, AlreadyExists) as error:
                # It is told in the VM's status, and tried again after a pause that grows.
                self._failures[key] = "FailedCreate", str(error)
                await self._write(machine, self._plan(machine))
                raise
            self._failures.pop(key, None)
        await self._write(machine, planned)
        return planned.again_seconds

    def _plan(self, machine: Machine) -> Plan:
        instance = self._world.instances.store.get(machine.key)
        names = {*machine.disks, *(volume.claim for volume in machine.volumes)}
        found = {name: self._world.disks.store.get((machine.namespace, name)) for name in names}
        faults, _ = self._world.faults(machine.faults)
        return plan(
            machine,
            instance if instance is not None and instance.owner == machine.uid else None,
            {name: disk for name, disk in found.items() if disk is not None},
            now(),
            pace=self._pace,
            retry_seconds=faults.retry_seconds,
            failure=self._failures.get(machine.key),
        )

    async def _apply(self, action: Action, machine: Machine, document: Json | None) -> None:
        match action:
            case DropFinalizer():
                await self._finalizers(machine, tuple(f for f in machine.finalizers if f != MACHINE_FINALIZER))
            case CreateDisk(name):
                await self._create_disk(document or await self._fresh(machine), name)
            case Start(reason):
                log.info("%s/%s: starting, because %s", *machine.key, reason)
                await self._start(machine, document or await self._fresh(machine))
            case Stop(uid, reason):
                log.info("%s/%s: stopping, because %s", *machine.key, reason)
                await self._stop(machine, uid)
            case RunAlways():
                await self._run_always(await self._fresh(machine))

    async def _fresh(self, machine: Machine) -> Json:
        """The document as it is now. What it says may have changed since the plan was made: then the plan is void."""
        document = await self._api.get(MACHINES, *machine.key)
        if reading.machine(document) != machine:
            raise Conflict(f"{machine.name} has changed meanwhile", status=409)
        return document

    async def _start(self, machine: Machine, document: Json) -> None:
        paused = any((each.get("data") or {}).get("paused") == "true" for each in _requests(machine)[:1])
        made = await self._api.create(INSTANCES, instance_of(document, paused=paused))
        uid = made["metadata"]["uid"]
        if next(iter(self._world.instances.store.by("uid", uid)), None) is None:
            self._expected.expect(machine.key, creates=[uid], now=asyncio.get_running_loop().time())

    async def _stop(self, machine: Machine, uid: str) -> None:
        self._expected.expect(machine.key, deletes=[uid], now=asyncio.get_running_loop().time())
        try:
            await self._api.delete(INSTANCES, *machine.key, uid=uid)
        except (NotFound, Conflict):
            # Gone, or another one already: what was wanted.
            self._expected.saw_delete(machine.key, uid)
        except ApiError:
            self._expected.saw_delete(machine.key, uid)
            raise

    async def _create_disk(self, document: Json, name: str) -> None:
        body = disk_of(document, name)
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
        await self._api.patch(MACHINES, metadata["namespace"], metadata["name"], patch)

    async def _finalizers(self, machine: Machine, finalizers: tuple[str, ...]) -> Json:
        patch = {"metadata": {"resourceVersion": machine.resource_version, "finalizers": list(finalizers)}}
        return await self._api.patch(MACHINES, *machine.key, patch)

    async def _write(self, machine: Machine, planned: Plan) -> None:
        patch = difference(machine.status, planned.status)
        if not patch or DropFinalizer() in planned.actions:
            return
        # With the version: a request to start or stop that came meanwhile must not be overwritten.
        body = {"metadata": {"resourceVersion": machine.resource_version}, "status": patch}
        try:
            await self._api.patch(MACHINES, *machine.key, body, subresource="status")
        except NotFound:
            log.debug("%s is gone", machine.name)


def _requests(machine: Machine) -> list[Json]:
    return list(machine.status.get("stateChangeRequests") or ())
