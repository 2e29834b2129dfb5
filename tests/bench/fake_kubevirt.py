"""Stands in for KubeVirt with as few writes as possible, so that thousands of VMs can run in a benchmark.

Each VM that should run gets a Running VMI by one create, and a ready status by one patch. A VM in `broken` crashes
instead: its VMI is deleted, and its status has three failed starts. A VMI whose VM does not exist any more is deleted.
The engine of the embedded stack makes three times as many writes, and is measured by `tests.bench.rollout`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from controllers.main import CONNECTIONS
from poolhouse.api.apimachinery.owner_references import controller_of, controller_reference
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.vm_documents import run_strategy
from poolhouse.runtime.api import Api
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.errors import AlreadyExists, Conflict, NotFound
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.resource import VMIS, VMS, Key
from tests.bench import harness

CRASHED: Json = {
    "created": False,
    "ready": False,
    "printableStatus": "CrashLoopBackOff",
    "startFailure": {"consecutiveFailCount": 3},
}
RUNNING: Json = {"created": True, "ready": True, "printableStatus": "Running", "startFailure": None}
HALTED: Json = {"created": False, "ready": False, "printableStatus": "Stopped", "startFailure": None}


@dataclass(frozen=True, slots=True)
class StoredVM:
    key: Key
    uid: str
    runs: bool
    deleting: bool
    status: str
    """printableStatus"""


def read_vm(document: Json) -> StoredVM:
    metadata = document["metadata"]
    return StoredVM(
        (metadata["namespace"], metadata["name"]),
        metadata["uid"],
        run_strategy(document["spec"]) == "Always",
        "deletionTimestamp" in metadata,
        (document.get("status") or {}).get("printableStatus", ""),
    )


@dataclass(frozen=True, slots=True)
class StoredVMI:
    key: Key
    uid: str
    owner_uid: str
    deleting: bool


def read_vmi(document: Json) -> StoredVMI:
    metadata, owner = document["metadata"], controller_of(document) or {}
    key = metadata["namespace"], metadata["name"]
    return StoredVMI(key, metadata["uid"], owner.get("uid", ""), "deletionTimestamp" in metadata)


class FakeKubeVirt:
    def __init__(self, api: Api) -> None:
        self.broken: set[str] = set()
        """UIDs of VMs that crash"""
        self.vms: Informer[StoredVM] = Informer(api, VMS, read_vm)
        self.vmis: Informer[StoredVMI] = Informer(api, VMIS, read_vmi)
        self.writes = 0
        self._api = api
        self._controller: Controller[Key] = Controller("fake-kubevirt", self._reconcile, workers=CONNECTIONS)
        self.vms.subscribe(self._changed)
        self.vmis.subscribe(self._changed)

    def crash(self, vms: list[StoredVM]) -> None:
        self.broken |= {vm.uid for vm in vms}
        for vm in vms:
            self._controller.enqueue(vm.key)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for informer in (self.vms, self.vmis):
                group.create_task(informer.run())
                await informer.synced()
            group.create_task(self._controller.run())

    def _changed(self, old: StoredVM | StoredVMI | None, new: StoredVM | StoredVMI | None) -> None:
        if (known := new or old) is not None:
            self._controller.enqueue(known.key)

    async def _reconcile(self, key: Key) -> None:
        vm, vmi = self.vms.store.get(key), self.vmis.store.get(key)
        fits = vm is not None and vm.runs and not vm.deleting and vm.uid not in self.broken
        if vmi is not None and (vm is None or vmi.owner_uid != vm.uid or not fits):
            if not vmi.deleting:
                with suppress(NotFound, Conflict):
                    await self._api.delete(VMIS, *key, uid=vmi.uid)
                    self.writes += 1
            return
        if vm is None or vm.deleting:
            return
        if fits and vmi is None:
            await self._start(key, vm)
        wanted = RUNNING if fits else CRASHED if vm.uid in self.broken else HALTED
        if vm.status != wanted["printableStatus"]:
            with suppress(NotFound, Conflict):
                conditions = [{"type": "Ready", "status": str(wanted["ready"])}]
                status = {**wanted, "conditions": conditions}
                patch = {"metadata": {"uid": vm.uid}, "status": status}
                await self._api.patch(VMS, *key, patch, subresource="status")
                self.writes += 1

    async def _start(self, key: Key, vm: StoredVM) -> None:
        with suppress(NotFound, AlreadyExists):
            document = await self._api.get(VMS, *key)
            if document["metadata"]["uid"] != vm.uid:
                return
            await self._api.create(VMIS, running_vmi(document, format_time(self._api.now())))
            self.writes += 1


def running_vmi(vm: Json, now: str) -> Json:
    """Returns the VMI of a VM after its start, with the fields of KubeVirt that the controllers read."""
    metadata, template = vm["metadata"], vm["spec"]["template"]
    owner = controller_reference(VMS.api_version, VMS.kind, metadata["name"], metadata["uid"])
    about = template.get("metadata") or {}
    conditions = [{"type": kind, "status": "True"} for kind in ("Ready", "LiveMigratable")]
    phases = [
        {"phase": phase, "phaseTransitionTimestamp": now} for phase in ("Pending", "Scheduling", "Scheduled", "Running")
    ]
    status = {
        "phase": "Running",
        "nodeName": "node-1",
        "conditions": conditions,
        "phaseTransitionTimestamps": phases,
        "interfaces": [{"name": "default", "ipAddress": "10.0.2.15"}],
    }
    of = {"labels": about.get("labels") or {}, "ownerReferences": [owner]}
    return {**harness.document(VMIS, metadata["name"], template["spec"], metadata["namespace"], **of), "status": status}


@asynccontextmanager
async def fake_kubevirt(api: Api) -> AsyncIterator[FakeKubeVirt]:
    """Runs until the block ends."""
    fake = FakeKubeVirt(api)
    task = asyncio.create_task(fake.run())
    try:
        yield fake
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
