"""The lock that allows one supervisor for each DIR. The kernel releases it when the holder ends, however it ends."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local.components import StackError

PROC_LOCKS = Path("/proc/locks")
WAIT_SECONDS = 1.0
"""far longer than `holder` keeps a free lock, which must not count as a running stack"""


@contextmanager
def hold(lock: Path) -> Iterator[None]:
    """Holds the lock, with the PID of this process inside. Raises `StackError` if another process holds it."""
    fd = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while not _locked(fd, fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                raise StackError(f"a stack is already running in {lock.parent} (pid {_pid(lock)})")
            time.sleep(0.02)
        os.truncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)


def holder(lock: Path) -> int | None:
    """The PID of the process that holds the lock; None if it is free."""
    try:
        fd = os.open(lock, os.O_RDWR)
    except PermissionError:
        return holder_in_proc(lock)
    except OSError:
        return None
    try:
        # A shared lock, so that callers at the same moment do not block each other.
        return None if _locked(fd, fcntl.LOCK_SH) else _pid(lock)
    finally:
        os.close(fd)


def holder_in_proc(lock: Path) -> int | None:
    """The holder by /proc/locks, which every user may read. Raises `PermissionError` for an unreadable directory."""
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
