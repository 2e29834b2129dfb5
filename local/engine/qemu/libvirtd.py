"""The nodes' processes: for each a libvirt daemon of its own, in session mode, as an unprivileged user."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

from local.components import Component, SocketProbe, StackError
from local.paths import DIR_VARIABLE, StackPaths

NODE_NAMES = ("node-1", "node-2")

DAEMONS = ("libvirtd", "virtqemud")
"""whichever this machine has: one for everything, or QEMU's alone"""


def libvirtd_components(paths: StackPaths, uid: int | None) -> tuple[Component, ...]:
    """Prepares the directories of each node and returns its process; `uid` where that is not the supervisor's own."""
    if uid is None and os.geteuid() == 0:
        raise StackError("a libvirtd that root runs is always the system's one: nodes need an unprivileged uid")
    daemon = next((found for name in DAEMONS if (found := shutil.which(name, path=_path()))), None)
    if daemon is None:
        raise StackError("no libvirtd here: install libvirt-daemon, libvirt-daemon-driver-qemu and qemu-system-x86")
    return tuple(_component(paths, name, daemon, uid) for name in NODE_NAMES)


def socket_of(runtime: Path, daemon: str = "libvirtd") -> Path:
    """Where the node answers."""
    return runtime / "run/libvirt" / ("virtqemud-sock" if "virtqemud" in daemon else "libvirt-sock")


def find_socket(runtime: Path) -> Path:
    """The socket of a node that may not have started yet."""
    return next((path for each in DAEMONS if (path := socket_of(runtime, each)).exists()), socket_of(runtime))


def _component(paths: StackPaths, name: str, daemon: str, uid: int | None) -> Component:
    runtime, kept = paths.node_runtime(name), paths.node(name)
    # QEMU's monitor sockets lie below the configuration, and a socket's path ends at 107 bytes: only what is a cache
    # may be where DIR is. A stack's next `up` defines its domains anew.
    homes = {"RUNTIME": runtime / "run", "CONFIG": runtime / "config", "DATA": runtime / "data", "CACHE": kept}
    settings = runtime / "config/libvirt"
    for directory in (runtime, kept, *homes.values(), settings):
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o711)
        if uid is not None:
            os.chown(directory, uid, -1)
    identity = uuid.uuid5(uuid.NAMESPACE_URL, f"file://{paths.dir}#{name}")
    # Two daemons on one machine must not think they are one host: libvirt refuses to migrate to itself.
    for file in (settings / "libvirtd.conf", settings / "virtqemud.conf"):
        file.write_text(f'host_uuid = "{identity}"\n')
    # Consoles are logged by QEMU itself: virtlogd would be one more process that has to be there.
    (settings / "qemu.conf").write_text('stdio_handler = "file"\nsecurity_driver = "none"\n')
    env = {f"XDG_{kind}_{'DIR' if kind == 'RUNTIME' else 'HOME'}": str(path) for kind, path in homes.items()}
    return Component(
        name,
        (daemon,),
        env={"PATH": _path(), "HOME": str(runtime), DIR_VARIABLE: str(paths.dir), **env},
        ready=SocketProbe(socket_of(runtime, daemon)),
        uid=uid,
        cwd=kept,
    )


def _path() -> str:
    """Daemons are in sbin, which is on root's path and nobody else's."""
    return os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin:/usr/local/sbin"
