"""The nodes' libvirt daemons: what their domains are, and what is done to them.

All domains of a daemon are read, again and again, and whenever libvirt says that something has changed; an event says
only that it is time to look. Calls run in threads and have deadlines: a daemon that hangs costs its node, never the
engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from local.engine.hypervisor import Domain
from local.engine.migration.settings import MigrationSettings
from local.engine.qemu import driver
from local.engine.qemu.migration_job import await_migration

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_SECONDS = 5.0
CALL_SECONDS = 15.0
# The first define of a daemon asks QEMU what it can do, which takes seconds.
LAUNCH_SECONDS = 90.0
RETRY_SECONDS = 0.5
THREADS = 8


class NodeUnavailable(Exception):
    """The node's libvirt did not do it; it may yet, or may have."""


class LibvirtRefused(Exception):
    """libvirt or QEMU says that the domain cannot be."""


class NodeConnection:
    """One of them, which is one node."""

    def __init__(self, name: str, socket: Path, changed: Callable[[str], None], health: Callable[[str], None]) -> None:
        self.name = name
        self.domains: dict[str, Domain] = {}
        """by UUID, which is the VMI's UID; as last seen"""
        self.problem: str | None = "not connected yet"
        self._socket = socket
        self._changed = changed
        self._health = health
        self._connection: Any = None
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=name)
        self._look = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def run(self) -> NoReturn:
        """Sees what its domains are, for ever."""
        while True:
            try:
                await self._connect()
                while True:
                    await self.look()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_SECONDS):
                            await self._look.wait()
                    self._look.clear()
            except NodeUnavailable as broken:
                self._ill(str(broken))
            await asyncio.sleep(RETRY_SECONDS)

    async def look(self) -> None:
        found = await self.call(lambda connection: driver.domains(connection, self.name))
        before, self.domains = self.domains, found
        for uid in before.keys() | found.keys():
            if before.get(uid) != found.get(uid):
                self._changed(uid)
        if self.problem is not None:
            log.info("%s: libvirt answers", self.name)
            self.problem = None
            self._health(self.name)
            # A domain that could not be seen may have changed and changed back: everything is looked at once more.
            for uid in found:
                self._changed(uid)

    @property
    def connection(self) -> Any:
        """Raises Broken where there is none."""
        if self._connection is None:
            raise NodeUnavailable(f"{self.name}: {self.problem}")
        return self._connection

    async def call(self, act: Callable[[Any], T], seconds: float | None = CALL_SECONDS) -> T:
        """`act(connection)` in a thread. Raises Broken when there is no answer in time (None: it may take any time),
        Rejected for a refusal."""
        connection = self.connection
        return await self._thread(lambda: act(connection), seconds)

    async def do(self, act: Callable[[Any], object], seconds: float = CALL_SECONDS) -> None:
        """The same, and look what became of it."""
        await self.call(act, seconds)
        self._look.set()

    async def _thread(self, act: Callable[[], T], seconds: float | None) -> T:
        try:
            async with asyncio.timeout(seconds):
                return await self._loop.run_in_executor(self._threads, act)
        except TimeoutError:
            # The threads that hang in it are left to their call; it gets no others.
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=self.name)
            self._ill(f"libvirt has not answered for {seconds:g} s")
            raise NodeUnavailable(f"{self.name}: libvirt has not answered for {seconds:g} s") from None
        except driver.Failure as error:
            if self._connection is not None and not self._connection.isAlive():
                self._ill(str(error))
            if driver.lost(error) and self._connection is None:
                raise NodeUnavailable(f"{self.name}: {error}") from error
            raise LibvirtRefused(str(error)) from error

    async def _connect(self) -> None:
        if self._connection is not None:
            return
        try:
            self._connection = await self._thread(lambda: driver.connect(self._socket, self._wake), CALL_SECONDS)
        except LibvirtRefused as rejected:
            raise NodeUnavailable(str(rejected)) from rejected

    def _wake(self) -> None:
        """Called in libvirt's thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._look.set)

    def _ill(self, why: str) -> None:
        self._connection = None
        if self.problem is None or self.problem == "not connected yet":
            log.warning("%s: %s", self.name, why)
        was, self.problem = self.problem, why
        if was is None:
            self._health(self.name)

    async def launch(self, uid: str, xml: str, *, paused: bool = False) -> None:
        await self.do(lambda connection: driver.launch(connection, uid, xml, paused), LAUNCH_SECONDS)

    async def press_power(self, uid: str) -> None:
        await self.do(lambda connection: driver.press_power(connection, uid))

    async def pause(self, uid: str, paused: bool) -> None:
        await self.do(lambda connection: driver.pause(connection, uid, paused))

    async def clear(self, uid: str) -> None:
        """End it and forget it."""
        await self.do(lambda connection: driver.clear(connection, uid))


class NodeConnections:
    """All nodes. There is one of it in a process, because libvirt has one event loop."""

    def __init__(
        self, sockets: Mapping[str, Path], changed: Callable[[str], None], health: Callable[[str], None]
    ) -> None:
        driver.start_events()
        self.nodes = {name: NodeConnection(name, socket, changed, health) for name, socket in sockets.items()}

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
        switched: Callable[[], Awaitable[None]],
    ) -> None:
        """Live-migrates a domain. After `seconds` it switches to post-copy where the settings allow it and calls
        `switched`; otherwise it aborts and raises MigrationTimeout.

        After NodeUnavailable or LibvirtRefused the domain is where it was, or is observed where it is.
        """
        here, there = self.nodes[source], self.nodes[target].connection
        move = asyncio.create_task(here.call(lambda c: driver.migrate(c, there, uid, socket, settings), None))
        try:
            await await_migration(move, _Leaving(here, uid), seconds, switched if settings.post_copy else None)
        finally:
            for node in (here, self.nodes[target]):
                with contextlib.suppress(NodeUnavailable, LibvirtRefused):
                    await node.look()


class _Leaving:
    """One guest's migration on the node that it leaves."""

    def __init__(self, node: NodeConnection, uid: str) -> None:
        self._node = node
        self._uid = uid

    async def switch(self) -> bool:
        try:
            await self._node.call(lambda connection: driver.start_post_copy(connection, self._uid))
        except (NodeUnavailable, LibvirtRefused) as error:
            log.info("%s: %s does not go on by post-copy yet: %s", self._node.name, self._uid, error)
            return False
        return True

    async def abort(self) -> None:
        with contextlib.suppress(NodeUnavailable, LibvirtRefused):
            await self._node.call(lambda connection: driver.abort(connection, self._uid))

    async def progress(self) -> Mapping[str, int]:
        try:
            return await self._node.call(lambda connection: driver.progress(connection, self._uid))
        except (NodeUnavailable, LibvirtRefused):
            return {}
