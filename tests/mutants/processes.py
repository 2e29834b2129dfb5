"""Processes that run the tests of one mutant: with a limit of time and memory, and nothing of them remains."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

MEMORY = 4 * 1024**3
"""limit for a mutant that appends to a list for ever"""
PR_SET_PDEATHSIG = 1
MYPY_CACHE = ".mypy_cache"

KILLED, SURVIVED, TIMED_OUT, MYPY = "killed", "survived", "timed out", "mypy"
"""outcomes of a mutant; mypy notices those of the last kind, and no test has to"""


def _limited(cpu_seconds: float, seconds: float) -> None:
    """Signals without a handler end the process, whatever the mutant does."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def in_a_fork(passes: Callable[[], bool], cpu_seconds: float, seconds: float) -> str:
    """What `passes` says in a copy of this process. An error of it is a mutant that was noticed."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            _limited(cpu_seconds, seconds)
            silent = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(silent, stream)
            status = 0 if passes() else 1
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    _end_group(pid)
    return _outcome(os.waitstatus_to_exitcode(status))


def in_a_process(root: Path, tests: Iterable[str], cpu_seconds: float, seconds: float) -> str:
    """Whether tests pass in a new Python, which imports the code below `root`."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    process = subprocess.Popen(
        command,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: _limited(cpu_seconds, seconds),  # noqa: PLW1509 (this process has one thread)
    )
    code = process.wait()
    _end_group(process.pid)
    return _outcome(code)


def check_types(root: Path, paths: Iterable[str]) -> bool:
    """Whether mypy finds no error in these files. It reads what they import from its cache."""
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(root / MYPY_CACHE), *paths]
    return subprocess.run(command, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0


def _end_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # nothing of it is left


def _outcome(code: int) -> str:
    if code in (-signal.SIGPROF, -signal.SIGALRM):
        return TIMED_OUT
    return SURVIVED if code == 0 else KILLED
