"""One supervisor for each DIR. The kernel releases the lock with its holder, however that one ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local.components import StackError

LOCKS = Path("/proc/locks")
ASKED_SECONDS = 1.0
"""Far longer than `holder` keeps a lock that it finds free, which must not pass for a stack."""


@contextmanager
def hold(lock: Path) -> Iterator[None]:
    """Hold the lock, with our pid inside. Raises `Broken` when another has it."""
    fd = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + ASKED_SECONDS
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
    """The pid of who holds the lock now."""
    try:
        fd = os.open(lock, os.O_RDWR)
    except PermissionError:
        return holder_in_proc(lock)
    except OSError:
        return None
    try:
        # With others who ask at the same moment: nobody takes them for a stack.
        return None if _locked(fd, fcntl.LOCK_SH) else _pid(lock)
    finally:
        os.close(fd)


def holder_in_proc(lock: Path) -> int | None:
    """By the kernel, which tells everybody who holds a lock. Raises `PermissionError` where not even the directory may
    be looked into."""
    inode = str(lock.stat().st_ino)
    for line in LOCKS.read_text().splitlines():
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
