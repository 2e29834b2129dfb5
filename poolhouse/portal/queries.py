"""The queries of all users' consoles to the Prometheus of the portal, which answers with the portal's account.

`poolhouse.console.vm_usage` decides whether a user may see a figure. Here the users share Prometheus fairly: the slow
queries of one user hold only some of the slots, so that those of another need not wait for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from poolhouse.console.vm_usage import DEADLINE_SECONDS, Metrics
from poolhouse.runtime.fair_slots import FairSlots
from poolhouse.service.prometheus import PrometheusError

log = logging.getLogger(__name__)

QUERIES = 8
"""Queries in flight; a Prometheus runs 20 at once by default"""
QUERIES_PER_USER = 2
"""The charts of one page"""
NO_ANSWER = "Prometheus has given no answer; the log of the portal has the reason"


@dataclass(frozen=True)
class Queries:
    prometheus: Metrics
    deadline_seconds: float = DEADLINE_SECONDS
    """Longest time of a query with its wait for a slot, because a page waits for both"""
    slots: FairSlots[str] = field(default_factory=lambda: FairSlots(QUERIES, per_key=QUERIES_PER_USER))

    def of(self, user: str) -> Metrics:
        return _UserQueries(self, user)


@dataclass(frozen=True)
class _UserQueries:
    shared: Queries
    user: str

    async def query_range(
        self, query: str, namespace: str, *, start: float, end: float, step_seconds: int
    ) -> Sequence[tuple[float, float]]:
        """Raises PrometheusError, without the address and the message of the server, which are the operator's."""
        seconds = self.shared.deadline_seconds
        try:
            async with asyncio.timeout(seconds), self.shared.slots.slot(self.user):
                return await self.shared.prometheus.query_range(
                    query, namespace, start=start, end=end, step_seconds=step_seconds
                )
        except TimeoutError:
            problem = f"no slot and answer within {seconds:g} s"
        except PrometheusError as error:
            problem = str(error)
        log.warning("a query in namespace %s for %s has failed: %s", namespace, self.user, problem)
        raise PrometheusError(NO_ANSWER)
