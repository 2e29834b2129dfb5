"""Copies the data of a Secret into files whenever the Secret changes.

A kubelet does the same for a mounted Secret, but needs up to two minutes after a change. A pod that starts before its
Secret exists waits even longer. This module needs only the right to list and watch this one Secret.
"""

import asyncio
import base64
import logging
from pathlib import Path
from typing import NoReturn

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.resource import SECRETS
from poolhouse.service.certwatcher import write_atomically

log = logging.getLogger(__name__)


class SecretFiles:
    """The copy of a Secret in files. The files stay when the Secret is deleted."""

    def __init__(self, api: Api, namespace: str, name: str, directory: Path) -> None:
        self._name, self._directory = name, directory
        self._informer = Informer(api, SECRETS, _data, namespace=namespace, name=name)
        self._changed, self._exist = asyncio.Event(), asyncio.Event()

    async def wait_until_written(self) -> None:
        await self._exist.wait()

    async def run(self) -> NoReturn:
        self._informer.subscribe(lambda old, new: self._changed.set())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informer.run(), name="secret")
            await self._informer.synced()
            if not self._informer.store.all():
                log.info("Secret %s: not found", self._name)
            # An error of the file system ends the service: a handler of the informer would only log it.
            while True:
                await self._changed.wait()
                self._changed.clear()
                self._write()

    def _write(self) -> None:
        for data in self._informer.store.all():
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # A reader of one new and one old file reads both files again when the old file changes.
            for file, content in data.items():
                write_atomically(self._directory / file, content)
            if data:
                self._exist.set()


def _data(document: Json) -> dict[str, bytes]:
    return {name: base64.b64decode(text) for name, text in (document.get("data") or {}).items()}
