"""A Secret as files: fetched by name, and again while it changes, for servers that read files.

A kubelet does the same for a volume, in its own time: up to two minutes pass until a changed Secret is there, and a pod
that starts before the Secret exists waits for minutes more. Here it takes seconds, and the one right that it needs is
to `get` this Secret.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from runtime.api import Api
from runtime.backoff import Backoff
from runtime.errors import ApiError, NotFound
from runtime.resource import Resource

log = logging.getLogger(__name__)

SECRETS = Resource("", "v1", "secrets", "Secret")
LOOK_SECONDS = 10.0
FIRST_SECONDS = 1.0
"""between two looks while there is nothing yet"""
PAUSES = Backoff(base_seconds=1, cap_seconds=30)


class SecretFiles:
    """The data of a Secret in a directory. One that is deleted leaves the files as they were."""

    def __init__(self, api: Api, namespace: str, name: str, directory: Path) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._directory = directory
        self._written: dict[str, bytes] = {}
        self._there = asyncio.Event()

    async def there(self) -> None:
        """Returns when the files have been written once."""
        await self._there.wait()

    async def run(self) -> NoReturn:
        failures = 0
        while True:
            try:
                await self.look()
                failures = 0
            except NotFound:
                log.log(logging.INFO if failures == 0 else logging.DEBUG, "Secret %s: not there", self._name)
                failures = 1
            except ApiError as error:
                failures += 1
                log.warning("Secret %s: cannot be read: %s", self._name, error)
            await asyncio.sleep(self._pause(failures))

    async def look(self) -> bool:
        """Writes what has changed; whether anything had."""
        secret = await self._api.get(SECRETS, self._namespace, self._name)
        data = {name: base64.b64decode(text) for name, text in (secret.get("data") or {}).items()}
        if not data or data == self._written:
            return False
        write(self._directory, data)
        self._written = data
        self._there.set()
        return True

    def _pause(self, failures: int) -> float:
        if not self._there.is_set():
            return FIRST_SECONDS
        return max(LOOK_SECONDS, PAUSES.delay(failures, self._name))


def write(directory: Path, data: Mapping[str, bytes]) -> None:
    """Each file whole or not at all, for nobody but us. A reader that meets one new and one old file reads them again
    when the other one changes."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, content in data.items():
        draft = directory / f".{name}.new"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
        draft.replace(directory / name)
