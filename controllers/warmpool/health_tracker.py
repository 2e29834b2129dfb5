"""What is remembered of machines' health between looks: for how long it was so, and what they answered.

Nothing here is the truth: after a restart counting begins anew, which only means patience.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from controllers.warmpool.audit_log import log_event
from controllers.warmpool.backends import Backend, Health
from controllers.warmpool.health import standby_health, vmi_health
from controllers.warmpool.snapshot import NOT_CHECKED, VMHealth, waits_for_scheduling
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import WarmVM
from kinds.warmpool import Readiness

log = logging.getLogger(__name__)

AT_ONCE = 64
"""probes that wait for an answer at a time"""


@dataclass
class _Memory:
    seen: WarmVM | None = None
    """as it was at the last look, and what followed from that"""
    readiness: Readiness | None = None
    running: Health = NOT_CHECKED
    standby: Health = NOT_CHECKED
    well_since: float | None = None
    failing: int = 0
    counts: bool = False
    """it failed at the last look, so a look in the next period counts"""
    counted_at: float = 0.0
    held_at: float = -math.inf


@dataclass
class HealthTracker:
    """Of one process. `clock` is monotonic: a clock that is set must not make machines old."""

    clock: Callable[[], float]
    _memory: dict[str, _Memory] = field(default_factory=dict)
    _answers: dict[str, Health] = field(default_factory=dict)
    """what machines said that have to be asked, by UID"""

    def look(self, pool: WarmPool, machines: Iterable[WarmVM]) -> Mapping[str, VMHealth]:
        """What is known of each, with this look counted. A look within the same period counts nothing."""
        return {m.uid: self._vital(pool, m) for m in machines}

    def seconds_until_period_ends(self, pool: WarmPool, machines: Iterable[WarmVM]) -> float | None:
        """When the next look counts, of those that fail. Of what can't be checked no look does."""
        now, period = self.clock(), pool.spec.health.period_seconds
        found = (self._memory.get(m.uid) for m in machines)
        ends = [each.counted_at + period - now for each in found if each is not None and each.counts]
        return max(0.0, min(ends)) if ends else None

    async def ask(self, pool: WarmPool, machines: Iterable[WarmVM], held_by: Backend) -> bool:
        """Asks those that answer for themselves; whether any of them answers otherwise than before."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(m: WarmVM) -> bool:
            async with turns:
                found = await held_by.check(m, pool.spec.readiness, pool.spec.health.timeout_seconds)
            before = self._answers.get(m.uid)
            self._answers[m.uid] = found
            news = before is None or before.verdict != found.verdict
            said = f"{m.name} was asked: {found.message or found.verdict}"
            level = logging.INFO if news else logging.DEBUG
            log_event(log, "MachinePolled", said, machine=m, level=level, reason=found.reason or found.verdict)
            return news

        return any(await asyncio.gather(*(one(m) for m in machines if can_probe(pool, m))))

    def forget(self, uid: str) -> None:
        self._memory.pop(uid, None)
        self._answers.pop(uid, None)

    def _vital(self, pool: WarmPool, m: WarmVM) -> VMHealth:
        now, memory = self.clock(), self._memory.setdefault(m.uid, _Memory())
        readiness = pool.spec.readiness
        if memory.seen is not m or memory.readiness is not readiness:
            memory.seen, memory.readiness = m, readiness
            memory.running, memory.standby = vmi_health(m, readiness), standby_health(m)
        awake = memory.running
        if needs_probe(pool) and awake.verdict == "Healthy":
            awake = self._answers.get(m.uid, NOT_CHECKED)
        waiting = awake if m.standby == "Running" else memory.standby
        if awake.verdict == "Healthy":
            memory.well_since = now if memory.well_since is None else memory.well_since
        elif awake.verdict == "Failed":
            memory.well_since = None
        over = self._count(memory, waiting, pool.spec.health.period_seconds, now)
        well = 0.0 if memory.well_since is None else now - memory.well_since
        if waits_for_scheduling(m):
            memory.held_at = now
        return VMHealth(awake, waiting, memory.failing, over, well, now - memory.held_at)

    def _count(self, memory: _Memory, waiting: Health, period: float, now: float) -> bool:
        """What could not be checked neither advances the count nor forgives."""
        memory.counts = waiting.verdict == "Failed"
        if waiting.verdict == "Healthy":
            memory.failing = 0
        elif waiting.verdict == "Failed" and (not memory.failing or now - memory.counted_at >= period):
            memory.failing += 1
            memory.counted_at = now
            return True
        return False


def needs_probe(pool: WarmPool) -> bool:
    """Do its machines have to be asked, beside what KubeVirt says of them?"""
    readiness = pool.spec.readiness
    return bool(readiness.tcp or readiness.http or pool.spec.ec2)


def can_probe(pool: WarmPool, m: WarmVM) -> bool:
    """Can this one be asked now? What is claimed is its claim's, what sleeps says nothing."""
    if not m.unclaimed or m.deleting:
        return False
    return pool.spec.ec2 is not None or vmi_health(m, pool.spec.readiness).verdict == "Healthy"
