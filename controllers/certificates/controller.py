"""Reconciles the certificates every few seconds, one step at a time until none is left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from typing import NoReturn

from controllers.certificates.apply import CertificateWriter
from controllers.certificates.observe import observe
from controllers.certificates.plan import plan
from controllers.certificates.snapshot import CertificatePolicy
from runtime.api import Api
from runtime.errors import AlreadyExists, ApiError, Conflict, Invalid

log = logging.getLogger(__name__)

PERIOD_SECONDS = 5.0
"""A CA bundle that another client overwrites is wrong for at most this time."""
MAX_STEPS = 12


class CertificateController:
    def __init__(self, api: Api, namespace: str, policy: CertificatePolicy, now: Callable[[], datetime]) -> None:
        self._api = api
        self._namespace = namespace
        self._policy = policy
        self._now = now
        self._writer = CertificateWriter(api, namespace, policy)

    async def run(self) -> NoReturn:
        while True:
            try:
                await self.reconcile()
            except ApiError as error:
                log.warning("certificates: cannot reconcile: %s", error)
            await asyncio.sleep(PERIOD_SECONDS)

    async def reconcile(self) -> int:
        """Takes all steps that are possible now and returns their number."""
        for taken in range(MAX_STEPS):
            snapshot, now = await observe(self._api, self._namespace), self._now()
            step = plan(snapshot, now, self._policy)
            if step is None:
                return taken
            try:
                await self._writer.apply(step, snapshot, now)
            except (Conflict, AlreadyExists, Invalid) as error:
                # The API server answers Invalid to a JSON patch whose `test` fails.
                log.info("certificates: another controller was first: %s", error)
        return MAX_STEPS
