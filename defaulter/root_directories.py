"""Manages the root directories of the embedded libvirts: one for each worker.

Their paths are short enough for libvirt's sockets, and accessible to the user of the workers.
"""

import os
import shutil
import signal
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

_SOCKET = "/lib/qemu/qmp-XXXXXX/qmp.monitor"
_MAX_SOCKET_PATH_BYTES = 107
_WORKER = "/w000"
_CACHE = Path("cache/qemu/capabilities")
_IN_MEMORY = "/dev/shm"


_HOMES = ("HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")


def environment(root: Path) -> dict[str, str]:
    """Environment variables that confine a libvirt to its root and prevent daemons for networks and storage."""
    # libvirt warns about each program that it may not probe, for example Debian's script qemu-system-i386.
    quiet = {"LIBVIRT_LOG_FILTERS": "4:qemu_capabilities"}
    return {**dict.fromkeys(_HOMES, str(root)), "LIBVIRT_AUTOSTART": "0", **quiet}


class RootDirectories:
    """Creates and removes the directories below one base.

    Later workers get a copy of the first probe of QEMU, because a probe takes seconds and a copy milliseconds.
    """

    def __init__(self, base: Path | None, uid: int | None, gid: int | None, warm: Path | None = None) -> None:
        self._uid, self._gid = uid, gid
        self._own = base is None or not _fits(base) or not reachable(base, uid)
        self.base = Path(tempfile.mkdtemp(prefix="ph-", dir=scratch())) if self._own else Path(base or "")
        self.base.mkdir(parents=True, exist_ok=True)
        if self._own:
            self.base.chmod(0o711)
        self._warm = warm or self.base / "warm"

    def make(self, slot: int) -> Path:
        """An empty root for one worker, with the known capabilities of QEMU."""
        root = self.base / f"w{slot}"
        shutil.rmtree(root, ignore_errors=True)
        cache = root / _CACHE
        cache.mkdir(parents=True)
        root.chmod(0o700)
        for known in self._warm.glob("*.xml") if self._warm.is_dir() else ():
            shutil.copy2(known, cache / known.name)
        if self._uid is not None and self._gid is not None and os.geteuid() == 0:
            for path in (root, *root.rglob("*")):
                os.chown(path, self._uid, self._gid)
        return root

    def learn(self, slot: int) -> None:
        """Keeps the capabilities that a worker has probed. An incomplete copy never replaces a complete one."""
        self._warm.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix="warm-", dir=self._warm.parent))
        for known in (self.base / f"w{slot}" / _CACHE).glob("*.xml"):
            shutil.copy2(known, fresh / known.name)
        shutil.rmtree(self._warm, ignore_errors=True)
        fresh.rename(self._warm)

    def end_strays(self, slot: int) -> None:
        """Kills the emulators of a killed worker, which have the worker's root in their arguments."""
        marker = f"{self.base}/w{slot}/".encode()
        for entry in _processes():
            if int(entry.name) != os.getpid():
                with suppress(OSError):
                    if marker in (entry / "cmdline").read_bytes():
                        os.kill(int(entry.name), signal.SIGKILL)

    def remove(self) -> None:
        if self._own:
            shutil.rmtree(self.base, ignore_errors=True)
            return
        for path in self.base.glob("w*"):
            shutil.rmtree(path, ignore_errors=True)


def _processes() -> list[Path]:
    """The directories of processes; empty if /proc cannot be read, for example without free file descriptors."""
    with suppress(OSError):
        return [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return []


def scratch() -> str:
    """A directory in memory if there is one, because libvirt waits for the disk in each define."""
    return _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK | os.X_OK) else tempfile.gettempdir()


def _fits(base: Path) -> bool:
    """Whether libvirt can name a socket below the base to QEMU, whose options end a path at a comma."""
    return "," not in str(base) and len(os.fsencode(base)) + len(_WORKER) + len(_SOCKET) <= _MAX_SOCKET_PATH_BYTES


def reachable(base: Path, uid: int | None) -> bool:
    """Whether the user may enter every directory of the path."""
    if uid is None or os.geteuid() != 0:
        return True
    for path in (base, *base.parents):
        with suppress(OSError):
            found = path.stat()
            if found.st_uid != uid and not found.st_mode & stat.S_IXOTH:
                return False
    return True
