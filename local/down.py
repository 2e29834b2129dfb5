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
    """Returns when every process of the stack has ended; True if there was any."""
    had_supervisor = _end_supervisor(paths.lock)
    return bool(clean_up(paths)) or had_supervisor


def clean_up(paths: StackPaths) -> list[StackProcess]:
    """Ends the processes that a killed supervisor left behind, and removes the files of a running stack."""
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
        # The process may have ended since the first check. Then the lock is free, or another process has it.
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
