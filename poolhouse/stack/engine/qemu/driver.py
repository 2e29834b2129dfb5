"""Calls libvirt. No other module of the embedded stack imports libvirt.

The calls block; `connections` runs them in threads. Operations on a domain are idempotent.
"""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import libvirt
import libvirt_qemu

from poolhouse.stack.engine.hypervisor import Domain, DomainState
from poolhouse.stack.engine.migration.settings import MigrationSettings

LibvirtError = libvirt.libvirtError
DefineAll = Callable[[Callable[[str], str]], object]
"""defines a domain one or more times, with a function that defines it once and returns libvirt's XML"""

CONNECTION_ERRORS = {
    libvirt.VIR_ERR_NO_CONNECT,
    libvirt.VIR_ERR_INVALID_CONN,
    libvirt.VIR_ERR_SYSTEM_ERROR,
    libvirt.VIR_ERR_RPC,
    libvirt.VIR_ERR_INTERNAL_ERROR,
}
HOTPLUG_FLAGS = libvirt.VIR_DOMAIN_AFFECT_LIVE | libvirt.VIR_DOMAIN_AFFECT_CONFIG
UNDEFINE_FLAGS = libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA


def start_events() -> None:
    """Starts libvirt's event loop. A process must call this function once, before its first connection."""
    libvirt.registerErrorHandler(lambda context, error: None, None)
    libvirt.virEventRegisterDefaultImpl()
    threading.Thread(target=_run_event_loop, name="libvirt-events", daemon=True).start()


def _run_event_loop() -> NoReturn:
    while True:
        libvirt.virEventRunDefaultImpl()


def connect(socket: Path, wake: Callable[[], None]) -> Any:
    """Connects to a daemon. libvirt's thread calls `wake` after each lifecycle event and after a lost connection."""
    connection = libvirt.open(f"qemu+unix:///session?socket={quote(str(socket))}")
    connection.setKeepAlive(5, 3)
    connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, lambda *event: wake(), None)
    connection.registerCloseCallback(lambda *reason: wake(), None)
    return connection


def is_connection_error(error: Any) -> bool:
    """Whether the error may be a failure of the connection and not of the operation."""
    return error.get_error_code() in CONNECTION_ERRORS


def domains(connection: Any, node: str) -> dict[str, Domain]:
    """Returns all domains of the node, by UUID."""
    found = {}
    for domain, stats in connection.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE):
        state, why = state_of(stats["state.state"], stats.get("state.reason", 0))
        found[domain.UUIDString()] = Domain(state, node, why)
    return found


def state_of(state: int, reason: int) -> tuple[DomainState, str]:
    """Converts libvirt's state and reason to those of the engine."""
    match state:
        case libvirt.VIR_DOMAIN_RUNNING | libvirt.VIR_DOMAIN_BLOCKED | libvirt.VIR_DOMAIN_SHUTDOWN:
            return "running", ""
        case libvirt.VIR_DOMAIN_PAUSED if reason in (
            libvirt.VIR_DOMAIN_PAUSED_STARTING_UP,
            libvirt.VIR_DOMAIN_PAUSED_MIGRATION,
        ):
            return "starting", ""
        case libvirt.VIR_DOMAIN_PAUSED if reason == libvirt.VIR_DOMAIN_PAUSED_POSTCOPY:
            return "absent", "the domain runs on another node, which still fetches memory from here"
        case libvirt.VIR_DOMAIN_PAUSED if reason == libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED:
            return "crashed", "post-copy failed, and parts of the memory are on two nodes"
        case libvirt.VIR_DOMAIN_PAUSED | libvirt.VIR_DOMAIN_PMSUSPENDED:
            return "paused", ""
        case libvirt.VIR_DOMAIN_SHUTOFF if reason == libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN:
            return "off", "the guest has shut down"
        case libvirt.VIR_DOMAIN_SHUTOFF if reason == libvirt.VIR_DOMAIN_SHUTOFF_MIGRATED:
            return "absent", "the domain has migrated to another node"
        case libvirt.VIR_DOMAIN_SHUTOFF if reason == libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED:
            return "crashed", "the domain was destroyed"
        case libvirt.VIR_DOMAIN_SHUTOFF if reason == libvirt.VIR_DOMAIN_SHUTOFF_UNKNOWN:
            # The domain was not started, or QEMU ended while libvirtd was down.
            return "absent", ""
        case _:
            return "crashed", "QEMU has ended"


def launch(connection: Any, uid: str, define_all: DefineAll, paused: bool) -> None:
    """Defines the domain by `define_all` and starts it, unless it runs already."""
    domain = _find(connection, uid)
    if domain is not None and domain.isActive():
        return
    define_all(lambda xml: str(connection.defineXML(xml).XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)))
    domain = connection.lookupByUUIDString(uid)
    try:
        domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED if paused else 0)
    except LibvirtError:
        with contextlib.suppress(LibvirtError):
            domain.undefineFlags(UNDEFINE_FLAGS)
        raise


def running_xml(connection: Any, uid: str) -> str:
    """Returns the XML of the running domain. Raises LibvirtError without one."""
    return str(connection.lookupByUUIDString(uid).XMLDesc(0))


def attach(connection: Any, uid: str, xml: str) -> None:
    """Hotplugs a device, also into the persistent definition. Raises LibvirtError."""
    connection.lookupByUUIDString(uid).attachDeviceFlags(xml, HOTPLUG_FLAGS)


def detach(connection: Any, uid: str, xml: str) -> None:
    """Asks the guest to release a device, which then disappears from the domain. Raises LibvirtError."""
    connection.lookupByUUIDString(uid).detachDeviceFlags(xml, HOTPLUG_FLAGS)


def begin_backup(connection: Any, uid: str, xml: str) -> None:
    """Starts to copy disks of the running domain to the files in the XML. Raises LibvirtError."""
    connection.lookupByUUIDString(uid).backupBegin(xml, None, 0)


def backup_runs(connection: Any, uid: str) -> bool:
    """Whether the domain's backup is not complete. Raises LibvirtError if it has failed."""
    domain = connection.lookupByUUIDString(uid)
    if domain.jobInfo()[0] != libvirt.VIR_DOMAIN_JOB_NONE:
        return True
    last = domain.jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED)
    if last.get("type") != libvirt.VIR_DOMAIN_JOB_COMPLETED:
        raise LibvirtError("the backup of the domain's disks has failed")
    return False


def monitor(connection: Any, uid: str, command: str) -> str:
    """Returns the answer of QEMU's monitor to a command for humans. Raises LibvirtError."""
    domain = connection.lookupByUUIDString(uid)
    return str(libvirt_qemu.qemuMonitorCommand(domain, command, libvirt_qemu.VIR_DOMAIN_QEMU_MONITOR_COMMAND_HMP))


def press_power(connection: Any, uid: str) -> None:
    _on(connection, uid, lambda domain: domain.shutdownFlags(libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN))


def pause(connection: Any, uid: str, paused: bool) -> None:
    _on(connection, uid, lambda domain: domain.suspend() if paused else domain.resume())


def clear(connection: Any, uid: str) -> None:
    """Destroys and undefines the domain."""
    _on(connection, uid, _clear)


def _clear(domain: Any) -> None:
    if domain.isActive():
        domain.destroy()
    domain.undefineFlags(UNDEFINE_FLAGS)


def migrate(here: Any, there: Any, uid: str, socket: Path, settings: MigrationSettings) -> None:
    """Live-migrates the domain. If the call raises, the domain still runs on its source node."""
    domain = _find(here, uid)
    if domain is None:
        raise LibvirtError("the domain is no longer on its source node")
    flags = (
        libvirt.VIR_MIGRATE_LIVE
        | libvirt.VIR_MIGRATE_PERSIST_DEST
        | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
        # The migration is safe, because both nodes use the same page cache for the disks. libvirt cannot detect that.
        | libvirt.VIR_MIGRATE_UNSAFE
    )
    if settings.auto_converge:
        flags |= libvirt.VIR_MIGRATE_AUTO_CONVERGE
    if settings.post_copy:
        flags |= libvirt.VIR_MIGRATE_POSTCOPY
    parameters: dict[str, Any] = {libvirt.VIR_MIGRATE_PARAM_URI: f"unix://{socket}"}
    if settings.bandwidth:
        parameters[libvirt.VIR_MIGRATE_PARAM_BANDWIDTH] = settings.bandwidth >> 20  # in MiB/s
    if settings.max_downtime_ms is not None:
        domain.migrateSetMaxDowntime(settings.max_downtime_ms)
    domain.migrate3(there, parameters, flags)


def start_post_copy(connection: Any, uid: str) -> None:
    """Switches the migration to post-copy: the domain runs on the target, and QEMU copies the rest of its memory."""
    domain = _find(connection, uid)
    if domain is None:
        raise LibvirtError("the domain is no longer on its source node")
    domain.migrateStartPostCopy()


def continue_paused(connection: Any, uid: str) -> None:
    """Lets a domain continue that was paused during its migration. libvirt does so where it can."""
    domain = _find(connection, uid)
    if domain is not None and domain.state()[0] == libvirt.VIR_DOMAIN_PAUSED:
        domain.resume()


def abort(connection: Any, uid: str) -> None:
    """Aborts the domain's job, such as a migration."""
    _on(connection, uid, lambda domain: domain.abortJob())


def progress(connection: Any, uid: str) -> dict[str, int]:
    """Returns statistics of the domain's migration, such as `memory_remaining`; empty without a migration."""
    domain = _find(connection, uid)
    if domain is None:
        return {}
    return {name: value for name, value in domain.jobStats().items() if isinstance(value, int)}


def _find(connection: Any, uid: str) -> Any:
    try:
        return connection.lookupByUUIDString(uid)
    except LibvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return None
        raise


def _on(connection: Any, uid: str, act: Callable[[Any], object]) -> None:
    domain = _find(connection, uid)
    if domain is None:
        return
    try:
        act(domain)
    except LibvirtError as error:
        # The operation is not needed if the domain has ended meanwhile.
        if error.get_error_code() not in (libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_NO_DOMAIN):
            raise
