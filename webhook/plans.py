"""What a controller would do with an object: asked of the controllers, who alone have seen what a plan depends on.

They tell it to whoever may see the VMs, so the caller's token goes with the question: over TLS, or to this machine.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from kinds.kind import Kind

log = logging.getLogger(__name__)

Json = dict[str, Any]

LOOPBACK = ("localhost", "127.0.0.1", "::1")
UNKNOWN = "what would be done then is not known:"


@dataclass(frozen=True)
class PlanAnswer:
    plan: list[Json] | None = None
    """each step with `action`, `vm` and `reason`; None when it is not known"""
    warnings: tuple[str, ...] = ()


class PlanClient:
    def __init__(self, url: str, session: aiohttp.ClientSession, *, seconds: float = 2.0) -> None:
        self._url = url.rstrip("/")
        self._session = session
        self._seconds = seconds
        asked = urlsplit(url)
        self._private = asked.scheme == "https" or asked.hostname in LOOPBACK

    async def of(self, kind: Kind, document: Json, token: str) -> PlanAnswer:
        if not self._private:
            return PlanAnswer(
                warnings=(f"{UNKNOWN} POOLHOUSE_CONTROLLERS_URL is not https, and a token must not go there",)
            )
        url = self._url + kind.plan_path
        headers = {"Authorization": f"Bearer {token}"}
        try:
            async with (
                asyncio.timeout(self._seconds),
                self._session.post(url, json=document, headers=headers, allow_redirects=False) as answer,
            ):
                told = await answer.json(content_type=None)
        except (aiohttp.ClientError, OSError, ValueError, TimeoutError) as error:
            log.info("no plan from %s: %s", url, error or "no answer in time")
            return PlanAnswer(warnings=(f"{UNKNOWN} the controllers are away",))
        if answer.status == 403:
            return PlanAnswer(warnings=(f"{UNKNOWN} you may not see the VMs that there are",))
        plan = told.get("plan") if answer.status == 200 and isinstance(told, dict) else None
        if not isinstance(plan, list):
            return PlanAnswer(warnings=(f"{UNKNOWN} the controllers answered {answer.status}",))
        return PlanAnswer(plan, tuple(str(told[why]) for why in ("refused", "blocked") if told.get(why)))
