"""Runs the engine: reads settings, creates the controllers and starts their tasks."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from prometheus_client import CollectorRegistry

from poolhouse.runtime.api import Api
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.events import EventRecorder
from poolhouse.runtime.metrics import Metrics
from poolhouse.service import lifecycle
from poolhouse.service import server as http
from poolhouse.service.settings import ServerSettings, setting
from poolhouse.service.user_cache import cache_dir
from poolhouse.stack.engine import installation
from poolhouse.stack.engine.agents.addresses import GuestAddresses
from poolhouse.stack.engine.agents.proxy import Streams, serve_proxy
from poolhouse.stack.engine.datavolume.controller import DataVolumeController
from poolhouse.stack.engine.datavolume.importer import Importer
from poolhouse.stack.engine.hypervisor import Hypervisor
from poolhouse.stack.engine.informers import Informers
from poolhouse.stack.engine.launcher.controller import LauncherController
from poolhouse.stack.engine.migration.controller import MigrationController
from poolhouse.stack.engine.migration.evacuation import EvacuationController
from poolhouse.stack.engine.migration.workload_updates import WorkloadUpdateController
from poolhouse.stack.engine.node.controller import NodeController, NodeHardware
from poolhouse.stack.engine.node.scheduler import NodeCapacity
from poolhouse.stack.engine.objects import VMI
from poolhouse.stack.engine.resources import NODE_NAMES
from poolhouse.stack.engine.simulated import SimulatedHypervisor, SimulatedImporter, SimulatedSnapshots
from poolhouse.stack.engine.snapshot.controller import SnapshotController
from poolhouse.stack.engine.snapshot.restore import RestoreController
from poolhouse.stack.engine.snapshot.storage import SnapshotStorage
from poolhouse.stack.engine.streams import ClientCertificateWebsocket
from poolhouse.stack.engine.virt_api import VirtApi
from poolhouse.stack.engine.vm.controller import VMController
from poolhouse.stack.engine.vm.plan import Delays
from poolhouse.stack.engine.vmi.controller import VMIController

log = logging.getLogger(__name__)

MEMORY_SHARE = 0.5
"""share of this machine's memory that is allocatable to the VMs of all nodes together"""


class Settings(ServerSettings):
    engine: Literal["qemu", "simulated"] = setting("POOLHOUSE_ENGINE", "qemu", "What runs the VMs.")
    state_dir: Path = setting("POOLHOUSE_DIR", Path(".poolhouse"), "Directory of the stack. It marks the stack's VMs.")
    runtime_dir: Path | None = setting(
        "POOLHOUSE_RUNTIME_DIR", None, "Directory of the nodes' sockets. Empty: `run` in POOLHOUSE_DIR."
    )
    disks_dir: Path | None = setting(
        "POOLHOUSE_DISKS_DIR", None, "Directory of the VMs' disks. Empty: `disks` in POOLHOUSE_DIR."
    )
    worker_uid: int | None = setting(
        "POOLHOUSE_WORKER_UID", None, "User that runs libvirt and QEMU. Empty: the engine's own user.", ge=0
    )
    defaults_seconds: float = setting(
        "POOLHOUSE_WAIT_FOR_DEFAULTS_SECONDS",
        30.0,
        "How long a new VM waits until the defaulter has decided its hardware.",
        unit="seconds",
        ge=0,
    )

    node_leases: bool = setting(
        "POOLHOUSE_NODE_LEASES", False, "Whether the engine keeps the Leases of its nodes, as kubelets do."
    )

    agent_proxy: str = setting(
        "POOLHOUSE_AGENT_PROXY", "", "Address at which the proxy to the agents in guests listens. Empty: none."
    )

    @property
    def directory(self) -> Path:
        return self.state_dir.resolve()

    @property
    def runtime(self) -> Path:
        return self.runtime_dir or self.directory / "run"

    @property
    def disks(self) -> Path:
        return self.disks_dir or self.directory / "disks"

    @property
    def serves_subresources(self) -> bool:
        """Whether the engine serves subresources. It needs POOLHOUSE_LISTEN, because the APIService names the port."""
        return "listen" in self.model_fields_set


@dataclass(frozen=True)
class Backend:
    """The hypervisor and the importer of an engine."""

    hypervisor: Hypervisor
    importer: Importer
    snapshots: SnapshotStorage
    hardware: NodeHardware
    why_not_ready: Callable[[str], str | None]
    """returns why a node is not ready, or None"""
    delays: Delays


async def serve(settings: Settings) -> None:
    registry = CollectorRegistry()
    async with await Api.connect(user_agent="poolhouse-engine", metrics=Metrics(registry)) as api:
        informers, events = Informers(api), EventRecorder(api, "poolhouse.dev/engine")
        async with asyncio.TaskGroup() as group:
            group.create_task(events.run(), name="events")
            for informer in informers.all:
                group.create_task(informer.run(), name=informer.resource.plural)
            if settings.engine == "simulated":
                addresses = GuestAddresses()
                informers.vmis.subscribe(addresses.vmi_changed)
                if settings.agent_proxy:
                    group.create_task(simulated_agents(settings, informers, addresses), name="agents")
                backend = simulated_backend(settings, addresses)
                nodes = NodeController(api, informers, backend.hardware, backend.why_not_ready)
            else:
                backend, nodes = await qemu_backend(settings, api, informers, events, group)
            await informers.synced()
            await installation.register(api)
            await nodes.register()
            log.info("all informers are synced; the engine is %s", settings.engine)
            for name, work in background_tasks(api, informers, backend, nodes, events):
                group.create_task(work, name=name)
            for lease in nodes.leases if settings.node_leases else ():
                group.create_task(lease.run(), name="node-lease")
            if settings.serves_subresources:
                app = VirtApi(api, backend.hypervisor, informers.not_synced, registry, informers.cluster_settings)
                clients = settings.tls / "ca.crt" if settings.tls is not None else None
                serving = http.serve(
                    app, settings.host, settings.port, settings.tls, clients=clients, ws=ClientCertificateWebsocket
                )
                group.create_task(serving, name="subresources")


def background_tasks(
    api: Api, informers: Informers, backend: Backend, nodes: NodeController, events: EventRecorder
) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
    """The engine's controllers and periodic tasks, with their names."""
    capacity = NodeCapacity(informers.vmis.store)
    vmis = VMIController(api, informers, backend.hypervisor, events, backend.delays, capacity)
    data_volumes = DataVolumeController(api, informers, backend.importer)
    migrations = MigrationController(api, informers, backend.hypervisor, events, capacity)
    snapshots = SnapshotController(api, informers, backend.snapshots)
    controllers: tuple[Controller[Any], ...] = (
        VMController(api, informers, backend.delays, hotplugs=backend.hypervisor.hotplugs).controller,
        vmis.controller,
        vmis.orphans,
        data_volumes.controller,
        migrations.controller,
        migrations.abandoned.controller,
        EvacuationController(api, informers).controller,
        WorkloadUpdateController(api, informers).controller,
        LauncherController(api, informers).controller,
        nodes.controller,
        snapshots.controller,
        snapshots.contents,
        RestoreController(api, informers, backend.snapshots).controller,
    )
    for each in controllers:
        yield each.name, each.run()
    yield "prober", vmis.prober.run()
    yield "delete-files", data_volumes.delete_files()
    yield "delete-copies", snapshots.delete_copies()


async def simulated_agents(settings: Settings, informers: Informers, addresses: GuestAddresses) -> None:
    # The import is late, because only the agents need grpc.
    from poolhouse.stack.engine.agents.server import SimulatedAgents

    await SimulatedAgents(informers, addresses).serve(settings.agent_proxy)


def simulated_backend(settings: Settings, addresses: GuestAddresses) -> Backend:
    delays = Delays(settings.defaults_seconds, settle_seconds=2.0, vm_settle_seconds=5.0)
    simulated = SimulatedHypervisor(addresses), SimulatedImporter(), SimulatedSnapshots()
    return Backend(*simulated, NodeHardware(), lambda node: None, delays)


async def qemu_backend(
    settings: Settings, api: Api, informers: Informers, events: EventRecorder, group: asyncio.TaskGroup
) -> tuple[Backend, NodeController]:
    # The imports are late, because a simulated engine needs neither libvirt nor lxml.
    from poolhouse.stack.engine.datavolume.importer import QemuImgImporter
    from poolhouse.stack.engine.qemu import capabilities, guest_agent, guest_packages
    from poolhouse.stack.engine.qemu.hypervisor import QemuHypervisor, QemuSettings
    from poolhouse.stack.engine.qemu.libvirtd import find_socket
    from poolhouse.stack.engine.qemu.secret_disks import SecretDisks
    from poolhouse.stack.engine.qemu.snapshots import QemuSnapshots

    uid, cache = settings.worker_uid, cache_dir() / "guest"
    addresses = GuestAddresses() if settings.agent_proxy else None
    guest = await asyncio.to_thread(guest_packages.provide_guest_image, settings.disks / "boot", cache)
    kvm = await asyncio.to_thread(capabilities.kvm_works, guest, cache, uid)
    log.info("VMs run %s", "with KVM" if kvm else "without KVM, which this machine lacks or which does not work")
    if settings.agent_proxy:
        more = await asyncio.to_thread(guest_agent.agent_archive, cache.parent)
        boot = settings.disks / "boot-with-agent"
        guest = await asyncio.to_thread(guest_packages.provide_guest_image, boot, cache, more)
    get_pvc = informers.pvcs.store.get
    importer = QemuImgImporter(settings.disks, events, get_pvc, uid)
    qemu_settings = QemuSettings(
        marker=str(settings.directory),
        runtime=settings.runtime,
        consoles=settings.disks / "consoles",
        scratch=settings.disks / "scratch",
        guest=guest,
        kvm=kvm,
        uid=uid,
    )
    sockets = {name: find_socket(settings.runtime / name) for name in NODE_NAMES}
    hypervisor = QemuHypervisor(qemu_settings, importer, get_pvc, sockets, SecretDisks(api, uid), addresses)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    hardware = NodeHardware(cpus=os.cpu_count() or 1, memory=int(memory * MEMORY_SHARE) // len(NODE_NAMES), kvm=kvm)
    nodes = NodeController(api, informers, hardware, hypervisor.why_not_ready)
    hypervisor.subscribe_health(nodes.controller.enqueue)
    group.create_task(hypervisor.connections.run(), name="libvirt")
    if addresses is not None:
        informers.vmis.subscribe(addresses.vmi_changed)
        host, _, port = settings.agent_proxy.rpartition(":")
        open_guest = partial(_open_guest, informers, addresses, hypervisor.connect)
        group.create_task(serve_proxy(host, int(port), open_guest), name="agent-proxy")
    snapshots = QemuSnapshots(settings.disks / "snapshots", importer, hypervisor.connections, uid)
    delays = Delays(settings.defaults_seconds)
    return Backend(hypervisor, importer, snapshots, hardware, hypervisor.why_not_ready, delays), nodes


async def _open_guest(
    informers: Informers,
    addresses: GuestAddresses,
    connect: Callable[[VMI, int], Awaitable[Streams]],
    address: str,
    port: int,
) -> Streams:
    vmi = informers.vmis.store.first("uid", addresses.owner(address))
    if vmi is None or not vmi.node:
        raise ConnectionRefusedError(f"no running guest has the address {address}")
    return await connect(vmi, port)


def main() -> int:
    return lifecycle.start("engine", Settings.read, serve)


if __name__ == "__main__":
    raise SystemExit(main())
