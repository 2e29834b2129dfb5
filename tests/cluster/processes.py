"""Which process is behind a port, and how to kill it."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from poolhouse.stack.paths import StackPaths
from tests.waiting import wait_until


@dataclass(frozen=True)
class Process:
    pid: int

    @classmethod
    def listening_on(cls, port: int) -> Process:
        """Waits for one, as a server may just be starting again."""
        return cls(wait_until(lambda: _listening_on(port)))

    def kill(self) -> None:
        """Returns when it is no more, and with it its socket."""
        os.kill(self.pid, signal.SIGKILL)
        wait_until(self._dead)

    def _dead(self) -> bool:
        """What its parent has not heard of yet has no sockets any more, once the last of its threads has ended."""
        process = Path(f"/proc/{self.pid}")
        try:
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
            return state in "ZX" and len(list((process / "task").iterdir())) <= 1
        except OSError:
            return True


def kill_controllers(paths: StackPaths) -> int:
    """Returns the process ID. The supervisor of the stack starts them again."""
    endpoint = json.loads((paths.dir / "endpoints.json").read_text())["controllers"]
    process = Process.listening_on(int(endpoint.rpartition(":")[2]))
    process.kill()
    return process.pid


def _listening_on(port: int) -> int | None:
    inodes = {
        line.split()[9]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(table).read_text().splitlines()[1:]
        if line.split()[3] == "0A" and int(line.split()[1].rsplit(":", 1)[1], 16) == port
    }
    sockets = {f"socket:[{inode}]" for inode in inodes}
    return next((int(each.name) for each in Path("/proc").glob("[0-9]*") if sockets & _open_files(each)), None)


def _open_files(process: Path) -> set[str]:
    """A busy server closes some while they are read."""
    found = set()
    with suppress(OSError):
        for file in (process / "fd").iterdir():
            with suppress(OSError):
                found.add(os.readlink(file))
    return found
