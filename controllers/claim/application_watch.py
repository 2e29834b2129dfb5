"""Follows the applications of claims by streams of their agents, so that a change is seen at once.

A stream only makes the controllers faster: they ask each agent in every period of health checks in any case. So a
stream that ends is opened again after the next check, and agents that offer none are asked as before.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NoReturn

from controllers.claim.memory import ClaimRecord
from controllers.claim.snapshot import Claim
from controllers.warmpool.backends import Backend
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import Key

log = logging.getLogger(__name__)

MAX_WATCHES = 2000
"""Number of open streams. The applications of further claims are only asked in each period. A namespace may have as
many as are free: half of them, if it is alone. Those that end go to namespaces with fewer."""
WATCH_SECONDS = 300.0
"""Longest life of a stream. A VM that has vanished with its node closes no connection."""

BURST, ANSWERS_PER_SECOND = 50, 1.0
"""Answers of a stream, above which it is closed. Each one costs a reconcile and a write, and the agent in a VM may be
hostile. Until the next period, the agent is treated as one that offers no stream. An application of 32 containers that
starts changes its status about a hundred times, so that it may happen to honest agents, too."""


class ApplicationWatches:
    def __init__(self, enqueue: Callable[[Key, float], None], clock: Callable[[], float]) -> None:
        self._enqueue, self._clock = enqueue, clock
        self._group: asyncio.TaskGroup | None = None
        self._followed: dict[str, str] = {}
        """the namespaces of claims, by their UIDs"""

    async def run(self) -> NoReturn:
        """Follows applications while this process is the leader."""
        try:
            async with asyncio.TaskGroup() as self._group:
                await asyncio.Event().wait()
        finally:
            self._group = None
            self._followed.clear()
        raise AssertionError("the group ends only with an exception")

    def follow(self, claim: Claim, vm: WarmVM, backend: Backend, record: ClaimRecord) -> None:
        """Opens a stream unless the claim has one. Each answer is the health in the record, and enqueues the claim."""
        if self._group is None or claim.uid in self._followed or vm.uid == record.without_stream:
            return
        if list(self._followed.values()).count(claim.namespace) < MAX_WATCHES - len(self._followed):
            self._followed[claim.uid] = claim.namespace
            self._group.create_task(self._watch(claim, vm, backend, record), name=f"watch {claim.name}")

    async def _watch(self, claim: Claim, vm: WarmVM, backend: Backend, record: ClaimRecord) -> None:
        answers, opened = 0, self._clock()
        try:
            async with asyncio.timeout(WATCH_SECONDS) as limit:
                async for health in backend.watch_application(vm):
                    answers += 1
                    record.application_health = health, self._clock()
                    self._enqueue(claim.key, 0.0)
                    if answers > BURST + (self._clock() - opened) * ANSWERS_PER_SECOND:
                        limit.reschedule(0.0)
                        await asyncio.sleep(0)  # An agent that is always ready would never let the timeout happen.
        except (TimeoutError, ApiError):
            pass
        except Exception:  # a claim is enqueued again in any case, and must not end the streams of all others
            log.exception("claim %s/%s: the stream of its application has failed", claim.namespace, claim.name)
        finally:
            self._followed.pop(claim.uid, None)
            if not answers:
                record.without_stream = vm.uid
