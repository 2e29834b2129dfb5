"""Looks at all instances, on time and when the controllers begin, and sees to those whose pool is gone.

Kubernetes' garbage collector ends a pool's VMs with the pool. It knows nothing of instances, so this is it for them. A
pool may go while nobody looks at EC2: what was to become of its instances is then asked of their tags.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from controllers.warmpool.audit_log import log_event
from controllers.warmpool.backends import Change, OutcomeUnknown, WriteConflict
from controllers.warmpool.ec2.backend import EC2Backend
from controllers.warmpool.ec2.client import EC2Client
from controllers.warmpool.ec2.instance_cache import InstanceCache
from controllers.warmpool.ec2.tags import CLUSTER, OUTLIVES
from controllers.warmpool.warm_pool import WARM_POOLS
from controllers.warmpool.warm_vm import NO_OWNER, POOL_KIND, WarmVM
from kinds import meta
from runtime.api import Api
from runtime.backoff import Backoff
from runtime.errors import ApiError, NotFound

log = logging.getLogger(__name__)

LIVING = ("pending", "running", "shutting-down", "stopping", "stopped")
MOST_VALUES = 200
"""of one filter"""
UNSEEN = "the instances of EC2 have not been looked at yet"
PAUSES = Backoff(base_seconds=1, cap_seconds=60)


@dataclass
class EC2Poller:
    cloud: EC2Client
    shown: InstanceCache
    instances: EC2Backend
    api: Api
    cluster: Callable[[], Awaitable[str]]
    policy: Callable[[str], str | None]
    """the deletionPolicy of the pool of this UID, "" where it can't be read; None without such a pool, which is then
    asked for"""
    period_seconds: float
    clock: Callable[[], float]
    seen: Callable[[], None] = lambda: None
    """called when the way to EC2 opens or closes: pools that could not count can count again"""
    problem: str | None = UNSEEN
    """why what is shown may be old; while there is one, nothing is counted and nothing is ended"""
    _failures: int = 0

    async def run(self) -> None:
        # What was seen when we led before is as old as that.
        self._say(UNSEEN)
        while True:
            pause = await self.look()
            await asyncio.sleep(pause)

    async def look(self) -> float:
        """Returns when to look again."""
        since = self.clock()
        try:
            found = await self.cloud.describe({f"tag:{CLUSTER}": [await self.cluster()], "instance-state-name": LIVING})
            # EC2 does not show it yet, or somebody has just terminated it: that is asked for.
            if unseen := self.shown.unseen(found)[:MOST_VALUES]:
                found += await self.cloud.describe({"instance-id": unseen})
        except (ApiError, TimeoutError) as error:
            self._failures += 1
            self._say(f"EC2 can't be asked: {error}")
            return PAUSES.delay(self._failures, "ec2")
        self._failures = 0
        log_event(log, "MachinePolled", f"looked at {len(found)} instances of EC2", level=logging.DEBUG)
        self.shown.all(found, since)
        self._say(None)
        for m in self.shown.machines.all():
            if m.owner.kind == POOL_KIND and not m.deleting:
                await self._see_to(m)
        return self.period_seconds

    def _say(self, problem: str | None) -> None:
        if problem == self.problem:
            return
        if problem:
            log.warning("%s", problem)
        elif self.problem:
            log.info("EC2 answers: %d instances are ours", len(self.shown.machines))
        self.problem = problem
        self.seen()

    async def _see_to(self, m: WarmVM) -> None:
        policy, outlives = self.policy(m.owner.uid), OUTLIVES in m.labels
        try:
            if policy is not None:
                if policy and outlives != (policy == "Orphan"):
                    await self.instances.change(m, Change(labels={OUTLIVES: None if outlives else "true"}))
            elif not await self._has_pool(m):
                if outlives:
                    await self._orphan(m)
                else:
                    await self.instances.terminate(m, "its pool is gone")
        except WriteConflict:  # it is looked at again
            return
        except (ApiError, OutcomeUnknown) as error:
            log.warning("%s: %s", m.name, error)

    async def _orphan(self, m: WarmVM) -> None:
        await self.instances.change(m, Change(owner=NO_OWNER, labels={meta.ORPHANED: "PoolDeleted"}))
        log_event(
            log, "MachineMoved", f"{m.name} is orphaned: its pool is gone, and deletionPolicy was Orphan", machine=m
        )

    async def _has_pool(self, m: WarmVM) -> bool:
        try:
            found = await self.api.get(WARM_POOLS, m.namespace, m.owner.name)
        except NotFound:
            return False
        return bool(found["metadata"]["uid"] == m.owner.uid)
