"""Probes the waiting VMs of warm pools, and counts for how long each of them is healthy or fails."""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from controllers.warmpool.audit_log import log_event
from controllers.warmpool.backends import Backend, Health
from controllers.warmpool.health import needs_probe, standby_health, vmi_health
from controllers.warmpool.snapshot import NOT_CHECKED, VMHealth, waits_for_scheduling
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.kinds.warm_readiness import Readiness

log = logging.getLogger(__name__)

MAX_PROBES_IN_FLIGHT = 64


@dataclass
class _Record:
    """The observations of one VM."""

    vm: WarmVM | None = None
    """The VM at the last observation. `running` and `standby` are computed from it and from `readiness`."""
    readiness: Readiness | None = None
    running: Health = NOT_CHECKED
    standby: Health = NOT_CHECKED
    answer: Health = NOT_CHECKED
    """The result of the last probe."""
    healthy_since: float | None = None
    failed_periods: int = 0
    counting: bool = False
    """Whether the last observation failed. If so, a failure in the next period counts."""
    counted_at: float = 0.0
    unscheduled_at: float = -math.inf


@dataclass
class HealthTracker:
    """Counts how long each VM is healthy or failing. A restart resets the counts, which only delays decisions."""

    clock: Callable[[], float]
    """Monotonic, so that a change of the system time does not affect the counts."""
    _records: dict[str, _Record] = field(default_factory=dict)
    """The key is the VM's UID."""

    def observe(self, pool: WarmPool, vms: Iterable[WarmVM]) -> Mapping[str, VMHealth]:
        """The health of each unclaimed VM. A period counts once, even if it has several observations."""
        return {vm.uid: self._observe(pool, vm) for vm in vms if vm.unclaimed}

    def seconds_until_period_ends(self, pool: WarmPool, vms: Iterable[WarmVM]) -> float | None:
        """Seconds until the next observation of a failing VM counts. None without a failing VM."""
        now, period = self.clock(), pool.spec.health.period_seconds
        found = (self._records.get(vm.uid) for vm in vms)
        ends = [each.counted_at + period - now for each in found if each is not None and each.counting]
        return max(0.0, min(ends)) if ends else None

    async def probe(self, pool: WarmPool, vms: Iterable[WarmVM], backend: Backend) -> bool:
        """Probes VMs. Returns whether any verdict changed."""
        in_flight = asyncio.Semaphore(MAX_PROBES_IN_FLIGHT)

        async def one(vm: WarmVM) -> bool:
            record = self._records.setdefault(vm.uid, _Record())  # the VM may be forgotten during the check
            async with in_flight:
                answer = await backend.check(vm, pool.spec.readiness, pool.spec.health.timeout_seconds)
            changed = record.answer is NOT_CHECKED or record.answer.verdict != answer.verdict
            record.answer = answer
            message = f"probed {vm.name}: {answer.message or answer.verdict}"
            level = logging.INFO if changed else logging.DEBUG
            log_event(log, "VMChecked", message, about=vm, level=level, reason=answer.reason or answer.verdict)
            return changed

        return any(await asyncio.gather(*(one(vm) for vm in vms if can_probe(pool, vm))))

    def forget(self, uid: str) -> None:
        self._records.pop(uid, None)

    def _observe(self, pool: WarmPool, vm: WarmVM) -> VMHealth:
        now, record, readiness = self.clock(), self._records.setdefault(vm.uid, _Record()), pool.spec.readiness
        if record.vm is not vm or record.readiness is not readiness:
            record.vm, record.readiness = vm, readiness
            record.running, record.standby = vmi_health(vm, readiness), standby_health(vm)
        running = record.answer if needs_probe(pool) and record.running.verdict == "Healthy" else record.running
        in_standby = running if vm.standby == "Running" else record.standby
        if running.verdict == "Healthy":
            record.healthy_since = now if record.healthy_since is None else record.healthy_since
        elif running.verdict == "Failed":
            record.healthy_since = None
        period_over = _count(record, in_standby, pool.spec.health.period_seconds, now)
        healthy_seconds = 0.0 if record.healthy_since is None else now - record.healthy_since
        if waits_for_scheduling(vm):
            record.unscheduled_at = now
        unscheduled_ago = now - record.unscheduled_at
        return VMHealth(running, in_standby, record.failed_periods, period_over, healthy_seconds, unscheduled_ago)


def _count(record: _Record, in_standby: Health, period: float, now: float) -> bool:
    """Whether a failed period ended. A check that could not run neither increases nor resets the count."""
    record.counting = in_standby.verdict == "Failed"
    if in_standby.verdict == "Healthy":
        record.failed_periods = 0
    elif record.counting and (not record.failed_periods or now - record.counted_at >= period):
        record.failed_periods += 1
        record.counted_at = now
        return True
    return False


def can_probe(pool: WarmPool, vm: WarmVM) -> bool:
    """Whether the pool probes the VM: it must run and be unclaimed. The claim controller probes claimed VMs."""
    if not vm.unclaimed or vm.deleting:
        return False
    return pool.spec.ec2 is not None or vmi_health(vm, pool.spec.readiness).verdict == "Healthy"
