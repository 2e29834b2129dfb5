"""Scale-in: which VMs a pool deletes when it has too many, and why it cannot delete others."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from controllers.pool.actions import Action, Delete
from controllers.pool.disruption_budget import DisruptionBudget
from controllers.pool.selection import sort_victims
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.conditions import join_names
from controllers.shared.vm import VM
from kinds import meta
from kinds.pool_strategies import EmptyObject, ScaleInOpportunistic, ScaleInProactive, SelectionPolicy

UNPROTECTED = ("", "First")
"""Values of poolhouse.dev/scale-in. Any other value protects the VM: `Protect`, and misspelt ones."""


def scale_in(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    retain = retains_disks(snapshot)
    reason = f"{len(snapshot.active)} VMs exist, {snapshot.pool.spec.replicas} are wanted"
    for vm in select_victims(snapshot)[: snapshot.burst]:
        yield Delete(vm.name, vm.uid, vm.resource_version, reason, retain)


def select_victims(snapshot: PoolSnapshot) -> list[VM]:
    """The VMs to delete, in order. Where too few VMs would stay available, unavailable ones are deleted instead."""
    excess = len(snapshot.active) - snapshot.pool.spec.replicas
    if excess <= 0:
        return []
    budget, found = DisruptionBudget.of(snapshot), list[VM]()
    for vm in candidates(snapshot):
        if len(found) < excess and not budget.forbids(vm):
            found.append(vm)
            budget = budget.without(vm)
    return found


def candidates(snapshot: PoolSnapshot) -> list[VM]:
    """The VMs that the strategy allows to delete, in order."""
    strategy = snapshot.pool.spec.scale_in_strategy.chosen
    if isinstance(strategy, EmptyObject):
        return []
    found = [vm for vm in snapshot.active if vm.scale_in in UNPROTECTED]
    policy = SelectionPolicy()
    if isinstance(strategy, ScaleInOpportunistic):
        found = [vm for vm in found if vm.halted]
    else:
        policy = strategy.selection_policy
    # A VM with our finalizer comes first: a controller that was killed had begun its deletion.
    return sorted(sort_victims(found, policy), key=lambda vm: (not vm.retains_disks, vm.scale_in != "First"))


def retains_disks(snapshot: PoolSnapshot) -> bool:
    strategy = snapshot.pool.spec.scale_in_strategy.chosen
    return not isinstance(strategy, EmptyObject) and strategy.state_preservation == "Offline"


def blocked_reason(snapshot: PoolSnapshot) -> str:
    """Why the pool keeps too many VMs, or ""."""
    excess = len(snapshot.active) - snapshot.pool.spec.replicas
    possible = len(select_victims(snapshot))
    if excess <= possible:
        return ""
    if len(candidates(snapshot)) >= excess:
        minimum = DisruptionBudget.of(snapshot).min_available
        return f"{excess} VMs are too many, {possible} can be deleted now: {minimum} must stay available"
    match snapshot.pool.spec.scale_in_strategy.chosen:
        case ScaleInProactive():
            why = f"{_protected(snapshot)} by {meta.SCALE_IN}"
        case ScaleInOpportunistic():
            why = "the strategy is opportunistic, and the other VMs are not halted or are protected"
        case _:
            why = "the strategy is unmanaged: delete VMs yourself"
    return f"{excess} VMs are too many, {possible} can be deleted: {why}"


def with_invalid_scale_in(snapshot: PoolSnapshot) -> list[VM]:
    """VMs whose poolhouse.dev/scale-in has an invalid value."""
    return [vm for vm in snapshot.active if vm.scale_in not in (*UNPROTECTED, "Protect")]


def _protected(snapshot: PoolSnapshot) -> str:
    names = sorted(vm.name for vm in snapshot.active if vm.scale_in not in UNPROTECTED)
    return f"{join_names(names)} {'is' if len(names) == 1 else 'are'} protected"
