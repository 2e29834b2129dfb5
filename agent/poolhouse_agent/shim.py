"""The parent of a container's process. It writes the container's log, and its exit code into a file.

The shim survives the agent, so that a restart of the agent loses neither the application nor its exit code. It reads
one `ShimOrder` as JSON from its standard input, and inherits a locked file: the lock is held as long as the shim lives.
The shim's own output ends when it has started the process. SIGTERM is passed on to the container's process group;
after SIGUSR1 all processes of the container are killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from poolhouse_agent.log_files import LogWriter

CLONE_NEWNS = 0x20000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
START_ERROR = 128
READ_BYTES = 64 << 10

PROCESS_FILE, EXIT_FILE, LOCK_FILE = "process", "exit", "lock"
"""names in the directory of a run: the process IDs of shim and container, the exit code, and the lock"""


@dataclass(frozen=True)
class ShimOrder:
    directory: str
    command: list[str]
    environment: dict[str, str]
    working_dir: str
    log: str
    binds: list[tuple[str, str, bool]]
    """source, target, and whether the target is read-only"""
    lock: int
    """file descriptor of the locked file"""


class StartError(Exception):
    """The command cannot be started. The message says why."""


def main() -> None:
    order = ShimOrder(**json.load(sys.stdin))
    directory = Path(order.directory)
    os.set_inheritable(order.lock, False)
    _libc().prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    log = LogWriter(Path(order.log))
    received: list[int] = []
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, _: received.append(number))
    wakeup, wakeup_writer = os.pipe()
    os.set_blocking(wakeup_writer, False)
    signal.set_wakeup_fd(wakeup_writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)

    started_at = time.time()
    child, outputs, failures = _start(order)
    problem = os.read(failures, 4096).decode()
    os.close(failures)
    _write(directory / PROCESS_FILE, {"shim": os.getpid(), "container": child})
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # The agent waits for the end of the output.
    status = _serve(child, outputs, wakeup, received, log)
    log.close(datetime.now(UTC))
    end: dict[str, Any] = {"started_at": started_at, "finished_at": time.time(), **_exit(status)}
    if problem:
        end |= {"exit_code": START_ERROR, "reason": "StartError", "message": problem}
    _write(directory / EXIT_FILE, end)


def _start(order: ShimOrder) -> tuple[int, dict[int, str], int]:
    """Starts the command. Returns its process ID, its output by file descriptor, and what says why it cannot start."""
    output, errors, failures = os.pipe(), os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _execute(order, output[1], errors[1])
        except BaseException as error:
            os.write(failures[1], str(error).encode()[:4096])
        finally:
            os._exit(START_ERROR)
    for each in (output, errors, failures):
        os.close(each[1])
    return child, {output[0]: "stdout", errors[0]: "stderr"}, failures[0]


def _execute(order: ShimOrder, output: int, errors: int) -> None:
    os.setsid()
    _libc().prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(errors, 2)
    if order.binds:
        _mount(order.binds)
    try:
        os.chdir(order.working_dir or "/")
    except OSError as error:
        raise StartError(f"chdir to workingDir {order.working_dir!r}: {error.strerror}") from error
    try:
        os.execvpe(order.command[0], order.command, order.environment)
    except OSError as error:
        raise StartError(f"exec {order.command[0]!r}: {error.strerror}") from error


def _mount(binds: list[tuple[str, str, bool]]) -> None:
    """Makes the volumes visible to this container only."""
    libc = _libc()
    _check(libc.unshare(CLONE_NEWNS), "unshare")
    _check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount /")
    for source, target, read_only in binds:
        paths = source.encode(), target.encode(), None
        _check(libc.mount(*paths, MS_BIND, None), f"mount {target}")
        if read_only:
            _check(libc.mount(*paths, MS_BIND | MS_REMOUNT | MS_RDONLY, None), f"mount {target} read-only")


def _serve(child: int, outputs: dict[int, str], wakeup: int, received: list[int], log: LogWriter) -> int:
    """Passes on output and signals until the process and all its descendants have ended. Returns the wait status."""
    selector = selectors.DefaultSelector()
    for each in (*outputs, wakeup):
        selector.register(each, selectors.EVENT_READ)
    status: int | None = None
    while status is None or outputs:
        for key, _ in selector.select():
            descriptor = key.fd
            if data := os.read(descriptor, READ_BYTES):
                if descriptor in outputs:
                    log.write(outputs[descriptor], data, datetime.now(UTC))
            else:
                selector.unregister(descriptor)
                del outputs[descriptor]
        while received:
            _pass_on(received.pop(0), child)
        status = _reap(child, status)
        if status is not None:
            _kill_descendants()
    return status


def _pass_on(number: int, child: int) -> None:
    if number == signal.SIGUSR1:
        _kill_descendants()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL if number == signal.SIGUSR1 else signal.SIGTERM)


def _reap(child: int, status: int | None) -> int | None:
    with contextlib.suppress(ChildProcessError):
        while True:
            ended, found = os.waitpid(-1, os.WNOHANG)
            if ended == 0:
                break
            if ended == child:
                status = found
    return status


def _kill_descendants() -> None:
    """The descendants of a process that has ended become children of the shim."""
    for each in _children(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def _children(process: int) -> list[int]:
    try:
        found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return []
    return [each for child in map(int, found) for each in (*_children(child), child)]


def _exit(status: int) -> dict[str, int]:
    if os.WIFSIGNALED(status):
        return {"exit_code": 128 + os.WTERMSIG(status), "signal": os.WTERMSIG(status)}
    return {"exit_code": os.WEXITSTATUS(status)}


def _write(path: Path, content: Any) -> None:
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(content))
    draft.replace(path)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main()
