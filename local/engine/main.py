"""The engine as a process."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from local.engine.datavolume.controller import DataVolumeController
from local.engine.datavolume.importer import Importer
from local.engine.hypervisor import Hypervisor
from local.engine.informers import Informers
from local.engine.migration.controller import MigrationController
from local.engine.migration.evacuation import EvacuationController
from local.engine.node.controller import NodeController, NodeHardware
from local.engine.node.scheduler import NodeCapacity
from local.engine.peer import Peer
from local.engine.qemu.libvirtd import NODE_NAMES
from local.engine.simulated import SimulatedHypervisor, SimulatedImporter
from local.engine.virt_api import VirtApi
from local.engine.vm.controller import VMController
from local.engine.vm.plan import Delays
from local.engine.vmi.controller import VMIController
from runtime.api import Api
from runtime.events import EventRecorder
from runtime.metrics import Metrics
from service import logs, settings
from service import server as http
from service.lifecycle import run

log = logging.getLogger(__name__)


MEMORY_SHARE = 0.5
"""how much of this machine's memory its guests may take, all nodes together"""


@dataclass(frozen=True)
class Settings:
    engine: str
    """qemu or simulated"""
    dir: str
    """the stack's directory, by which its guests are known"""
    runtime: Path
    """below it are the nodes' sockets"""
    disks: Path
    listen: tuple[str, int] | None
    """where subresources are served"""
    tls: Path | None
    worker_uid: int | None
    """whose the guests are, when that is not our own uid"""
    defaults_seconds: float
    log_format: logs.Format
    log_level: str

    @classmethod
    def read(cls, env: Mapping[str, str]) -> Settings:
        directory = Path(env.get("POOLHOUSE_DIR", ".poolhouse")).resolve()
        uid = env.get("POOLHOUSE_WORKER_UID")
        return cls(
            engine=env.get("POOLHOUSE_ENGINE", "qemu"),
            dir=str(directory),
            runtime=Path(env.get("POOLHOUSE_RUNTIME_DIR", directory / "run")),
            disks=Path(env.get("POOLHOUSE_DISKS_DIR", directory / "disks")),
            listen=settings.address(env, "127.0.0.1:0") if env.get(settings.LISTEN) else None,
            tls=settings.tls(env),
            worker_uid=int(uid) if uid else None,
            defaults_seconds=float(env.get("POOLHOUSE_WAIT_FOR_DEFAULTS_SECONDS", "30")),
            log_format=settings.log_format(env),
            log_level=settings.log_level(env),
        )


@dataclass(frozen=True)
class Backing:
    """What is behind the guests and their disks."""

    hypervisor: Hypervisor
    importer: Importer
    equipment: NodeHardware
    health: Callable[[str], str | None]
    settle_seconds: float = 0.0
    vm_settle_seconds: float = 0.0


async def serve(settings: Settings) -> None:
    registry = CollectorRegistry()
    async with await Api.connect(user_agent="poolhouse-engine", metrics=Metrics(registry)) as api:
        informers, events = Informers(api), EventRecorder(api, "poolhouse.dev/engine")
        async with asyncio.TaskGroup() as group:
            group.create_task(events.run(), name="events")
            for informer in informers.all:
                group.create_task(informer.run(), name=informer.resource.plural)
            if settings.engine == "simulated":
                backing, fleet = simulated(api, informers)
            else:
                backing, fleet = await real(settings, api, informers, events, group)
            pace = Delays(settings.defaults_seconds, backing.settle_seconds, backing.vm_settle_seconds)
            await informers.synced()
            vms = VMController(api, informers, pace)
            room = NodeCapacity(informers.vmis.store)
            vmis = VMIController(api, informers, backing.hypervisor, events, pace, room)
            disks = DataVolumeController(api, informers, backing.importer)
            migrations = MigrationController(api, informers, backing.hypervisor, events, room)
            evacuations = EvacuationController(api, informers)
            await fleet.register()
            log.info("everything is seen; working with %s guests", settings.engine)
            controllers = (vms.controller, vmis.controller, vmis.orphans, disks.controller)
            moving = (migrations.controller, migrations.unfinished.controller, evacuations.controller)
            for controller in (*controllers, *moving, fleet.controller):
                group.create_task(controller.run(), name=controller.name)
            group.create_task(disks.delete_files(), name="delete-files")
            if settings.listen is not None:
                app = VirtApi(api, backing.hypervisor, informers.not_synced, registry)
                clients = settings.tls / "ca.crt" if settings.tls is not None else None
                serving = http.serve(app, *settings.listen, settings.tls, clients=clients, http=Peer)
                group.create_task(serving, name="subresources")


def simulated(api: Api, informers: Informers) -> tuple[Backing, NodeController]:
    backing = Backing(SimulatedHypervisor(), SimulatedImporter(), NodeHardware(), lambda name: None, 2.0, 5.0)
    return backing, NodeController(api, informers, NODE_NAMES, backing.equipment, backing.health)


async def real(
    settings: Settings, api: Api, informers: Informers, events: EventRecorder, group: asyncio.TaskGroup
) -> tuple[Backing, NodeController]:
    # Imported here: simulated guests need neither libvirt nor lxml.
    from local.engine.datavolume.importer import QemuImgImporter
    from local.engine.qemu import guest_packages, kvm
    from local.engine.qemu.hypervisor import QemuHypervisor, QemuSettings
    from local.engine.qemu.libvirtd import find_socket

    uid, cache = settings.worker_uid, guest_packages.cache_dir()
    guest = await asyncio.to_thread(guest_packages.provide_guest_image, settings.disks / "boot", cache)
    accelerated = await asyncio.to_thread(kvm.kvm_works, guest, cache, uid)
    log.info("guests run %s", "with KVM" if accelerated else "emulated: KVM is not here or does not work")
    images = QemuImgImporter(settings.disks, events, informers.pvcs.store.get, uid)
    places = settings.runtime, settings.disks / "consoles", settings.disks / "scratch"
    setting = QemuSettings(settings.dir, *places, guest, accelerated, uid)
    sockets = {name: find_socket(settings.runtime / name) for name in NODE_NAMES}
    qemu = QemuHypervisor(setting, images, informers.pvcs.store.get, sockets)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    equipment = NodeHardware(
        cpus=os.cpu_count() or 1, memory=int(machine * MEMORY_SHARE) // len(NODE_NAMES), kvm=accelerated
    )
    fleet = NodeController(api, informers, NODE_NAMES, equipment, qemu.health)
    qemu.subscribe_health(fleet.look)
    group.create_task(qemu.daemons.run(), name="libvirt")
    return Backing(qemu, images, equipment, qemu.health), fleet


def main() -> int:
    try:
        settings = Settings.read(os.environ)
    except ValueError as error:
        print(f"poolhouse engine: {error}", file=sys.stderr)
        return 2
    logs.configure("engine", settings.log_format, settings.log_level)
    return run(lambda: serve(settings))


if __name__ == "__main__":
    raise SystemExit(main())
