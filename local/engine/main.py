"""The engine as a process."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from local.engine.disks import Disks
from local.engine.filler import NoFiles
from local.engine.fleet import Equipment, Fleet
from local.engine.hypervisor import Simulated
from local.engine.instances import Instances
from local.engine.machines import Machines
from local.engine.plan import Pace
from local.engine.world import World
from runtime import logs
from runtime.api import Api
from runtime.events import Events
from runtime.metrics import Metrics
from runtime.stop import run

log = logging.getLogger(__name__)

NODE_NAMES = ("node-1", "node-2")


@dataclass(frozen=True)
class Settings:
    engine: str
    """qemu or simulated"""
    dir: Path
    runtime: Path
    disks: Path
    listen: tuple[str, int] | None
    tls: Path | None
    worker_uid: int | None
    defaults_seconds: float

    @classmethod
    def read(cls, env: Mapping[str, str]) -> Settings:
        directory = Path(env.get("POOLHOUSE_DIR", ".poolhouse")).resolve()
        host, _, port = env.get("POOLHOUSE_LISTEN", "").rpartition(":")
        uid = env.get("POOLHOUSE_WORKER_UID")
        return cls(
            engine=env.get("POOLHOUSE_ENGINE", "qemu"),
            dir=directory,
            runtime=Path(env.get("POOLHOUSE_RUNTIME_DIR", directory / "run")),
            disks=Path(env.get("POOLHOUSE_DISKS_DIR", directory / "disks")),
            listen=(host or "127.0.0.1", int(port)) if port else None,
            tls=Path(env["POOLHOUSE_TLS_DIR"]) if env.get("POOLHOUSE_TLS_DIR") else None,
            worker_uid=int(uid) if uid else None,
            defaults_seconds=float(env.get("POOLHOUSE_WAIT_FOR_DEFAULTS_SECONDS", "30")),
        )


async def simulated(settings: Settings) -> None:
    registry = CollectorRegistry()
    async with await Api.connect(user_agent="poolhouse-engine", metrics=Metrics(registry)) as api:
        world, events = World(api), Events(api, "poolhouse.dev/engine")
        pace = Pace(settings.defaults_seconds, settle_seconds=2.0)
        hypervisor = Simulated()
        machines = Machines(api, world, pace)
        instances = Instances(api, world, hypervisor, events, pace)
        disks = Disks(api, world, NoFiles())
        fleet = Fleet(api, world, NODE_NAMES, Equipment(), health=lambda name: None)
        async with asyncio.TaskGroup() as group:
            group.create_task(events.run())
            for informer in world.all:
                group.create_task(informer.run())
            await world.synced()
            await fleet.register()
            log.info("everything is seen; working")
            for part in (machines, instances, disks, fleet):
                group.create_task(part.controller.run())
            group.create_task(disks.clear())


def main() -> int:
    logs.configure("engine")
    settings = Settings.read(os.environ)
    return run(lambda: simulated(settings))


if __name__ == "__main__":
    raise SystemExit(main())
