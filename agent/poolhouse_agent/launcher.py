"""Starts the processes of containers under shims, finds them again after a restart of the agent, and stops them."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from poolhouse_agent.application import Application, Container
from poolhouse_agent.log_files import last_lines, remove_old_logs
from poolhouse_agent.podman import Podman, Refused, environment_text
from poolhouse_agent.shim import EXIT_FILE, LOCK_FILE, PROCESS_FILE, ShimOrder
from poolhouse_agent.state import UNKNOWN, End
from poolhouse_agent.volumes import Volumes

INHERITED = ("PATH", "HOME", "LANG", "TZ")
"""variables that a container without an image gets from the agent, unless it has its own"""
FIND_SECONDS, FIND_PAUSE_SECONDS = 5.0, 0.02


@dataclass(frozen=True)
class Run:
    """A run of a container whose shim is alive."""

    directory: Path
    log: Path
    shim: int
    """process ID"""
    pidfd: int


class Launcher:
    def __init__(self, runtime: Path, state: Path, podman: Podman) -> None:
        self._runtime, self._state, self._podman = runtime, state, podman
        self._volumes = Volumes(runtime, state)
        self._pulls: set[asyncio.Task[None]] = set()

    def prepare(self, application: Application) -> None:
        """Creates the volumes, and removes what an earlier application has left."""
        self.clean_up()
        shutil.rmtree(self._state / "logs", ignore_errors=True)
        self._volumes.create(application)
        if application.registry_auth:
            _write_private(self._auth_file, application.registry_auth)

    def clean_up(self) -> None:
        self._volumes.remove()
        shutil.rmtree(self._runtime / "runs", ignore_errors=True)
        self._auth_file.unlink(missing_ok=True)

    async def start(self, application: Application, container: Container, number: int) -> Run:
        """Starts the run with this number, the count of restarts. Raises Refused."""
        binds = self._volumes.binds(application, container)
        directory, log = self._directory(container, number), self.log(container, number)
        shutil.rmtree(directory, ignore_errors=True)
        if container.image:
            await self._provide_image(application, container)
        elif binds and os.geteuid() != 0:
            message = "volumeMounts of a container without an image need an agent that runs as root"
            raise Refused("CreateContainerConfigError", message)
        directory.mkdir(mode=0o700, parents=True)
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_old_logs(log.parent, number)
        lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            run, begun = self._spawn(self._order(application, container, directory, log, binds, lock), lock)
        finally:
            os.close(lock)
        try:
            await _readable(begun)
        finally:
            os.close(begun)
        return run

    def cancel_pulls(self) -> None:
        for pull in self._pulls:
            pull.cancel()

    async def _provide_image(self, application: Application, container: Container) -> None:
        pull = asyncio.create_task(self._podman.provide_image(application, container, self._auth_file))
        self._pulls.add(pull)
        try:
            await asyncio.wait([pull])
        finally:
            self._pulls.discard(pull)
            pull.cancel()
        if pull.cancelled():
            raise Refused("Terminated", "the application was terminated before the container started")
        pull.result()

    def log(self, container: Container, number: int) -> Path:
        return self._state / "logs" / container.name / f"{number}.log"

    async def find(self, application: Application, container: Container, number: int) -> Run | End | None:
        """The run that an earlier agent has started; None if it has not come so far."""
        directory, log = self._directory(container, number), self.log(container, number)
        if not (directory / LOCK_FILE).exists():
            return None
        for _ in range(int(FIND_SECONDS / FIND_PAUSE_SECONDS)):
            if not _is_locked(directory / LOCK_FILE):
                was_started = (directory / PROCESS_FILE).exists()
                return await self._end(application, container, directory, log) if was_started else None
            if (directory / PROCESS_FILE).exists():
                shim = json.loads((directory / PROCESS_FILE).read_text())["shim"]
                with suppress(ProcessLookupError):
                    return Run(directory, log, shim, os.pidfd_open(shim))
            await asyncio.sleep(FIND_PAUSE_SECONDS)
        return None

    async def wait(self, application: Application, container: Container, run: Run) -> End:
        """Waits for the end of the run, whether or not its shim is a child of this process."""
        try:
            await _readable(run.pidfd)
        finally:
            os.close(run.pidfd)
        _reap(run.shim)
        return await self._end(application, container, run.directory, run.log)

    async def _end(self, application: Application, container: Container, directory: Path, log: Path) -> End:
        """Reads how the run has ended. If the shim has not seen the end of podman's container, removes the container,
        which may still run."""
        end = read_end(directory, log)
        if not container.image or (end.reason != UNKNOWN and end.exit_code):
            return end
        if end.reason != UNKNOWN:
            # A signal that comes before podman has started the container ends podman itself, with exit code 0.
            if not await self._podman.waits_for_its_start(application, container):
                return end
            end = replace(end, exit_code=137, reason=UNKNOWN, message="it was stopped before podman had started it")
        await self._podman.remove(application, container)
        return end

    async def stop(self, application: Application, container: Container, run: Run, kill: bool) -> None:
        if kill and container.image:
            await self._podman.kill(application, container)
            return
        with suppress(ProcessLookupError, OSError):
            signal.pidfd_send_signal(run.pidfd, signal.SIGUSR1 if kill else signal.SIGTERM)

    def execution(
        self, application: Application, container: Container, run: Run, command: Sequence[str]
    ) -> tuple[list[str], dict[str, str] | None]:
        """The command, with its environment, that runs another command in the container."""
        if container.image:
            return self._podman.execution(application, container, command), None
        environment = _environment(application, container)
        if not container.mounts:
            return [*command], environment
        process = json.loads((run.directory / PROCESS_FILE).read_text())["container"]
        return ["nsenter", "-t", str(process), "-m", "-w", *command], environment

    @property
    def _auth_file(self) -> Path:
        return self._runtime / "auth.json"

    def _directory(self, container: Container, number: int) -> Path:
        return self._runtime / "runs" / container.name / str(number)

    def _order(
        self,
        application: Application,
        container: Container,
        directory: Path,
        log: Path,
        binds: list[tuple[str, str, bool]],
        lock: int,
    ) -> ShimOrder:
        if not container.image:
            self._volumes.create_mount_points(binds)
            command, environment = [*container.command, *container.args], _environment(application, container)
            return ShimOrder(str(directory), command, environment, container.working_dir, str(log), binds, lock)
        variables = directory / "environment"
        _write_private(variables, environment_text(container).encode())
        command = self._podman.command(application, container, variables, binds)
        return ShimOrder(str(directory), command, dict(os.environ), "", str(log), [], lock)

    def _spawn(self, order: ShimOrder, lock: int) -> tuple[Run, int]:
        """Starts the shim. The file descriptor ends when the shim has started the container's process."""
        errors = os.open(Path(order.directory) / "errors", os.O_WRONLY | os.O_CREAT, 0o600)
        reader, writer = os.pipe()
        begun, output = os.pipe()
        os.set_inheritable(lock, True)
        files = [(os.POSIX_SPAWN_DUP2, each, number) for number, each in enumerate((reader, output, errors))]
        command = [sys.executable, "-m", "poolhouse_agent.shim"]
        try:
            shim = os.posix_spawn(sys.executable, command, os.environ, file_actions=files, setsid=True)
        finally:
            for each in (reader, output, errors):
                os.close(each)
        with open(writer, "wb") as pipe, suppress(BrokenPipeError):  # `wait` says that the shim has ended.
            pipe.write(json.dumps(asdict(order)).encode())
        return Run(Path(order.directory), Path(order.log), shim, os.pidfd_open(shim)), begun


async def _readable(descriptor: int) -> None:
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)


def read_end(directory: Path, log: Path) -> End:
    """Reads how the run has ended from the shim's files. A shim that was killed has left none, so that the exit code is
    not known."""
    try:
        end = End(**json.loads((directory / EXIT_FILE).read_text()))
    except (OSError, ValueError):
        when = directory.stat().st_mtime if directory.exists() else 0.0
        return End(137, when, reason=UNKNOWN, message="the container's exit code is not known")
    if end.exit_code and not end.message:
        return End(**{**asdict(end), "message": last_lines(log)})
    return end


def _reap(process: int) -> None:
    with suppress(ChildProcessError):  # An earlier agent has started the shim.
        os.waitpid(process, os.WNOHANG)


def _environment(application: Application, container: Container) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return {**inherited, "HOSTNAME": application.name, **container.environment}


def _is_locked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _write_private(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
