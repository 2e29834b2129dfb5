"""libvirt: the only file of this room that imports it.

What is asked of one daemon, in calls that wait for their answer: `daemons` runs them in threads. What is done to a
domain finds what is already done.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import libvirt

from local.engine.hypervisor import Domain, DomainState
from local.engine.migration.settings import MigrationSettings

Failure = libvirt.libvirtError
"""what every call here raises"""

CONNECTION_LOST = {
    libvirt.VIR_ERR_NO_CONNECT,
    libvirt.VIR_ERR_INVALID_CONN,
    libvirt.VIR_ERR_SYSTEM_ERROR,
    libvirt.VIR_ERR_RPC,
    libvirt.VIR_ERR_INTERNAL_ERROR,
}
CLEAR_AWAY = libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA


def start_events() -> None:
    """Once in a process, before the first connection: libvirt has one event loop."""
    libvirt.registerErrorHandler(lambda context, error: None, None)
    libvirt.virEventRegisterDefaultImpl()
    threading.Thread(target=_events, name="libvirt-events", daemon=True).start()


def _events() -> NoReturn:
    while True:
        libvirt.virEventRunDefaultImpl()


def connect(socket: Path, wake: Callable[[], None]) -> Any:
    """`wake` is called in libvirt's thread whenever something has happened to a domain or the connection is lost."""
    connection = libvirt.open(f"qemu+unix:///session?socket={socket}")
    connection.setKeepAlive(5, 3)
    connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, lambda *event: wake(), None)
    connection.registerCloseCallback(lambda *reason: wake(), None)
    return connection


def lost(error: Any) -> bool:
    """Whether it may be the connection that failed, and not what was asked."""
    return error.get_error_code() in CONNECTION_LOST


def domains(connection: Any, node: str) -> dict[str, Domain]:
    """All of them, by UUID."""
    found = {}
    for domain, stats in connection.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE):
        state, why = state_of(stats["state.state"], stats.get("state.reason", 0))
        found[domain.UUIDString()] = Domain(state, node, why)
    return found


def state_of(state: int, reason: int) -> tuple[DomainState, str]:
    """libvirt's state and its reason in our words."""
    match state:
        case libvirt.VIR_DOMAIN_RUNNING | libvirt.VIR_DOMAIN_BLOCKED | libvirt.VIR_DOMAIN_SHUTDOWN:
            return "running", ""
        case libvirt.VIR_DOMAIN_PAUSED if reason in (
            libvirt.VIR_DOMAIN_PAUSED_STARTING_UP,
            libvirt.VIR_DOMAIN_PAUSED_MIGRATION,
        ):
            return "starting", ""
        case libvirt.VIR_DOMAIN_PAUSED if reason == libvirt.VIR_DOMAIN_PAUSED_POSTCOPY:
            return "absent", "it runs on another node already, which still fetches memory from here"
        case libvirt.VIR_DOMAIN_PAUSED if reason == libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED:
            return "crashed", "post-copy broke off, and its memory is in pieces on two nodes"
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


def launch(connection: Any, uid: str, xml: str, paused: bool) -> None:
    domain = _find(connection, uid)
    if domain is not None and domain.isActive():
        return
    domain = connection.defineXML(xml)
    try:
        domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED if paused else 0)
    except Failure:
        with contextlib.suppress(Failure):
            domain.undefineFlags(CLEAR_AWAY)
        raise


def press_power(connection: Any, uid: str) -> None:
    _on(connection, uid, lambda domain: domain.shutdownFlags(libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN))


def pause(connection: Any, uid: str, paused: bool) -> None:
    _on(connection, uid, lambda domain: domain.suspend() if paused else domain.resume())


def clear(connection: Any, uid: str) -> None:
    """End it and forget it."""
    _on(connection, uid, _clear)


def _clear(domain: Any) -> None:
    if domain.isActive():
        domain.destroy()
    domain.undefineFlags(CLEAR_AWAY)


def migrate(here: Any, there: Any, uid: str, socket: Path, settings: MigrationSettings) -> None:
    """Returns when it has moved; raises when it has not, and is where it was."""
    domain = _find(here, uid)
    if domain is None:
        raise Failure("the domain is not on its node any more")
    flags = (
        libvirt.VIR_MIGRATE_LIVE
        | libvirt.VIR_MIGRATE_PERSIST_DEST
        | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
        # Both nodes have the same files in the same page cache, which libvirt cannot know.
        | libvirt.VIR_MIGRATE_UNSAFE
    )
    if settings.auto_converge:
        flags |= libvirt.VIR_MIGRATE_AUTO_CONVERGE
    if settings.post_copy:
        flags |= libvirt.VIR_MIGRATE_POSTCOPY
    wanted: dict[str, Any] = {libvirt.VIR_MIGRATE_PARAM_URI: f"unix://{socket}"}
    if settings.bandwidth:
        wanted[libvirt.VIR_MIGRATE_PARAM_BANDWIDTH] = settings.bandwidth >> 20  # in MiB/s
    domain.migrate3(there, wanted, flags)


def start_post_copy(connection: Any, uid: str) -> None:
    """From now on the guest runs on the other node, and its memory follows it."""
    domain = _find(connection, uid)
    if domain is None:
        raise Failure("the domain is not on its node any more")
    domain.migrateStartPostCopy()


def abort(connection: Any, uid: str) -> None:
    """Give up what is being done to it, such as a migration."""
    _on(connection, uid, lambda domain: domain.abortJob())


def progress(connection: Any, uid: str) -> dict[str, int]:
    """How far its migration is: `memory_remaining`, `memory_bps`, `memory_dirty_rate`, ...; empty if there is none."""
    domain = _find(connection, uid)
    if domain is None:
        return {}
    return {name: value for name, value in domain.jobStats().items() if isinstance(value, int)}


def _find(connection: Any, uid: str) -> Any:
    try:
        return connection.lookupByUUIDString(uid)
    except Failure as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return None
        raise


def _on(connection: Any, uid: str, act: Callable[[Any], object]) -> None:
    domain = _find(connection, uid)
    if domain is None:
        return
    try:
        act(domain)
    except Failure as error:
        # It ended in the meantime.
        if error.get_error_code() not in (libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_NO_DOMAIN):
            raise
