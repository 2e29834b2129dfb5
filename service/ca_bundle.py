"""Whom we trust when we ask other servers of ours: a file that changes while authorities are renewed."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import NoReturn

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0


class CABundle:
    """`context` trusts what `bundle` holds, once it is there; until then, what everybody trusts."""

    def __init__(self, bundle: Path) -> None:
        self.context = ssl.create_default_context()
        self._bundle = bundle
        self._read: bytes | None = None
        self.renew()

    def renew(self) -> bool:
        """Whether there was something new. What was trusted once stays so while this process lives: a certificate that
        has ended verifies nothing anyway."""
        try:
            content = self._bundle.read_bytes()
            if content == self._read:
                return False
            self.context.load_verify_locations(cadata=content.decode())
        except FileNotFoundError:
            return False
        except (OSError, ValueError, ssl.SSLError) as error:
            log.warning("trust: %s: %s; it stays as it was", self._bundle, error)
            return False
        self._read = content
        return True

    async def follow(self) -> NoReturn:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.renew()
