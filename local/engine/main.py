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

from local.engine.disks import Disks
from local.engine.evacuations import Evacuations
from local.engine.filler import Filler, NoFiles
from local.engine.fleet import Equipment, Fleet
from local.engine.hypervisor import Hypervisor, Simulated
from local.engine.instances import Instances
from local.engine.machines import Machines
from local.engine.migrations import Migrations
from local.engine.nodes import NAMES
from local.engine.peer import Peer
from local.engine.plan import Pace
from local.engine.room import Room
from local.engine.subresources import Subresources
from local.engine.world import World
from runtime.api import Api
from runtime.events import Events
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
    filler: Filler
    equipment: Equipment
    health: Callable[[str], str | None]
    settle_seconds: float = 0.0
    machine_settle_seconds: float = 0.0


async def serve(settings: Settings) -> None:
    registry = CollectorRegistry()
    async with await Api.connect(user_agent="poolhouse-engine", metrics=Metrics(registry)) as api:
        world, events = World(api), Events(api, "poolhouse.dev/engine")
        async with asyncio.TaskGroup() as group:
            group.create_task(events.run(), name="events")
            for informer in world.all:
                group.create_task(informer.run(), name=informer.resource.plural)
            if settings.engine == "simulated":
                backing, fleet = simulated(api, world)
            else:
                backing, fleet = await real(settings, api, world, events, group)
            pace = Pace(settings.defaults_seconds, backing.settle_seconds, backing.machine_settle_seconds)
            await world.synced()
            machines = Machines(api, world, pace)
            room = Room(world.instances.store)
            instances = Instances(api, world, backing.hypervisor, events, pace, room)
            disks = Disks(api, world, backing.filler)
            migrations = Migrations(api, world, backing.hypervisor, events, room)
            evacuations = Evacuations(api, world)
            await fleet.register()
            log.info("everything is seen; working with %s guests", settings.engine)
            controllers = (machines.controller, instances.controller, instances.orphans, disks.controller)
            moving = (migrations.controller, migrations.unfinished.controller, evacuations.controller)
            for controller in (*controllers, *moving, fleet.controller):
                group.create_task(controller.run(), name=controller.name)
            group.create_task(disks.clear(), name="clear")
            if settings.listen is not None:
                app = Subresources(api, backing.hypervisor, world.missing, registry)
                clients = settings.tls / "ca.crt" if settings.tls is not None else None
                serving = http.serve(app, *settings.listen, settings.tls, clients=clients, http=Peer)
                group.create_task(serving, name="subresources")


def simulated(api: Api, world: World) -> tuple[Backing, Fleet]:
    backing = Backing(Simulated(), NoFiles(), Equipment(), lambda name: None, 2.0, 5.0)
    return backing, Fleet(api, world, NAMES, backing.equipment, backing.health)


async def real(
    settings: Settings, api: Api, world: World, events: Events, group: asyncio.TaskGroup
) -> tuple[Backing, Fleet]:
    # Imported here: simulated guests need neither libvirt nor lxml.
    from local.engine import debian, kvm
    from local.engine.images import Images
    from local.engine.nodes import find_socket
    from local.engine.qemu import Qemu, Setting

    uid, cache = settings.worker_uid, debian.cache_dir()
    guest = await asyncio.to_thread(debian.provide, settings.disks / "boot", cache)
    accelerated = await asyncio.to_thread(kvm.works, guest, cache, uid)
    log.info("guests run %s", "with KVM" if accelerated else "emulated: KVM is not here or does not work")
    images = Images(settings.disks, events, world.claims.store.get, uid)
    places = settings.runtime, settings.disks / "consoles", settings.disks / "scratch"
    setting = Setting(settings.dir, *places, guest, accelerated, uid)
    sockets = {name: find_socket(settings.runtime / name) for name in NAMES}
    qemu = Qemu(setting, images, world.claims.store.get, sockets)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    equipment = Equipment(cpus=os.cpu_count() or 1, memory=int(machine * MEMORY_SHARE) // len(NAMES), kvm=accelerated)
    fleet = Fleet(api, world, NAMES, equipment, qemu.health)
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
