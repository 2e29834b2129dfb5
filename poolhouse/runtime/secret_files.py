"""Copies the data of a Secret into files whenever the Secret changes.

A kubelet does the same for a mounted Secret, but needs up to two minutes after a change. A pod that starts before its
Secret exists waits even longer. This module needs seconds, and only the right to `get` the Secret.
"""

import asyncio
import base64
import logging
from pathlib import Path
from typing import NoReturn

from poolhouse.runtime.api import Api
from poolhouse.runtime.backoff import Backoff
from poolhouse.runtime.errors import ApiError, NotFound
from poolhouse.runtime.resource import SECRETS
from poolhouse.service.certwatcher import write_atomically

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 10.0
FIRST_INTERVAL_SECONDS = 1.0
PAUSES = Backoff(base_seconds=1, cap_seconds=30)


class SecretFiles:
    """The copy of a Secret in files. The files stay when the Secret is deleted."""

    def __init__(self, api: Api, namespace: str, name: str, directory: Path) -> None:
        self._api, self._namespace, self._name, self._directory = api, namespace, name, directory
        self._written: dict[str, bytes] = {}
        self._exist = asyncio.Event()

    async def wait_until_written(self) -> None:
        await self._exist.wait()

    async def run(self) -> NoReturn:
        failures = 0
        while True:
            try:
                await self.update()
                failures = 0
            except NotFound:
                log.log(logging.INFO if failures == 0 else logging.DEBUG, "Secret %s: not found", self._name)
                failures = 1
            except ApiError as error:
                failures += 1
                log.warning("Secret %s: cannot be read: %s", self._name, error)
            await asyncio.sleep(self._pause(failures))

    async def update(self) -> bool:
        """Writes the files if the Secret has changed; returns whether it has."""
        secret = await self._api.get(SECRETS, self._namespace, self._name)
        data = {name: base64.b64decode(text) for name, text in (secret.get("data") or {}).items()}
        if not data or data == self._written:
            return False
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A reader of one new and one old file reads both files again when the old file changes.
        for file, content in data.items():
            write_atomically(self._directory / file, content)
        self._written = data
        self._exist.set()
        return True

    def _pause(self, failures: int) -> float:
        if not self._exist.is_set():
            return FIRST_INTERVAL_SECONDS
        return max(INTERVAL_SECONDS, PAUSES.delay(failures, self._name))
