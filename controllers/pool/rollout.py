"""Updates VMs to the pool's template within the disruption budget, and deletes revisions that no VM needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from controllers.pool.actions import Action, PruneRevision, Restart, SaveRevision, Update
from controllers.pool.disruption_budget import (
    RESTARTED_BY_REQUEST,
    DisruptionBudget,
    may_be_restarted,
    update_has_begun,
)
from controllers.pool.naming import has_revision, name_of
from controllers.pool.progress import deadline_exceeded
from controllers.pool.selection import sort_victims
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.disks import disk_names
from controllers.shared.vm import VM
from kinds.pool_strategies import SelectionPolicy, UpdateProactive


@dataclass(frozen=True)
class Waiting:
    """A VM that needs an action, and why the action must wait."""

    name: str
    reason: str


Decision = Update | Restart | Waiting


def roll_out(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    found = [each for each in _decisions(snapshot, now) if not isinstance(each, Waiting)][: snapshot.burst]
    if any(isinstance(each, Update) for each in found) and not snapshot.revision_saved:
        yield SaveRevision(snapshot.revision.name, snapshot.revision.number, "the template has changed")
    yield from found


def waiting(snapshot: PoolSnapshot, now: datetime) -> tuple[Waiting, ...]:
    return tuple(each for each in _decisions(snapshot, now) if isinstance(each, Waiting))


def prune_revisions(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """Keeps the revisions that a VM or VMI has, and as many others as revisionHistoryLimit allows."""
    needed = {vm.revision for vm in snapshot.vms} | {vm.vmi.revision for vm in snapshot.vms if vm.vmi}
    idle = [each for each in snapshot.revisions if each.label not in needed and each.name != snapshot.revision.name]
    oldest_first = sorted(idle, key=lambda each: each.number)
    limit = snapshot.pool.spec.revision_history_limit
    for each in oldest_first[: max(0, len(idle) - limit)]:
        yield PruneRevision(each.name, f"revisionHistoryLimit is {limit}")


def _decisions(snapshot: PoolSnapshot, now: datetime) -> Iterator[Decision]:
    """One decision for every VM that is not as the template requires, in the order of the selection policy."""
    strategy = snapshot.pool.spec.update_strategy
    behind = [vm for vm in snapshot.active if snapshot.outdated(vm) or snapshot.needs_restart(vm)]
    if strategy.unmanaged is not None:
        yield from (Waiting(vm.name, "the update strategy is unmanaged") for vm in behind)
        return
    if not behind:
        return
    stopped, budget = deadline_exceeded(snapshot, now), DisruptionBudget.of(snapshot)
    for vm in _in_order(snapshot, behind):
        begun = update_has_begun(snapshot, vm)
        found = _obstacle(snapshot, vm) or _without_disruption(snapshot, vm)
        if found is None and (refusal := stopped or budget.refusal(vm, begun=begun)):
            found = Waiting(vm.name, refusal)
        if found is None:
            budget = budget.without(vm, begun=begun)
            found = _update(snapshot, vm, "the template has changed") if snapshot.outdated(vm) else _restart(vm)
        yield found


def _in_order(snapshot: PoolSnapshot, behind: list[VM]) -> list[VM]:
    """VMs whose update has begun come first: they count as in progress already. Refused ones come last of their kind,
    because they must not block the others."""
    chosen = snapshot.pool.spec.update_strategy.chosen
    policy = chosen.selection_policy if isinstance(chosen, UpdateProactive) else SelectionPolicy()
    outdated = sort_victims([vm for vm in behind if snapshot.outdated(vm)], policy)
    outdated.sort(key=lambda vm: has_revision(vm.name, snapshot.revision.label) in snapshot.refused)
    updated = [vm for vm in behind if not snapshot.outdated(vm)]
    begun = [vm for vm in updated if update_has_begun(snapshot, vm)]
    return [*begun, *outdated, *(vm for vm in updated if not update_has_begun(snapshot, vm))]


def _obstacle(snapshot: PoolSnapshot, vm: VM) -> Waiting | None:
    """The VM has another name than the pool's VMs, or the template would give it a disk that another VM uses."""
    pool = snapshot.pool
    if vm.ordinal is None or vm.base_name != pool.name:
        return Waiting(vm.name, f"its name does not match the pool's pattern {pool.name}-NUMBER, so it has no template")
    new = {name_of(disk, vm.ordinal) for disk in disk_names(pool.spec.template)}.difference(vm.disks)
    if others := sorted(new & snapshot.foreign_disks.keys()):
        owner = snapshot.foreign_disks[others[0]]
        return Waiting(vm.name, f"the template gives it disk {others[0]}, {owner}: give the disk another name")
    return Waiting(vm.name, snapshot.disk_conflict.message) if new and snapshot.disk_conflict else None


def _without_disruption(snapshot: PoolSnapshot, vm: VM) -> Decision | None:
    """The decision for a VM that is not to be stopped; None for others."""
    if vm.halted and snapshot.outdated(vm):
        return _update(snapshot, vm, "it is halted")
    if not isinstance(snapshot.pool.spec.update_strategy.chosen, UpdateProactive):
        return Waiting(vm.name, "the update strategy is opportunistic, and it is not halted")
    if not snapshot.needs_restart(vm):
        return _update(snapshot, vm, "the change needs no restart" if vm.vmi else "it is not running yet")
    if not may_be_restarted(vm):
        reason = f"its run strategy is {vm.run_strategy}: it gets the new template at its next start"
        return _update(snapshot, vm, reason) if snapshot.outdated(vm) else Waiting(vm.name, reason)
    return None


def _restart(vm: VM) -> Restart:
    assert vm.vmi is not None
    return Restart(vm.name, vm.vmi.uid, vm.run_strategy in RESTARTED_BY_REQUEST, "the template has changed")


def _update(snapshot: PoolSnapshot, vm: VM, reason: str) -> Update:
    assert vm.ordinal is not None
    return Update(vm.name, vm.uid, vm.ordinal, vm.revision, snapshot.revision.label, reason)
