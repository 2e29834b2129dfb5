"""Writes the disks of volumes with a Secret. KubeVirt writes an ISO 9660 file system. Here the disk is a tar archive,
which the built-in Linux reads without another kernel module.
"""

import asyncio
import io
import os
import tarfile
from base64 import b64decode
from pathlib import Path

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, NotFound
from poolhouse.runtime.resource import SECRETS
from poolhouse.stack.engine.hypervisor import NotStartable

SECTOR_BYTES = 512


class SecretDisks:
    def __init__(self, api: Api, uid: int | None) -> None:
        """`uid` is the user that runs QEMU, or None for the engine's own."""
        self._api, self._uid = api, uid

    async def write(self, path: Path, namespace: str, source: Json) -> None:
        """Writes the disk of a volume source; an existing file stays as it is. Raises `NotStartable`."""
        if await asyncio.to_thread(path.exists):
            return
        name = str(source.get("secretName"))
        try:
            data = (await self._api.get(SECRETS, namespace, name)).get("data") or {}
        except NotFound as error:
            if source.get("optional") is not True:
                raise NotStartable(f"the Secret {name} of a volume does not exist") from error
            data = {}
        except ApiError as error:
            raise NotStartable(f"Secret {name}: {error.message}") from error
        await asyncio.to_thread(self._write, path, {key: b64decode(value) for key, value in data.items()})

    def _write(self, path: Path, files: dict[str, bytes]) -> None:
        draft = path.with_suffix(".new")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(archive(files))
        if self._uid is not None:
            os.chown(draft, self._uid, -1)
        draft.replace(path)


def archive(files: dict[str, bytes]) -> bytes:
    """A tar archive, padded to whole sectors."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o400
            tar.addfile(entry, io.BytesIO(content))
    content = written.getvalue()
    return content + bytes(-len(content) % SECTOR_BYTES)
