"""Which process is behind a port, and how to kill it and start it again as it was."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    pid: int
    port: int
    command: tuple[str, ...]
    directory: str
    environment: dict[str, str]

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
                    return cls._read(process, port)
            except OSError:
                continue
        raise LookupError(f"no process listens on port {port}")

    @classmethod
    def _read(cls, process: Path, port: int) -> Process:
        command = (process / "cmdline").read_text().rstrip("\0").split("\0")
        pairs = (process / "environ").read_text().rstrip("\0").split("\0")
        environment = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        return cls(int(process.name), port, tuple(command), os.readlink(process / "cwd"), environment)

    def kill(self) -> None:
        """Returns when its socket is closed, which is a little after the signal. By then another one may have it."""
        os.kill(self.pid, signal.SIGKILL)
        while self._lives():
            time.sleep(0.02)

    def again(self, *, patience_seconds: float) -> subprocess.Popen[bytes] | None:
        """Starts it as it was, unless whoever supervises it did so within the patience."""
        end = time.monotonic() + patience_seconds
        while time.monotonic() < end:
            if self._answers():
                return None
            time.sleep(0.1)
        silent = subprocess.DEVNULL
        child = subprocess.Popen(self.command, cwd=self.directory, env=self.environment, stdout=silent, stderr=silent)
        atexit.register(child.kill)  # whoever started the first one knows nothing of this one
        return child

    def _lives(self) -> bool:
        """What its parent has not heard of yet has no sockets any more, once the last of its threads has ended."""
        process = Path(f"/proc/{self.pid}")
        try:
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
            return state not in "ZX" or len(list((process / "task").iterdir())) > 1
        except OSError:
            return False

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
