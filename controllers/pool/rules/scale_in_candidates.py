"""The VMs that scale-in may delete, in order, and why a pool keeps more VMs than `replicas`."""

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from controllers.pool.selection import random_rank, rank
from controllers.pool.snapshot import PoolSnapshot, once
from controllers.pool.surge import extra_vms
from controllers.pool.zones import in_zone_order
from controllers.shared.conditions import names_and_verb
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.pool_strategies import EmptyObject, ScaleInOpportunistic, ScaleInProactive, SelectionPolicy


@once
def candidates(snapshot: PoolSnapshot) -> Sequence[VM]:
    """The VMs that the strategy allows to delete, in the order of the selection policy. Of VMs that the policy ranks
    alike, those of the zone with the most VMs come first, as in an Auto Scaling group."""
    strategy = snapshot.pool.spec.scale_in_strategy.chosen
    if isinstance(strategy, EmptyObject):
        return []
    found = [vm for vm in snapshot.counted if not vm.protected]
    policy = SelectionPolicy()
    if isinstance(strategy, ScaleInOpportunistic):
        found = [vm for vm in found if vm.halted]
    else:
        policy = strategy.selection_policy

    # A VM with the pool's finalizer comes first, because an earlier process began its deletion. So does a VM that is
    # held before its deletion.
    def place(vm: VM) -> tuple[Any, ...]:
        replaced = snapshot.pool.surges and snapshot.outdated(vm)
        return not vm.retains_disks, not vm.terminating, not replaced, vm.scale_in != "First", rank(vm, policy)

    places = {vm.uid: place(vm) for vm in found}
    in_order = sorted(found, key=lambda vm: (places[vm.uid], random_rank(vm)))
    return in_zone_order(snapshot, (group for _, group in groupby(in_order, key=lambda vm: places[vm.uid])))


def _excess(snapshot: PoolSnapshot, now: datetime) -> int:
    return len(snapshot.counted) - snapshot.pool.spec.replicas - extra_vms(snapshot, now)


def has_candidates(snapshot: PoolSnapshot, now: datetime) -> bool:
    """Whether the strategy allows to delete all VMs that are too many, once the gates let them through."""
    return len(candidates(snapshot)) >= _excess(snapshot, now)


def blocked_reason(snapshot: PoolSnapshot, possible: int, waiting: str, now: datetime) -> str:
    """Why the pool keeps too many VMs, or "", if `possible` of them can be deleted now. The others wait at a gate."""
    excess = _excess(snapshot, now)
    if excess <= possible:
        return ""
    too_many = f"{count_noun(excess, 'VM', 'is', 'are')} too many"
    if has_candidates(snapshot, now):
        return f"{too_many}, {possible} can be deleted now: {waiting}"
    match snapshot.pool.spec.scale_in_strategy.chosen:
        case ScaleInProactive():
            protected = [vm.name for vm in snapshot.counted if vm.protected]
            why = f"{names_and_verb(protected, 'is', 'are')} protected by {meta.SCALE_IN}"
        case ScaleInOpportunistic():
            why = "the strategy is opportunistic, and the other VMs are not halted or are protected"
        case _:
            why = "the strategy is unmanaged: delete VMs yourself"
    return f"{too_many}, {possible} can be deleted: {why}"
