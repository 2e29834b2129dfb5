"""One history: an API server in memory, the simulated engine, and processes of controllers that crash and start again.

Everything runs in one event loop with virtual time. Each random choice comes from `World.random`, so that a seed
repeats the history.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, cast

from prometheus_client import CollectorRegistry

from controllers.shared.component import Component
from poolhouse.api.kinds.meta import NAMESPACE
from poolhouse.runtime.api import Api
from poolhouse.runtime.clock import ApiServerClock
from poolhouse.runtime.events import EventRecorder
from poolhouse.runtime.informer import Informer, shared_reflectors
from poolhouse.runtime.metrics import Metrics
from poolhouse.runtime.resource import NAMESPACES
from poolhouse.runtime.store import Store
from poolhouse.runtime.transport import Request
from poolhouse.stack.engine import installation
from poolhouse.stack.engine.agents.addresses import GuestAddresses
from poolhouse.stack.engine.informers import Informers
from poolhouse.stack.engine.main import Settings, background_tasks, simulated_backend
from poolhouse.stack.engine.node.controller import NodeController
from poolhouse.stack.engine.objects import VMI
from poolhouse.stack.engine.virt_api import VirtApi
from poolhouse.stack.engine.vm.subresources import StatusError
from poolhouse.stack.engine.vmi.phases import is_paused
from tests.histories.api_server import ApiServer, Change, Refused
from tests.histories.client import Failpoint, MemoryTransport, Network

Json = dict[str, Any]
Build = Callable[[Api, EventRecorder, str], Component]
"""Builds a component; the text is unique to the process."""

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
HERE = "here"
"""The namespace of a history."""


class NoEvents:
    """A recorder of Events that writes none: nothing in a history reads them."""

    def emit(self, *_: object, **__: object) -> None: ...


@dataclass
class World:
    random: Random
    violations: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    changes: int = 0
    jumped: timedelta = timedelta(0)
    """By how much the clocks of the cluster have jumped."""
    latest: timedelta = timedelta(0)
    """The largest value that `jumped` has had."""
    processes: int = 0
    crashes: int = 0
    """Crashes of processes at a failpoint."""
    networks: list[Network] = field(default_factory=list)
    server: ApiServer = field(init=False)
    engine: VirtApi | None = None
    addresses: GuestAddresses = field(default_factory=GuestAddresses)
    guests: Store[VMI] | None = None
    """the VMIs that the engine knows"""

    def __post_init__(self) -> None:
        self.server = ApiServer(self.now)
        self.server.observers.append(self._count)

    def now(self) -> datetime:
        """The time of the API server and of the engine."""
        return BEGINNING + timedelta(seconds=asyncio.get_running_loop().time()) + self.jumped

    def jump(self, by: timedelta) -> None:
        self.jumped += by
        self.latest = max(self.latest, self.jumped)

    @property
    def behind_seconds(self) -> float:
        """How far the clocks of the cluster may be behind a time that they have given before. KubeVirt and the engine
        wait for such times, for example to start a guest or to try a failed migration again (`handleMigrationBackoff`
        in KubeVirt's migration.go), and then wait for as much longer."""
        return (self.latest - self.jumped).total_seconds()

    def api(self, actor: str, network: Network | None = None, skew_seconds: float = 0.0) -> Api:
        return Api(cast(Any, self.transport(actor, network, skew_seconds)), actor)

    def transport(self, actor: str, network: Network | None = None, skew_seconds: float = 0.0) -> MemoryTransport:
        loop, metrics = asyncio.get_running_loop(), Metrics()

        def wall() -> float:
            return BEGINNING.timestamp() + loop.time() + skew_seconds

        clock = ApiServerClock(metrics, wall, loop.time)
        return MemoryTransport(self.server, actor, network or Network(Random(0)), clock, metrics, self._subresource)

    @property
    def faults(self) -> Counter[str]:
        """Answers that were faulty, and watches that were cut, by the name of the fault."""
        return sum((network.done for network in self.networks), Counter[str]())

    def running_guest(self, uid: str) -> VMI | None:
        """The VMI with this UID if its guest runs, also while the VMI is being deleted."""
        found = next(iter(self.guests.by("uid", uid)), None) if self.guests is not None and uid else None
        runs = found is not None and found.phase == "Running" and not is_paused(found)
        return found if runs else None

    def violated(self, what: str) -> None:
        if what not in self.violations:
            self.violations.append(what)

    def note(self, what: str) -> None:
        if what:
            self.log.append(f"{asyncio.get_running_loop().time() - 1000:8.1f} {what}")

    def _count(self, change: Change) -> None:
        self.changes += 1

    async def _subresource(self, request: Request) -> None:
        if self.engine is None:
            raise Refused(503, "ServiceUnavailable", "KubeVirt is away")
        _, _, _, _, namespace, resource, name, verb = request.path.strip("/").split("/")
        try:
            await self.engine.execute(verb, resource, (namespace, name), request.body or {})
        except StatusError as error:
            raise Refused(error.code, error.reason, error.message) from None


@dataclass
class Process:
    """A process of controllers, until it crashes or is killed."""

    world: World
    name: str
    transport: MemoryTransport
    task: asyncio.Task[None]

    @classmethod
    def start(
        cls, world: World, build: Build, network: Network, failpoint: Failpoint | None = None, skew_seconds: float = 0.0
    ) -> Process:
        world.processes += 1
        name = f"controllers-{world.processes}"
        transport = world.transport(name, network, skew_seconds)
        transport.failpoint = failpoint
        api = Api(cast(Any, transport), "controllers")
        task = asyncio.create_task(run_component(build(api, cast(EventRecorder, NoEvents()), name)), name=name)
        found = cls(world, name, transport, task)
        transport.on_crash = found._crashed
        task.add_done_callback(found._ended)
        return found

    def _crashed(self) -> None:
        self.world.crashes += 1
        self.task.cancel()

    async def kill(self) -> None:
        self.transport.crashed = True
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    @property
    def writes(self) -> int:
        return self.transport.writes

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not self.transport.crashed:
            error = None if task.cancelled() else task.exception()
            self.world.violated(f"{self.name} ended by itself: {error!r}")


async def run_component(component: Component) -> None:
    """Like `controllers.main.run`, without leader election."""
    async with asyncio.TaskGroup() as group:
        for reflector in shared_reflectors(component.informers):
            group.create_task(reflector.run())
        for informer in component.informers:
            await informer.synced()
        await component.work()


@asynccontextmanager
async def engine(world: World) -> AsyncIterator[None]:
    """The simulated engine, as `poolhouse.stack.engine.main.serve` builds it."""
    api, events = world.api("engine"), cast(EventRecorder, NoEvents())
    informers = Informers(api, world.now)
    informers.vmis.subscribe(world.addresses.vmi_changed)
    world.guests = informers.vmis.store
    backend = simulated_backend(Settings(defaults_seconds=0), world.addresses)
    nodes = NodeController(api, informers, backend.hardware, backend.why_not_ready)
    # The engine reads the namespace of a VMI that migrates.
    await world.api("users").create(NAMESPACES, {"metadata": {"name": HERE}})
    world.engine = VirtApi(api, backend.hypervisor, lambda: None, CollectorRegistry())
    async with running(*(informer.run() for informer in cast(tuple[Informer[Any], ...], informers.all))):
        await informers.synced()
        await installation.register(api, NAMESPACE)
        await nodes.register()
        works = [work for _, work in background_tasks(api, informers, backend, nodes, events)]
        async with running(*works):
            yield


@asynccontextmanager
async def running(*works: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
        assert not (ended := [task for task in tasks if task.done()]), ended
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Histories cause thousands of warnings, which would cost more time than everything else."""
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
