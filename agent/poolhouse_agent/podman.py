"""Containers with an image, which podman runs in the network of the VM."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from poolhouse_agent.application import Application, Container
from poolhouse_agent.volumes import Bind

PULL_SECONDS, COMMAND_SECONDS = 1800.0, 60.0
ABSENT, FAILED = 1, 125
"""exit codes of podman: the store does not have the image, and podman could not do its work"""
NOT_STARTED = ("configured", "created", "initialized")
"""states of a container without a process of its own"""
SHOWN_IMAGES = 10


class Refused(Exception):
    """No process can be started now. The reason is that of a waiting container."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Done:
    """A command of podman that has ended."""

    code: int
    output: str
    problem: str
    """the last line of its errors"""


@dataclass(frozen=True)
class Podman:
    program: str | None
    """None if podman is not installed"""
    cgroups: str = "enabled"
    """a value of `podman run --cgroups`"""

    @classmethod
    def find(cls, cgroups: str) -> Podman:
        return cls(shutil.which("podman"), cgroups)

    async def provide_image(self, application: Application, container: Container, auth_file: Path) -> None:
        """Pulls the image if the container's policy says so. Raises Refused."""
        if self.program is None:
            message = f"image {container.image!r} needs podman in this VM: install it in the image of the pool's VMs"
            raise Refused("ImageNotSupported", message)
        if container.pull_policy != "Always":
            found = await self._run("image", "exists", container.image)
            if found.code == 0:
                return
            if found.code != ABSENT:
                raise Refused("ImageInspectError", f"podman cannot look for image {container.image!r}: {found.problem}")
            if container.pull_policy == "Never":
                message = f"image {container.image!r} must not be pulled, and {await self._store()}"
                raise Refused("ErrImageNeverPull", message)
        options = ["--authfile", str(auth_file)] if application.registry_auth else []
        pulled = await self._run("pull", "--quiet", *options, container.image, seconds=PULL_SECONDS)
        if pulled.code != 0:
            raise Refused("ErrImagePull", pulled.problem)

    async def _store(self) -> str:
        """Whose store podman uses, where it is, and what it has: an image may be in the store of another user."""
        place = await self._run("info", "--format", "{{.Store.GraphRoot}}")
        listed = await self._run("images", "--format", "{{.Repository}}:{{.Tag}}")
        return store_text(os.geteuid(), place.output.strip(), listed.output.split())

    def command(
        self, application: Application, container: Container, environment_file: Path, binds: Sequence[Bind]
    ) -> list[str]:
        """The command that runs the container in the foreground, and ends with its exit code."""
        found = [self.program or "podman", "run", "--rm", "--replace", "--pull", "never", "--network", "host"]
        found += ["--log-driver", "none", "--cgroups", self.cgroups, "--name", name_of(application, container)]
        found += ["--env-file", str(environment_file)]
        for name, value in container.environment.items():
            if "\n" in value:  # A file of variables cannot have such a value.
                found += ["--env", f"{name}={value}"]
        for source, target, read_only in binds:
            found += ["--volume", f"{source}:{target}:{'ro' if read_only else 'rw'}"]
        if container.working_dir:
            found += ["--workdir", container.working_dir]
        if container.command:
            found += ["--entrypoint", json.dumps(container.command)]
        return [*found, container.image, *container.args]

    async def kill(self, application: Application, container: Container) -> None:
        await self._run("kill", "--signal", "KILL", name_of(application, container))

    async def waits_for_its_start(self, application: Application, container: Container) -> bool:
        """Whether podman has created the container and not started it."""
        name = name_of(application, container)
        found = await self._run("container", "inspect", "--format", "{{.State.Status}}", name)
        return found.code == 0 and found.output.strip() in NOT_STARTED

    async def remove(self, application: Application, container: Container) -> None:
        await self._run("rm", "--force", "--ignore", name_of(application, container))

    def execution(self, application: Application, container: Container, command: Sequence[str]) -> list[str]:
        return [self.program or "podman", "exec", name_of(application, container), *command]

    async def _run(self, *arguments: str, seconds: float = COMMAND_SECONDS) -> Done:
        process = await asyncio.create_subprocess_exec(
            self.program or "podman",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(seconds):
                output, errors = await process.communicate()
        except TimeoutError:
            return Done(FAILED, "", f"podman {arguments[0]} has not ended in {seconds:g} s")
        finally:
            if process.returncode is None:
                process.kill()
        lines = errors.decode(errors="replace").strip().splitlines()
        problem = lines[-1] if lines else f"podman {arguments[0]} has ended with exit code {process.returncode}"
        return Done(process.returncode or 0, output.decode(errors="replace"), problem)


def store_text(user: int, place: str, images: Sequence[str]) -> str:
    """What a store has, for a user who looks for an image in it."""
    owner = "root" if user == 0 else f"the user {user}"
    more = f", and {len(images) - SHOWN_IMAGES} more" if len(images) > SHOWN_IMAGES else ""
    has = f"has {', '.join(images[:SHOWN_IMAGES])}{more}" if images else "is empty"
    return f"the agent's store, which is that of {owner} in {place or 'an unknown directory'}, {has}"


def environment_text(container: Container) -> str:
    """The content of the file for `podman run --env-file`."""
    return "".join(f"{name}={value}\n" for name, value in container.environment.items() if "\n" not in value)


def name_of(application: Application, container: Container) -> str:
    return f"poolhouse-{application.uid}-{container.name}"
