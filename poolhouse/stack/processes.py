"""Starts, finds and ends the processes of a stack.

The kernel may give the PID of a process that has ended to a new process. Signals are therefore sent through a pidfd, or
to a process that is not reaped yet.
"""

import asyncio
import contextlib
import os
import pwd
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poolhouse.stack.lock import holder
from poolhouse.stack.paths import DIR_VARIABLE, StackPaths

KILL_SECONDS = 5.0
"""limit for a process to end after SIGKILL, which a disk write can delay"""

SUPERVISOR_SECONDS = 90.0
LEFTOVER_SECONDS = 10.0
PROC = Path("/proc")


class Child:
    """A process in its own session, so that Ctrl-C in a terminal signals only the supervisor."""

    def __init__(
        self, command: tuple[str, ...], *, env: Mapping[str, str], cwd: Path, log: Path, uid: int | None
    ) -> None:
        # The output goes to a file, because a component must keep running after its supervisor is killed.
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **as_user(uid),
            )
        self.pid = self._process.pid
        self._pidfd = os.pidfd_open(self.pid)
        self._loop = asyncio.get_running_loop()
        self._exit: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(self._pidfd, self._reap)

    async def wait(self) -> int:
        """Waits until the process and its process group have ended. Returns the exit code, negative for a signal."""
        return await asyncio.shield(self._exit)

    async def end(self, grace_seconds: float) -> int:
        """Sends SIGTERM, and SIGKILL after the grace period; returns the exit code."""
        self._send(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                return await self.wait()
        self._send(signal.SIGKILL)
        return await self.wait()

    def _send(self, number: signal.Signals) -> None:
        if not self._exit.done():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def _reap(self) -> None:
        self._loop.remove_reader(self._pidfd)
        # The group is killed before the process is reaped, because until then no other group can have its ID.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        code = self._process.wait()
        os.close(self._pidfd)
        self._exit.set_result(code)


@dataclass(frozen=True)
class StackProcess:
    pid: int
    command: str


def find_processes(directory: Path) -> Iterator[StackProcess]:
    """Yields the processes whose environment names the directory. Excludes this process and its ancestors, because a
    user may have set the variable in the shell."""
    variable = os.fsencode(f"{DIR_VARIABLE}={directory}")
    ancestors = set(_ancestry(os.getpid()))
    for entry in PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) in ancestors:
            continue
        try:
            if variable in (entry / "environ").read_bytes().split(b"\0"):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
                yield StackProcess(int(entry.name), command)
        except OSError:
            continue  # The process has ended or belongs to another user.


def end_processes(directory: Path, grace_seconds: float) -> list[StackProcess]:
    """Ends every process of the stack with SIGTERM, after the grace period with SIGKILL. Returns the processes. The
    search is repeated, because a process that is ending may start another process."""
    ended: dict[int, StackProcess] = {}
    deadline = time.monotonic() + grace_seconds
    while found := list(find_processes(directory)):
        ended |= {process.pid: process for process in found}
        late = time.monotonic() >= deadline
        _end(found, signal.SIGKILL if late else signal.SIGTERM, KILL_SECONDS if late else deadline - time.monotonic())
        if late and time.monotonic() > deadline + KILL_SECONDS:
            break
    return list(ended.values())


def _end(processes: Iterable[StackProcess], number: signal.Signals, wait_seconds: float) -> None:
    poll = select.poll()
    waiting = set()
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            fd = os.pidfd_open(process.pid)
            waiting.add(fd)
            poll.register(fd, select.POLLIN)
            signal.pidfd_send_signal(fd, number)
    deadline = time.monotonic() + wait_seconds
    while waiting and (left := deadline - time.monotonic()) > 0:
        for fd, _ in poll.poll(left * 1000):
            poll.unregister(fd)
            os.close(fd)
            waiting.discard(fd)
    for fd in waiting:
        os.close(fd)


def _ancestry(pid: int) -> Iterator[int]:
    while pid > 0:
        yield pid
        try:
            status = (PROC / str(pid) / "stat").read_text()
        except OSError:
            return
        pid = int(status.rpartition(")")[2].split()[1])


def as_user(uid: int | None) -> dict[str, Any]:
    """Returns the arguments of `subprocess` that run a command as the user; empty for the current user."""
    return {} if uid is None else {"user": uid, "group": _group_of(uid), "extra_groups": []}


def _group_of(uid: int) -> int:
    """Returns the user's primary group, or the UID as GID if the password database does not contain the user."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return uid


def stop_stack(paths: StackPaths) -> bool:
    """Ends every process of the stack and waits for them. Returns False if no process was running."""
    had_supervisor = _end_supervisor(paths.lock)
    return bool(clean_up(paths)) or had_supervisor


def clean_up(paths: StackPaths) -> list[StackProcess]:
    """Ends processes that a killed supervisor left behind, and removes the files that exist only while a stack runs."""
    ended = end_processes(paths.dir, LEFTOVER_SECONDS)
    with contextlib.suppress(OSError):
        if (paths.runtime / "owner").exists():
            shutil.rmtree(paths.runtime, ignore_errors=True)
        (paths.dir / "runtime-dir").unlink()
    for file in (paths.endpoints, paths.prometheus):
        file.unlink(missing_ok=True)
    return ended


def _end_supervisor(lock: Path) -> bool:
    pid = holder(lock)
    if pid is None:
        return False
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        # If the process has ended since the first check, the lock is free or another process holds it.
        if holder(lock) == pid:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            if not _gone(handle, SUPERVISOR_SECONDS):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                _gone(handle, SUPERVISOR_SECONDS)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)
    return True


def _gone(handle: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
