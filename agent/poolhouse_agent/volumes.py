"""The volumes of an application: directories that the containers see at their mount paths.

ConfigMaps, Secrets and `medium: Memory` lie in the runtime directory, which systemd keeps in memory. Nothing of a
volume stays behind after the application.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

from poolhouse_agent.application import Application, Container, Mount, Volume

Bind = tuple[str, str, bool]
"""source, target, and whether the target is read-only"""


class Volumes:
    def __init__(self, memory: Path, disk: Path) -> None:
        self._memory, self._disk = memory / "volumes", disk / "volumes"
        self._mount_points = memory / "mount-points"

    def create(self, application: Application) -> None:
        self.remove()
        for volume in application.volumes:
            directory = self._directory(volume)
            directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory.mkdir()
            directory.chmod(0o777 if volume.kind == "emptyDir" else 0o755)
            for file in volume.files:
                path = directory / file.path
                path.parent.mkdir(parents=True, exist_ok=True)
                with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as opened:
                    opened.write(file.content)
                path.chmod(file.mode)

    def binds(self, application: Application, container: Container) -> list[Bind]:
        volumes = {each.name: each for each in application.volumes}
        found = []
        for mount in container.mounts:
            volume = volumes[mount.volume]
            found.append((str(self._source(volume, mount)), mount.path, mount.read_only or volume.kind != "emptyDir"))
        return found

    def create_mount_points(self, binds: list[Bind]) -> None:
        """Creates what the volumes are mounted on. `remove` removes it again."""
        created = self._created()
        for source, target, _ in binds:
            path = Path(target)
            if path.exists():
                continue
            missing = [each for each in (path, *path.parents) if not each.exists()]
            directory = path if Path(source).is_dir() else path.parent
            directory.mkdir(parents=True, exist_ok=True)
            path.touch() if not path.exists() else None
            created += [str(each) for each in missing]
        self._mount_points.write_text(json.dumps(created))

    def remove(self) -> None:
        for directory in (self._memory, self._disk):
            shutil.rmtree(directory, ignore_errors=True)
        for path in map(Path, self._created()):
            with suppress(OSError):  # The application may have put something into the directory outside of the volume.
                path.rmdir() if path.is_dir() else path.unlink()
        self._mount_points.unlink(missing_ok=True)

    def _created(self) -> list[str]:
        """The mount points that did not exist, each before its parents."""
        return list(json.loads(self._mount_points.read_text())) if self._mount_points.exists() else []

    def _directory(self, volume: Volume) -> Path:
        return (self._memory if volume.in_memory else self._disk) / volume.name

    def _source(self, volume: Volume, mount: Mount) -> Path:
        source = self._directory(volume) / mount.sub_path
        if volume.kind == "emptyDir":
            source.mkdir(parents=True, exist_ok=True)
        return source
