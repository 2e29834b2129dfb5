"""What a controller would do with an object: asked of the controllers, who alone have seen what a plan depends on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import aiohttp

log = logging.getLogger(__name__)

Json = dict[str, Any]

PATHS: Mapping[str, str] = {"VirtualMachinePool": "/apis/pools/plan"}
"""of the controllers' address, by kind; other kinds have no plan"""


class Plans:
    def __init__(self, url: str, session: aiohttp.ClientSession, *, seconds: float = 2.0) -> None:
        self._url = url.rstrip("/")
        self._session = session
        self._seconds = seconds

    async def of(self, document: Json) -> list[Json] | None:
        """Each step with `action`, `vm` and `reason`; None when the controllers give no answer."""
        url = self._url + PATHS[document["kind"]]
        try:
            async with asyncio.timeout(self._seconds), self._session.post(url, json=document) as answer:
                told = await answer.json(content_type=None)
        except (aiohttp.ClientError, OSError, ValueError, TimeoutError) as error:
            log.info("no plan from %s: %s", url, error or "no answer in time")
            return None
        plan = told.get("plan") if answer.status == 200 and isinstance(told, dict) else None
        return plan if isinstance(plan, list) else None
