"""Connects to the nodes' libvirt daemons, lists their domains and operates on the domains.

Each connection lists all domains every few seconds and after each libvirt event. Calls run in threads and have
deadlines, so that a daemon that hangs affects only its node.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from poolhouse.stack.engine.hypervisor import Domain, Switched
from poolhouse.stack.engine.migration.settings import MigrationSettings
from poolhouse.stack.engine.qemu import driver
from poolhouse.stack.engine.qemu.migration_job import await_migration

log = logging.getLogger(__name__)

T = TypeVar("T")

RELIST_SECONDS = 5.0
CALL_SECONDS = 15.0
# Before it defines its first domain, a daemon queries QEMU's capabilities for some seconds.
LAUNCH_SECONDS = 90.0
RECONNECT_SECONDS = 0.5
THREADS = 8
NOT_CONNECTED = "not connected yet"


class NodeUnavailable(Exception):
    """The node's libvirt did not answer; the operation may still have an effect."""


class LibvirtRefused(Exception):
    """libvirt or QEMU refused the operation."""


class NodeConnection:
    """The connection to the libvirt daemon of one node."""

    def __init__(
        self, name: str, socket: Path, domain_changed: Callable[[str], None], health_changed: Callable[[str], None]
    ) -> None:
        self.name = name
        self.domains: dict[str, Domain] = {}
        """domains by UUID, which is the UID of the VMI"""
        self.problem: str | None = NOT_CONNECTED
        self._socket, self._domain_changed, self._health_changed = socket, domain_changed, health_changed
        self._connection: Any = None
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=name)
        self._relist = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def run(self) -> NoReturn:
        while True:
            try:
                await self._connect()
                while True:
                    await self.list_domains()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(RELIST_SECONDS):
                            await self._relist.wait()
                    self._relist.clear()
            except NodeUnavailable as error:
                self._lost(str(error))
            await asyncio.sleep(RECONNECT_SECONDS)

    async def list_domains(self) -> None:
        found = await self.call(lambda connection: driver.domains(connection, self.name))
        before, self.domains = self.domains, found
        for uid in before.keys() | found.keys():
            if before.get(uid) != found.get(uid):
                self._domain_changed(uid)
        if self.problem is not None:
            log.info("%s: connected to libvirt", self.name)
            self.problem = None
            self._health_changed(self.name)
            # A domain may have changed and changed back while the connection was lost.
            for uid in found:
                self._domain_changed(uid)

    @property
    def connection(self) -> Any:
        """The connection to libvirt. Raises NodeUnavailable while it is lost."""
        if self._connection is None:
            raise NodeUnavailable(f"{self.name}: {self.problem}")
        return self._connection

    async def call(self, act: Callable[[Any], T], seconds: float | None = CALL_SECONDS) -> T:
        """Runs `act(connection)` in a thread. Raises LibvirtRefused, or NodeUnavailable after the deadline."""
        connection = self.connection
        return await self._in_thread(lambda: act(connection), seconds)

    async def launch(self, uid: str, define_all: driver.DefineAll, *, paused: bool = False) -> None:
        await self._change(lambda connection: driver.launch(connection, uid, define_all, paused), LAUNCH_SECONDS)

    async def running_xml(self, uid: str) -> str:
        return await self.call(lambda connection: driver.running_xml(connection, uid))

    async def attach(self, uid: str, xml: str) -> None:
        await self.call(lambda connection: driver.attach(connection, uid, xml))

    async def detach(self, uid: str, xml: str) -> None:
        await self.call(lambda connection: driver.detach(connection, uid, xml))

    async def begin_backup(self, uid: str, xml: str) -> None:
        await self.call(lambda connection: driver.begin_backup(connection, uid, xml))

    async def backup_runs(self, uid: str) -> bool:
        """Raises LibvirtRefused if the backup has failed."""
        return await self.call(lambda connection: driver.backup_runs(connection, uid))

    async def abort(self, uid: str) -> None:
        with contextlib.suppress(NodeUnavailable, LibvirtRefused):
            await self.call(lambda connection: driver.abort(connection, uid))

    async def monitor(self, uid: str, command: str) -> str:
        return await self.call(lambda connection: driver.monitor(connection, uid, command))

    async def press_power(self, uid: str) -> None:
        await self._change(lambda connection: driver.press_power(connection, uid))

    async def pause(self, uid: str, paused: bool) -> None:
        await self._change(lambda connection: driver.pause(connection, uid, paused))

    async def clear(self, uid: str) -> None:
        await self._change(lambda connection: driver.clear(connection, uid))

    async def _change(self, act: Callable[[Any], object], seconds: float = CALL_SECONDS) -> None:
        await self.call(act, seconds)
        self._relist.set()

    async def _in_thread(self, act: Callable[[], T], seconds: float | None) -> T:
        try:
            async with asyncio.timeout(seconds):
                return await self._loop.run_in_executor(self._threads, act)
        except TimeoutError:
            # The old executor is abandoned, because its threads may hang in a call.
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=self.name)
            self._lost(f"libvirt has not answered for {seconds:g} s")
            raise NodeUnavailable(f"{self.name}: libvirt has not answered for {seconds:g} s") from None
        except driver.LibvirtError as error:
            if self._connection is not None and not self._connection.isAlive():
                self._lost(str(error))
            if driver.is_connection_error(error) and self._connection is None:
                raise NodeUnavailable(f"{self.name}: {error}") from error
            raise LibvirtRefused(str(error)) from error

    async def _connect(self) -> None:
        if self._connection is not None:
            return
        try:
            self._connection = await self._in_thread(lambda: driver.connect(self._socket, self._wake), CALL_SECONDS)
        except LibvirtRefused as error:
            raise NodeUnavailable(str(error)) from error

    def _wake(self) -> None:
        """Requests a new list of domains. libvirt calls this method in its own thread."""
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._relist.set)

    def _lost(self, why: str) -> None:
        self._connection = None
        if self.problem in (None, NOT_CONNECTED):
            log.warning("%s: %s", self.name, why)
        was_ready, self.problem = self.problem is None, why
        if was_ready:
            self._health_changed(self.name)


class NodeConnections:
    """The connections of all nodes. A process has a single instance, because libvirt has a single event loop."""

    def __init__(
        self, sockets: Mapping[str, Path], domain_changed: Callable[[str], None], health_changed: Callable[[str], None]
    ) -> None:
        driver.start_events()
        self.nodes = {
            name: NodeConnection(name, socket, domain_changed, health_changed) for name, socket in sockets.items()
        }

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for node in self.nodes.values():
                group.create_task(node.run(), name=node.name)

    async def migrate(
        self,
        uid: str,
        source: str,
        target: str,
        socket: Path,
        settings: MigrationSettings,
        seconds: float | None,
        switched: Switched,
    ) -> None:
        """Live-migrates a domain. After `seconds`, switches to post-copy or pauses the guest, and calls `switched`, if
        the settings allow it. Otherwise aborts the migration and raises MigrationTimeout.

        After NodeUnavailable or LibvirtRefused, the domain may be on either node; a list of domains shows its node.
        """
        here, there = self.nodes[source], self.nodes[target].connection
        migration = asyncio.create_task(here.call(lambda c: driver.migrate(c, there, uid, socket, settings), None))
        job = _LibvirtJob(here, uid, pauses=settings.at_timeout == "Paused")
        try:
            await await_migration(migration, job, seconds, switched if settings.at_timeout else None)
        finally:
            for node in (here, self.nodes[target]):
                with contextlib.suppress(NodeUnavailable, LibvirtRefused):
                    if job.paused:
                        await node.call(lambda connection: driver.continue_paused(connection, uid))
                    await node.list_domains()


class _LibvirtJob:
    """The migration job of a domain on its source node."""

    def __init__(self, node: NodeConnection, uid: str, *, pauses: bool) -> None:
        self._node, self._uid, self._pauses = node, uid, pauses
        self.paused = False
        """whether the guest was paused"""

    async def disrupt(self) -> bool:
        try:
            if self._pauses:
                await self._node.call(lambda connection: driver.pause(connection, self._uid, True))
            else:
                await self._node.call(lambda connection: driver.start_post_copy(connection, self._uid))
        except (NodeUnavailable, LibvirtRefused) as error:
            what = "be paused" if self._pauses else "switch to post-copy"
            log.info("%s: %s cannot %s yet: %s", self._node.name, self._uid, what, error)
            return False
        self.paused = self._pauses
        return True

    async def abort(self) -> None:
        await self._node.abort(self._uid)

    async def progress(self) -> Mapping[str, int]:
        try:
            return await self._node.call(lambda connection: driver.progress(connection, self._uid))
        except (NodeUnavailable, LibvirtRefused):
            return {}
