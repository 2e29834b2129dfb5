"""Looks again and again, and takes one step at a time until none is left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from typing import NoReturn

from controllers.certificates.apply import Apply
from controllers.certificates.observe import observe
from controllers.certificates.plan import plan
from controllers.certificates.state import Terms
from runtime.api import Api
from runtime.errors import AlreadyExists, ApiError, Conflict, Invalid

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""between two looks; so long may a bundle that somebody has overwritten be wrong"""
MOST_STEPS = 12


class Certificates:
    def __init__(self, api: Api, namespace: str, terms: Terms, now: Callable[[], datetime]) -> None:
        self._api = api
        self._namespace = namespace
        self._terms = terms
        self._now = now
        self._apply = Apply(api, namespace, terms)

    async def run(self) -> NoReturn:
        while True:
            try:
                await self.look()
            except ApiError as error:
                log.warning("certificates: not looked after now: %s", error)
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> int:
        """Takes every step that can be taken now; how many there were."""
        for taken in range(MOST_STEPS):
            state, now = await observe(self._api, self._namespace), self._now()
            step = plan(state, now, self._terms)
            if step is None:
                return taken
            try:
                await self._apply.apply(step, state, now)
            except (Conflict, AlreadyExists, Invalid) as error:
                # Invalid is how the API server answers a JSON patch whose `test` fails.
                log.info("certificates: somebody was faster: %s", error)
        return MOST_STEPS
