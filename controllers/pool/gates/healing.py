"""The gates that only healing has."""

from datetime import datetime

from controllers.pool.gates.disruptions import Answer, Disruption, Taken
from controllers.pool.healing_status import circuit_breaker, disk_at_risk, failing, may_probe, pause_end
from controllers.pool.selection import STUCK
from controllers.pool.snapshot import PoolSnapshot, once
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.kinds.pool import Healing


def pause_refusal(snapshot: PoolSnapshot, vm: VM, now: datetime) -> str:
    """Why a VM that was replaced before is not replaced again now, or ""."""
    known = (snapshot.pool.status.healing or Healing()).vms
    found = next((each for each in known if each.name == vm.name), None)
    if found is None or now >= (end := pause_end(found, now)):
        return ""
    return f"it was replaced {count_noun(found.attempts, 'time')}, and is not replaced again before {format_time(end)}"


def breaker_refusal(snapshot: PoolSnapshot, now: datetime) -> str:
    """Why no VM is replaced now, or "". After its pause the open circuit breaker lets one VM through."""
    breaker = circuit_breaker(snapshot, now)
    return breaker.message or "" if breaker is not None and breaker.open and not may_probe(snapshot, now) else ""


def budget_refusal(snapshot: PoolSnapshot, replaced: int, now: datetime) -> str:
    """Why no further VM is replaced than the `replaced` ones of this plan, or ""."""
    breaker, progress = circuit_breaker(snapshot, now), _in_progress(snapshot, now)
    if breaker is not None and breaker.open:
        return f"one VM is replaced to try whether it helps: {breaker.message}" if replaced else ""
    if replaced + progress < snapshot.pool.max_unavailable:
        return ""
    in_progress = count_noun(replaced + progress, "VM", "is", "are")
    return f"{in_progress} in progress, maxUnavailable is {snapshot.pool.max_unavailable}"


@once
def _in_progress(snapshot: PoolSnapshot, now: datetime) -> int:
    """The number of VMs that are missing, or unavailable but likely to become available."""
    failed = {vm.uid for vm, _ in failing(snapshot, now)}
    # A VM that waits for something outside it may wait for ever, so it does not hold up the healing of others.
    return snapshot.missing + sum(
        vm.should_run and not vm.available and vm.uid not in failed and vm.printable_status not in STUCK
        for vm in snapshot.active
    )


def disks_at_risk(snapshot: PoolSnapshot, now: datetime, wanted: Disruption, taken: Taken) -> Answer:
    """Healing deletes a VM with its disks."""
    return disk_at_risk(snapshot, wanted.vm)


def healing_pause(snapshot: PoolSnapshot, now: datetime, wanted: Disruption, taken: Taken) -> Answer:
    return pause_refusal(snapshot, wanted.vm, now) or breaker_refusal(snapshot, now)


def healing_budget(snapshot: PoolSnapshot, now: datetime, wanted: Disruption, taken: Taken) -> Answer:
    return budget_refusal(snapshot, len(taken.stopped), now)
