"""`poolhouse` and `kubectl poolhouse` in processes that are forked from one which has imported the commands.

A new process of Python needs ten times the processor time of a command for its imports. The programs that a shell finds
hand their arguments, environment and standard streams to that process, and exit with the code of the command.
`kubectl poolhouse` does not start kubectl first, which would do no more than look for the plugin in PATH.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from select import select

from poolhouse.cli.main import COMMANDS, main
from poolhouse.runtime.kubernetes_config import import_config

MAX_REPORT_BYTES = 65536
PROGRAMS = ("poolhouse", "kubectl-poolhouse")
PROGRAM = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"."], [0, 1, 2])
    server.sendall(json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode())
    server.shutdown(socket.SHUT_WR)
    sys.exit(int(server.recv(9) or 1))
"""
KUBECTL = """#!/bin/sh
[ "$1" = poolhouse ] || exec {kubectl} "$@"
shift
exec {directory}/kubectl-poolhouse "$@"
"""


@contextmanager
def forked_commands(directory: Path, *commands: str) -> Iterator[Path]:
    """Yields the directory with the programs, for PATH. The process imports these commands before the first fork."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")  # the kernel chooses an address
        listener.listen(64)
        directory.mkdir()
        for name in PROGRAMS:
            (directory / name).write_text(PROGRAM.format(python=sys.executable, address=listener.getsockname()))
            (directory / name).chmod(0o755)
        (directory / "kubectl").write_text(KUBECTL.format(kubectl=shutil.which("kubectl"), directory=directory))
        (directory / "kubectl").chmod(0o755)
        command = [sys.executable, "-m", "tests.docs.forked_commands", str(listener.fileno()), *commands]
        with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[listener.fileno()]) as process:
            yield directory
            process.communicate()  # closes its standard input, after which it exits
            assert process.returncode == 0


def serve(listener: socket.socket, commands: list[str]) -> None:
    """Forks a process for each connection, until the standard input ends.

    What a command imports only when it runs is imported here after its first run, so that no later one does it again.
    """
    import_config()
    for name in commands:
        importlib.import_module(COMMANDS[name].target.partition(":")[0])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel removes processes that have ended
    imported, reports = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    standard_input = sys.stdin.fileno()
    files = [listener.fileno(), imported.fileno(), standard_input]
    while standard_input not in (ready := select(files, [], [])[0]):
        if imported.fileno() in ready:
            for module in json.loads(imported.recv(MAX_REPORT_BYTES)):
                importlib.import_module(module)
        if listener.fileno() in ready:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                run(connection, reports)
            connection.close()


def run(connection: socket.socket, reports: socket.socket) -> None:
    """Runs one command in this process, which ends with it, and tells the modules that it has imported."""
    known = set(sys.modules)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    sys.argv, directory, environment = json.loads(b"".join(iter(partial(connection.recv, 65536), b"")))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    code = 1
    try:
        main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        for output in (sys.stdout, sys.stderr):
            with suppress(BrokenPipeError):
                output.flush()
        connection.send(str(code).encode())
        modules = [name for name in sys.modules if name not in known]  # in the order of their imports
        with suppress(OSError):  # it may have exited after the last command
            reports.send(json.dumps(modules).encode())
        os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
