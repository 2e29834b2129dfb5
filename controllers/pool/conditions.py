"""All conditions of a pool except Ready, Reconciling and Stalled, which follow from them."""

from collections.abc import Iterator
from datetime import datetime

from controllers.pool.causes import count_failing, with_cause
from controllers.pool.counts import count_vms
from controllers.pool.outages import lost_vms
from controllers.pool.progressing import progressing
from controllers.pool.reasons import PoolReason
from controllers.pool.rules import table as rules
from controllers.pool.rules.rule import Plan
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.conditions import condition
from controllers.shared.replica_limits import scaling_limited
from poolhouse.api.apimachinery.counting import count_noun, join_first
from poolhouse.api.kinds.metav1 import Condition


def conditions(snapshot: PoolSnapshot, plan: Plan, now: datetime) -> Iterator[Condition]:
    yield _available(snapshot)
    if snapshot.pool.spec.paused:
        message = "spec.paused is true: the controller does nothing to the pool's VMs"
        yield condition("Paused", True, PoolReason.PAUSED, message)
    else:
        yield condition("Paused", False, PoolReason.RESUMED)
    if snapshot.failure:
        yield condition("ReplicaFailure", True, snapshot.failure.reason, snapshot.failure.message)
    else:
        yield condition("ReplicaFailure", False, PoolReason.NO_FAILURE)
    yield scaling_limited(snapshot.excess, PoolReason.TOO_MANY_REPLICAS, PoolReason.WITHIN_LIMIT)
    if snapshot.shared_disks:
        yield condition("DisksShared", True, PoolReason.DISK_CONFLICT, _shared_disks(snapshot))
    else:
        yield condition("DisksShared", False, PoolReason.NO_DISK_CONFLICT)
    for rule in rules.RULES:
        yield from rule.conditions(snapshot, plan, now)
    yield progressing(snapshot, plan, now)


def _available(snapshot: PoolSnapshot) -> Condition:
    """The condition Available of the VMs that should run. A pool without any VM is not available."""
    counts, limit = count_vms(snapshot), snapshot.pool.max_unavailable
    down = counts.unavailable - counts.halting
    halting = f", {counts.halting} of them being halted" if counts.halting else ""
    message = f"{count_noun(counts.unavailable, 'VM', 'is', 'are')} unavailable{halting}, maxUnavailable is {limit}"
    message = with_cause(snapshot, message)
    if down <= limit and (not snapshot.missing or snapshot.active):
        return condition("Available", True, PoolReason.MINIMUM_REPLICAS_AVAILABLE, message)
    lost, failing = len(lost_vms(snapshot)), count_failing(snapshot)
    if down - lost <= limit < down:
        return condition("Available", False, PoolReason.NODE_NOT_READY, message)
    if down - lost - failing <= limit < down:
        return condition("Available", False, PoolReason.FAILED_START, message)
    return condition("Available", False, PoolReason.MINIMUM_REPLICAS_UNAVAILABLE, message)


def _shared_disks(snapshot: PoolSnapshot) -> str:
    named = [f"VM {name} has disk {disk}" for name, disk in sorted(snapshot.shared_disks.items())]
    shown = join_first(named, separator="; ")
    return f"{shown}: two VMs that write to one disk destroy it, so stop all of them but one"
