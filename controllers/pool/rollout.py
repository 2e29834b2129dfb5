"""Updates VMs to the pool's template within the disruption budget, and deletes revisions that no VM needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class _Rollout:
    """What the rules decide from. The budget shrinks with each VM that is taken."""

    snapshot: PoolSnapshot
    proactive: bool
    stopped: str
    """why the update has stopped, or "" """
    budget: DisruptionBudget


def _decisions(snapshot: PoolSnapshot, now: datetime) -> Iterator[Decision]:
    """One decision for every VM that is not as the template requires, in the order of the selection policy."""
    strategy = snapshot.pool.spec.update_strategy
    vms = _in_order(snapshot)
    if strategy.unmanaged is not None:
        yield from (Waiting(vm.name, "the update strategy is unmanaged") for vm in vms)
        return
    if not vms:
        return
    proactive = isinstance(strategy.chosen, UpdateProactive)
    rollout = _Rollout(snapshot, proactive, deadline_exceeded(snapshot, now), DisruptionBudget.of(snapshot))
    for vm in vms:
        found = next((decision for rule in RULES if (decision := rule(rollout, vm))), None)
        if found is None:
            rollout = replace(rollout, budget=rollout.budget.without(vm, begun=update_has_begun(snapshot, vm)))
            found = _update(snapshot, vm, "the template has changed") if snapshot.outdated(vm) else _restart(vm)
        yield found


def _in_order(snapshot: PoolSnapshot) -> list[VM]:
    """VMs whose update has begun come first: they count as in progress already. Refused ones come last of their kind,
    because they must not block the others."""
    behind = [vm for vm in snapshot.active if snapshot.outdated(vm) or snapshot.needs_restart(vm)]
    if snapshot.pool.spec.update_strategy.unmanaged is not None:
        return behind
    chosen = snapshot.pool.spec.update_strategy.chosen
    policy = chosen.selection_policy if isinstance(chosen, UpdateProactive) else SelectionPolicy()
    outdated = sort_victims([vm for vm in behind if snapshot.outdated(vm)], policy)
    outdated.sort(key=lambda vm: has_revision(vm.name, snapshot.revision.label) in snapshot.refused)
    updated = [vm for vm in behind if not snapshot.outdated(vm)]
    begun = [vm for vm in updated if update_has_begun(snapshot, vm)]
    return [*begun, *outdated, *(vm for vm in updated if not update_has_begun(snapshot, vm))]


# Rules: the first decision holds. A VM without a decision is updated or restarted within the budget.

Rule = Callable[[_Rollout, VM], Decision | None]


def _foreign_name(rollout: _Rollout, vm: VM) -> Decision | None:
    pool = rollout.snapshot.pool.name
    if vm.ordinal is not None and vm.base_name == pool:
        return None
    return Waiting(vm.name, f"its name does not match the pool's pattern {pool}-NUMBER, so it has no template")


def _foreign_disk(rollout: _Rollout, vm: VM) -> Decision | None:
    """The template would give the VM a disk that another VM uses."""
    snapshot = rollout.snapshot
    wanted = {name_of(disk, vm.ordinal) for disk in disk_names(snapshot.pool.spec.template)} if vm.ordinal else set()
    new = wanted.difference(vm.disks)
    if others := sorted(new & snapshot.foreign_disks.keys()):
        owner = snapshot.foreign_disks[others[0]]
        return Waiting(vm.name, f"the template gives it disk {others[0]}, {owner}: give the disk another name")
    return Waiting(vm.name, snapshot.disk_conflict.message) if new and snapshot.disk_conflict else None


def _halted(rollout: _Rollout, vm: VM) -> Decision | None:
    snapshot = rollout.snapshot
    return _update(snapshot, vm, "it is halted") if vm.halted and snapshot.outdated(vm) else None


def _opportunistic(rollout: _Rollout, vm: VM) -> Decision | None:
    reason = "the update strategy is opportunistic, and it is not halted"
    return None if rollout.proactive else Waiting(vm.name, reason)


def _without_restart(rollout: _Rollout, vm: VM) -> Decision | None:
    if rollout.snapshot.needs_restart(vm):
        return None
    return _update(rollout.snapshot, vm, "the change needs no restart" if vm.vmi else "it is not running yet")


def _at_next_start(rollout: _Rollout, vm: VM) -> Decision | None:
    if may_be_restarted(vm):
        return None
    reason = f"its run strategy is {vm.run_strategy}: it gets the new template at its next start"
    return _update(rollout.snapshot, vm, reason) if rollout.snapshot.outdated(vm) else Waiting(vm.name, reason)


def _stopped(rollout: _Rollout, vm: VM) -> Decision | None:
    return Waiting(vm.name, rollout.stopped) if rollout.stopped else None


def _over_budget(rollout: _Rollout, vm: VM) -> Decision | None:
    refusal = rollout.budget.refusal(vm, begun=update_has_begun(rollout.snapshot, vm))
    return Waiting(vm.name, refusal) if refusal else None


RULES: tuple[Rule, ...] = (
    _foreign_name,
    _foreign_disk,
    _halted,
    _opportunistic,
    _without_restart,
    _at_next_start,
    _stopped,
    _over_budget,
)


def _restart(vm: VM) -> Restart:
    assert vm.vmi is not None
    return Restart(vm.name, vm.vmi.uid, vm.run_strategy in RESTARTED_BY_REQUEST, "the template has changed")


def _update(snapshot: PoolSnapshot, vm: VM, reason: str) -> Update:
    assert vm.ordinal is not None
    return Update(vm.name, vm.uid, vm.ordinal, vm.revision, snapshot.revision.label, reason)
