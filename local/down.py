"""Stops a stack: its supervisor, which stops its components, or the components of a supervisor that was killed."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
from pathlib import Path

from local.lock import holder
from local.paths import StackPaths
from local.processes import StackProcess, end_processes

SUPERVISOR_SECONDS = 90.0
LEFTOVER_SECONDS = 10.0


def down(paths: StackPaths) -> bool:
    """Returns when every process of the stack has ended; whether there was any."""
    supervised = _end_supervisor(paths.lock)
    leftovers = clean_up(paths)
    return supervised or bool(leftovers)


def clean_up(paths: StackPaths) -> list[StackProcess]:
    """End processes that a killed supervisor left behind, and remove what only a running stack has."""
    ended = end_processes(paths.dir, LEFTOVER_SECONDS)
    with contextlib.suppress(OSError):
        if (paths.runtime / "owner").exists():
            shutil.rmtree(paths.runtime, ignore_errors=True)
        (paths.dir / "runtime-dir").unlink()
    paths.endpoints.unlink(missing_ok=True)
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
        # It held the lock a moment ago and may have ended since: then its number is nobody's yet, or the lock is free.
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
