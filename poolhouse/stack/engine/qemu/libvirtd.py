"""Configures the process of each node: a libvirt daemon in session mode under an unprivileged user."""

import os
import shutil
import uuid
from pathlib import Path

from poolhouse.stack.components import Component, SocketProbe, StackError
from poolhouse.stack.engine.resources import NODE_NAMES
from poolhouse.stack.paths import DIR_VARIABLE, StackPaths

DAEMONS = ("libvirtd", "virtqemud")
"""the monolithic and the modular daemon; a machine has one of them"""


def libvirtd_components(paths: StackPaths, uid: int | None) -> tuple[Component, ...]:
    """Creates the directories of each node and returns its component. `uid` is the user of the daemons; None is the
    supervisor's user."""
    if uid is None and os.geteuid() == 0:
        raise StackError("nodes need an unprivileged user: a libvirtd that root runs is always the system's one")
    daemon = next((found for name in DAEMONS if (found := shutil.which(name, path=_path()))), None)
    if daemon is None:
        raise StackError(
            "libvirtd is missing: apt-get install libvirt-daemon libvirt-daemon-driver-qemu qemu-system-x86"
        )
    return tuple(_component(paths, name, daemon, uid) for name in NODE_NAMES)


def socket_of(runtime: Path, daemon: str = "libvirtd") -> Path:
    return runtime / "run/libvirt" / ("virtqemud-sock" if "virtqemud" in daemon else "libvirt-sock")


def find_socket(runtime: Path) -> Path:
    """Returns the path of a node's socket. The socket may not exist yet."""
    return next((path for each in DAEMONS if (path := socket_of(runtime, each)).exists()), socket_of(runtime))


def _component(paths: StackPaths, name: str, daemon: str, uid: int | None) -> Component:
    runtime, kept = paths.node_runtime(name), paths.node(name)
    # QEMU's monitor sockets are below CONFIG, and the path of a socket has at most 107 bytes. Therefore only CACHE is
    # below DIR. The next `up` defines the domains again.
    homes = {"RUNTIME": runtime / "run", "CONFIG": runtime / "config", "DATA": runtime / "data", "CACHE": kept}
    settings = runtime / "config/libvirt"
    for directory in (runtime, kept, *homes.values(), settings):
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o711)
        if uid is not None:
            os.chown(directory, uid, -1)
    identity = uuid.uuid5(uuid.NAMESPACE_URL, f"file://{paths.dir}#{name}")
    # Each daemon gets its own host UUID, because libvirt refuses to migrate within one host.
    for file in (settings / "libvirtd.conf", settings / "virtqemud.conf"):
        file.write_text(f'host_uuid = "{identity}"\n')
    # QEMU writes console logs itself, so that no virtlogd is needed.
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
    """Returns PATH with the sbin directories of daemons, which are only in the PATH of root."""
    return os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin:/usr/local/sbin"
