"""Containers with an image, which podman runs in the network of the VM."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from poolhouse_agent.application import Application, Container
from poolhouse_agent.volumes import Bind

PULL_SECONDS, COMMAND_SECONDS = 1800.0, 60.0


class Refused(Exception):
    """No process can be started now. The reason is that of a waiting container."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


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
            raise Refused("ImageNotSupported", f"image {container.image!r} needs podman, which this VM does not have")
        if container.pull_policy != "Always":
            if (await self._run("image", "exists", container.image))[0] == 0:
                return
            if container.pull_policy == "Never":
                raise Refused(
                    "ErrImageNeverPull", f"image {container.image!r} is not in the VM, and must not be pulled"
                )
        options = ["--authfile", str(auth_file)] if application.registry_auth else []
        code, errors = await self._run("pull", "--quiet", *options, container.image, seconds=PULL_SECONDS)
        if code != 0:
            raise Refused("ErrImagePull", (errors.strip().splitlines() or ["podman pull has failed"])[-1])

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

    async def remove(self, application: Application, container: Container) -> None:
        await self._run("rm", "--force", "--ignore", name_of(application, container))

    def execution(self, application: Application, container: Container, command: Sequence[str]) -> list[str]:
        return [self.program or "podman", "exec", name_of(application, container), *command]

    async def _run(self, *arguments: str, seconds: float = COMMAND_SECONDS) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            self.program or "podman",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(seconds):
                _, errors = await process.communicate()
        except TimeoutError:
            return 1, f"podman {arguments[0]} has not ended in {seconds:g} s"
        finally:
            if process.returncode is None:
                process.kill()
        return process.returncode or 0, errors.decode(errors="replace")


def environment_text(container: Container) -> str:
    """The content of the file for `podman run --env-file`."""
    return "".join(f"{name}={value}\n" for name, value in container.environment.items() if "\n" not in value)


def name_of(application: Application, container: Container) -> str:
    return f"poolhouse-{application.uid}-{container.name}"
