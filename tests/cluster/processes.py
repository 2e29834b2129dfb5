"""Which process is behind a port, and how to kill it."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import wait_until


@dataclass(frozen=True)
class Process:
    pid: int

    @classmethod
    def listening_on(cls, port: int) -> Process:
        inodes = {
            line.split()[9]
            for table in ("/proc/net/tcp", "/proc/net/tcp6")
            for line in Path(table).read_text().splitlines()[1:]
            if line.split()[3] == "0A" and int(line.split()[1].rsplit(":", 1)[1], 16) == port
        }
        sockets = {f"socket:[{inode}]" for inode in inodes}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if sockets & {os.readlink(file) for file in (process / "fd").iterdir()}:
                    return cls(int(process.name))
            except OSError:
                continue
        raise LookupError(f"no process listens on port {port}")

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
