"""Locks files: DIR, so that only one supervisor uses it, and a directory of the cache while a process fills it.

The kernel releases the lock whenever the process ends.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from poolhouse.service.user_cache import writing_cache
from poolhouse.stack.components import Echo, StackError

PROC_LOCKS = Path("/proc/locks")
WAIT_SECONDS = 1.0
"""`holder` takes a free lock for a moment. This time is much longer, so that no process takes it for a holder."""


@contextmanager
def locked(lock: Path, busy: Callable[[], None]) -> Iterator[int]:
    """Holds the lock, and yields its file descriptor. If another process holds it, calls `busy`, which raises an error,
    or returns to wait for the other process."""
    fd = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while not _locked(fd, fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                busy()
                fcntl.flock(fd, fcntl.LOCK_EX)
                break
            time.sleep(0.02)
        yield fd
    finally:
        os.close(fd)


@contextmanager
def hold(lock: Path) -> Iterator[None]:
    """Holds the lock and writes this process's PID into the file. Raises `StackError` if the lock is not free."""

    def fail() -> None:
        raise StackError(f"a stack is already running in {lock.parent} (pid {_pid(lock)})")

    with locked(lock, fail) as fd:
        os.truncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield


@contextmanager
def prepare_alone(directory: Path, what: str, echo: Echo) -> Iterator[None]:
    """Waits while another process fills the directory: two builds side by side take twice as long. Raises `StackError`
    if the directory cannot be written."""
    with writing_cache(StackError, directory.parent):
        directory.parent.mkdir(parents=True, exist_ok=True)
        with locked(
            directory.with_name(f".{directory.name}.lock"),
            lambda: echo(f"waiting for another process that prepares {what}"),
        ):
            yield


def holder(lock: Path) -> int | None:
    """Returns the PID of the process that holds the lock; None if the lock is free."""
    try:
        fd = os.open(lock, os.O_RDWR)
    except PermissionError:
        return holder_in_proc(lock)
    except OSError:
        return None
    try:
        # With a shared lock, concurrent callers do not block each other.
        return None if _locked(fd, fcntl.LOCK_SH) else _pid(lock)
    finally:
        os.close(fd)


def holder_in_proc(lock: Path) -> int | None:
    """Finds the holder in /proc/locks, which every user may read. Raises `PermissionError` without access to DIR."""
    inode = str(lock.stat().st_ino)
    for line in PROC_LOCKS.read_text().splitlines():
        words = line.split()
        if words[1] == "FLOCK" and words[5].rpartition(":")[2] == inode:
            return int(words[4])
    return None


def _locked(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _pid(lock: Path) -> int | None:
    text = lock.read_text().strip()
    return int(text) if text.isdigit() else None
