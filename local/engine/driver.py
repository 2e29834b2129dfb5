"""libvirt: the only file of this room that imports it.

Each node is a libvirt daemon. What its domains are is read whole, again and again, and whenever libvirt says that
something has changed; an event says only that it is time to look. Calls run in threads and have deadlines: a daemon
that hangs costs its node, never the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import libvirt

from local.engine.domain import Domain, State
from local.engine.terms import Terms

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_SECONDS = 5.0
CALL_SECONDS = 15.0
# The first define of a daemon asks QEMU what it can do, which takes seconds.
LAUNCH_SECONDS = 90.0
RETRY_SECONDS = 0.5
THREADS = 8

CONNECTION_LOST = {
    libvirt.VIR_ERR_NO_CONNECT,
    libvirt.VIR_ERR_INVALID_CONN,
    libvirt.VIR_ERR_SYSTEM_ERROR,
    libvirt.VIR_ERR_RPC,
    libvirt.VIR_ERR_INTERNAL_ERROR,
}
CLEAR_AWAY = libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA


class Broken(Exception):
    """The node's libvirt did not do it; it may yet, or may have."""


class Rejected(Exception):
    """libvirt or QEMU says that the domain cannot be."""


def state_of(state: int, reason: int) -> tuple[State, str]:
    """libvirt's state and its reason in our words."""
    match state:
        case libvirt.VIR_DOMAIN_RUNNING | libvirt.VIR_DOMAIN_BLOCKED | libvirt.VIR_DOMAIN_SHUTDOWN:
            return "running", ""
        case libvirt.VIR_DOMAIN_PAUSED if reason in (
            libvirt.VIR_DOMAIN_PAUSED_STARTING_UP,
            libvirt.VIR_DOMAIN_PAUSED_MIGRATION,
        ):
            return "starting", ""
        case libvirt.VIR_DOMAIN_PAUSED | libvirt.VIR_DOMAIN_PMSUSPENDED:
            return "paused", ""
        case libvirt.VIR_DOMAIN_SHUTOFF if reason == libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN:
            return "off", "the guest has shut down"
        case libvirt.VIR_DOMAIN_SHUTOFF if reason == libvirt.VIR_DOMAIN_SHUTOFF_MIGRATED:
            return "absent", "it has moved to another node"
        case libvirt.VIR_DOMAIN_SHUTOFF if reason == libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED:
            return "crashed", "its domain was destroyed"
        case libvirt.VIR_DOMAIN_SHUTOFF if reason == libvirt.VIR_DOMAIN_SHUTOFF_UNKNOWN:
            # Defined and not started, or found so by a libvirtd that started after the guest had gone.
            return "absent", ""
        case _:
            return "crashed", "QEMU has ended"


class NodeDriver:
    """One libvirt daemon."""

    def __init__(self, name: str, socket: Path, changed: Callable[[str], None], health: Callable[[str], None]) -> None:
        self.name = name
        self.domains: dict[str, Domain] = {}
        """by UUID, which is the VMI's UID; as last seen"""
        self.problem: str | None = "not connected yet"
        self._uri = f"qemu+unix:///session?socket={socket}"
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
            except Broken as broken:
                self._ill(str(broken))
            await asyncio.sleep(RETRY_SECONDS)

    async def look(self) -> None:
        found = await self.call(self._list)
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
            raise Broken(f"{self.name}: {self.problem}")
        return self._connection

    async def call(self, act: Callable[[Any], T], seconds: float | None = CALL_SECONDS, *, hangs: bool = True) -> T:
        """`act(connection)` in a thread. Raises Broken when there is no answer in time, Rejected for a refusal; what
        may well take longer (`hangs` is false) says nothing about libvirt, and raises TimeoutError."""
        connection = self.connection
        return await self._thread(lambda: act(connection), seconds, hangs)

    async def _thread(self, act: Callable[[], T], seconds: float | None, hangs: bool = True) -> T:
        try:
            async with asyncio.timeout(seconds):
                return await self._loop.run_in_executor(self._threads, act)
        except TimeoutError:
            if not hangs:
                raise
            # The threads that hang in it are left to their call; it gets no others.
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=self.name)
            self._ill(f"libvirt has not answered for {seconds:g} s")
            raise Broken(f"{self.name}: libvirt has not answered for {seconds:g} s") from None
        except libvirt.libvirtError as error:
            if self._connection is not None and not self._connection.isAlive():
                self._ill(str(error))
            if error.get_error_code() in CONNECTION_LOST and self._connection is None:
                raise Broken(f"{self.name}: {error}") from error
            raise Rejected(str(error)) from error

    async def _connect(self) -> None:
        if self._connection is not None:
            return
        try:
            self._connection = await self._thread(self._open, CALL_SECONDS)
        except Rejected as rejected:
            raise Broken(str(rejected)) from rejected

    def _open(self) -> Any:
        connection = libvirt.open(self._uri)
        connection.setKeepAlive(5, 3)
        connection.domainEventRegisterAny(
            None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, lambda *event: self._wake(), None
        )
        connection.registerCloseCallback(lambda *reason: self._wake(), None)
        return connection

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

    def _list(self, connection: Any) -> dict[str, Domain]:
        found = {}
        for domain, stats in connection.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE):
            state, why = state_of(stats["state.state"], stats.get("state.reason", 0))
            found[domain.UUIDString()] = Domain(state, self.name, why)
        return found

    # What is done to domains. Each finds what is already done.

    async def launch(self, uid: str, xml: str, *, paused: bool = False) -> None:
        await self.call(lambda connection: _launch(connection, uid, xml, paused), LAUNCH_SECONDS)
        self._look.set()

    async def press_power(self, uid: str) -> None:
        await self._each(uid, lambda domain: domain.shutdownFlags(libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN))

    async def pause(self, uid: str, paused: bool) -> None:
        await self._each(uid, lambda domain: domain.suspend() if paused else domain.resume())

    async def clear(self, uid: str) -> None:
        """End it and forget it."""
        await self._each(uid, _clear)

    async def abort(self, uid: str) -> None:
        """Give up what is being done to it, such as a migration."""
        await self._each(uid, lambda domain: domain.abortJob())

    async def _each(self, uid: str, act: Callable[[Any], object]) -> None:
        await self.call(lambda connection: _on(connection, uid, act))
        self._look.set()


def _find(connection: Any, uid: str) -> Any:
    try:
        return connection.lookupByUUIDString(uid)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return None
        raise


def _on(connection: Any, uid: str, act: Callable[[Any], object]) -> None:
    domain = _find(connection, uid)
    if domain is None:
        return
    try:
        act(domain)
    except libvirt.libvirtError as error:
        # It ended in the meantime.
        if error.get_error_code() not in (libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_NO_DOMAIN):
            raise


def _launch(connection: Any, uid: str, xml: str, paused: bool) -> None:
    domain = _find(connection, uid)
    if domain is not None and domain.isActive():
        return
    domain = connection.defineXML(xml)
    try:
        domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED if paused else 0)
    except libvirt.libvirtError:
        with contextlib.suppress(libvirt.libvirtError):
            domain.undefineFlags(CLEAR_AWAY)
        raise


def _clear(domain: Any) -> None:
    if domain.isActive():
        domain.destroy()
    domain.undefineFlags(CLEAR_AWAY)


def _migrate(here: Any, there: Any, uid: str, socket: Path, terms: Terms) -> None:
    domain = _find(here, uid)
    if domain is None:
        raise libvirt.libvirtError("the domain is not on its node any more")
    flags = (
        libvirt.VIR_MIGRATE_LIVE
        | libvirt.VIR_MIGRATE_PERSIST_DEST
        | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
        # Both nodes have the same files in the same page cache, which libvirt cannot know.
        | libvirt.VIR_MIGRATE_UNSAFE
    )
    if terms.auto_converge:
        flags |= libvirt.VIR_MIGRATE_AUTO_CONVERGE
    wanted: dict[str, Any] = {libvirt.VIR_MIGRATE_PARAM_URI: f"unix://{socket}"}
    if terms.bandwidth:
        # In MiB/s, at least one: nought would mean no limit.
        wanted[libvirt.VIR_MIGRATE_PARAM_BANDWIDTH] = max(1, terms.bandwidth >> 20)
    domain.migrate3(there, wanted, flags)


class Driver:
    """All nodes. There is one of it in a process, because libvirt has one event loop."""

    def __init__(
        self, sockets: Mapping[str, Path], changed: Callable[[str], None], health: Callable[[str], None]
    ) -> None:
        libvirt.registerErrorHandler(lambda context, error: None, None)
        libvirt.virEventRegisterDefaultImpl()
        threading.Thread(target=_events, name="libvirt-events", daemon=True).start()
        self.nodes = {name: NodeDriver(name, socket, changed, health) for name, socket in sockets.items()}

    async def migrate(
        self, uid: str, source: str, target: str, socket: Path, terms: Terms, seconds: float | None
    ) -> None:
        """Moves it, live. Raises Broken or Rejected; then it is where it was, or it is seen where it is."""
        there = self.nodes[target].connection
        here = self.nodes[source]
        try:
            await here.call(lambda connection: _migrate(connection, there, uid, socket, terms), seconds, hangs=False)
        except (TimeoutError, asyncio.CancelledError):
            await here.abort(uid)
            raise
        finally:
            for node in (here, self.nodes[target]):
                with contextlib.suppress(Broken, Rejected):
                    await node.look()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for node in self.nodes.values():
                group.create_task(node.run(), name=node.name)


def _events() -> NoReturn:
    while True:
        libvirt.virEventRunDefaultImpl()
