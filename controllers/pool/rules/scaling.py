"""Selects the VMs that a pool creates and deletes, explains a blocked scale-in, and releases retained disks."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import Any

from controllers.pool.actions import (
    Action,
    Create,
    Delete,
    RemoveFinalizer,
    SaveRevision,
)
from controllers.pool.disk_templates import uses_replaced_disk
from controllers.pool.gates.disruptions import Cause, Disruption
from controllers.pool.gates.surge import extra_vms, is_replaced
from controllers.pool.gates.zones import in_zone_order
from controllers.pool.machine_types import machine_type
from controllers.pool.progress import deadline_exceeded
from controllers.pool.reasons import PoolReason
from controllers.pool.replacement import disks_of_new_vm
from controllers.pool.replacement import retain as retain_disks
from controllers.pool.rules.autohealing import was_healed
from controllers.pool.rules.rule import Plan, Rule
from controllers.pool.rules.steps import stable_revision, update_limit, with_template
from controllers.pool.selection import DisruptionBudget, random_rank, rank
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.conditions import condition, names_and_verb
from controllers.shared.names import MAX_NAME, free_ordinals, name_of
from controllers.shared.vm import UNPROTECTED, VM
from poolhouse.api.apimachinery.counting import count_noun, count_of, count_verb
from poolhouse.api.apimachinery.timestamps import parse_time
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.metav1 import Condition
from poolhouse.api.kinds.pool_strategies import EmptyObject, ScaleInOpportunistic, ScaleInProactive, SelectionPolicy

DELETION_TIMEOUT = timedelta(minutes=5)
"""Time limit for a VM that is being deleted. Then the pool creates a VM with another ordinal."""


def scale_out(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """Uses the lowest free ordinals.

    The pool waits for the deletion of a VM to reuse its name. The new VM gets the disks that were retained for the
    name, and the names of the pool stay the same."""
    extra = 0 if deadline_exceeded(snapshot, now) else extra_vms(snapshot, now)
    wanted = snapshot.pool.spec.replicas + extra
    missing = wanted - len(snapshot.counted) - len(_awaited(snapshot, now))
    if missing <= 0 or snapshot.disk_conflict:
        return
    reason = count_of(len(snapshot.counted), wanted, "VM", "exists", "exist")
    if extra:
        reason += f", {extra} more than replicas during the update"
    returning = {disk.retained_for for disk in snapshot.retained_disks if not disk.replaced}
    found = []
    stable, left = stable_revision(snapshot), _left_for_template(snapshot, now, surges=extra > 0)
    for ordinal in free_ordinals(snapshot.taken_ordinals, min(missing, snapshot.burst), snapshot.pool.first_ordinal):
        name = name_of(snapshot.pool.name, ordinal)
        if len(name) > MAX_NAME:
            break  # admission does not know the numbers of detached VMs; `why_not_started` tells
        deleted = was_healed(snapshot, name) or name in snapshot.recently_deleted
        # The store may not show yet that a disk of this name was replaced.
        after_deletion = snapshot.pool.replaces_disks or (deleted and name not in returning)
        # While steps or a partition hold the new template back, a new VM gets the one that it would have had before.
        revision = snapshot.revision if left > 0 or stable is None else stable
        left -= 1
        disks = disks_of_new_vm(snapshot, ordinal, revision, now)
        create = Create(
            name,
            ordinal,
            revision.name,
            reason,
            after_deletion,
            disks.retained,
            disks.names,
            machine_type(snapshot, revision),
        )
        found.append((after_deletion, deleted, create))
    # VMs that may find old disks come last, because the first refusal stops all later creations.
    yield from (create for _, _, create in sorted(found, key=lambda each: each[:2]))


def _left_for_template(snapshot: PoolSnapshot, now: datetime, *, surges: bool) -> int:
    """How many more VMs may have the new template."""
    # A VM that a new VM replaces leaves its place to that VM, also if it has the template and lacks a restart.
    leaving = sum(is_replaced(snapshot, vm) and not snapshot.outdated(vm) for vm in snapshot.counted) if surges else 0
    return update_limit(snapshot, now).allowed - with_template(snapshot) + leaving


def save_new_revision(snapshot: PoolSnapshot, found: Iterable[Action]) -> Iterator[SaveRevision]:
    """Saves the revision before VMs get it."""
    if not snapshot.revision_saved and any(found):
        yield SaveRevision(snapshot.revision.name, snapshot.revision.number, "the template is new")


def seconds_until_deletion_timeout(snapshot: PoolSnapshot, now: datetime) -> float | None:
    if snapshot.pool.spec.replicas <= len(snapshot.counted):
        return None
    ends = [parse_time(vm.deleted_at) + DELETION_TIMEOUT - now for vm in _awaited(snapshot, now)]
    return min(ends).total_seconds() if ends else None


def _awaited(snapshot: PoolSnapshot, now: datetime) -> list[VM]:
    # A deletionTimestamp far in the future was written before the API server's clock was set back.
    return [vm for vm in snapshot.deleting if abs(now - parse_time(vm.deleted_at)) < DELETION_TIMEOUT]


def scale_in(snapshot: PoolSnapshot, now: datetime) -> Iterator[Disruption]:
    """Deletes the VMs above `replicas`, or those whose place a VM with the new template has taken."""
    excess = len(snapshot.counted) - snapshot.pool.spec.replicas
    if excess <= 0:
        return
    wanted = count_verb(snapshot.pool.spec.replicas, "is", "are")
    reason = f"{count_noun(len(snapshot.counted), 'VM', 'exists', 'exist')}, {wanted} wanted"
    found, cause = candidates(snapshot), _cause(snapshot, now)
    if cause == "Replacement":
        # VMs that are not available come first, because no VM must take their place before they go.
        found = sorted((vm for vm in found if is_replaced(snapshot, vm)), key=lambda vm: vm.available)
    for vm in found:
        why = f"another VM has taken its place: {reason}" if is_replaced(snapshot, vm) else reason
        yield Disruption(vm, cause, partial(deletion, snapshot, vm, why))


def most_deletions(snapshot: PoolSnapshot, now: datetime) -> int:
    """How many VMs scale-in may choose."""
    excess = len(snapshot.counted) - snapshot.pool.spec.replicas
    return max(0, excess if _cause(snapshot, now) == "Replacement" else excess - extra_vms(snapshot, now))


def _cause(snapshot: PoolSnapshot, now: datetime) -> Cause:
    excess = len(snapshot.counted) - snapshot.pool.spec.replicas
    return "Replacement" if snapshot.pool.surges and excess <= extra_vms(snapshot, now) else "ScaleIn"


def deletion(snapshot: PoolSnapshot, vm: VM, reason: str) -> Action | None:
    """Deletes the VM for good, as the scale-in strategy says for its disks. None while its disks are being retained."""
    if not vm.replaced_disks:
        retain = snapshot.pool.spec.scale_in_strategy.retains_disks
        return Delete(vm.name, vm.uid, vm.resource_version, reason, retain, vm.may_become_available)
    # Its replaced disks would be deleted with it. Those that its VMI no longer uses are being retained.
    return retain_disks(vm, "the VM is about to be deleted") if uses_replaced_disk(vm) else None


def candidates(snapshot: PoolSnapshot) -> list[VM]:
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


def blocked_reason(snapshot: PoolSnapshot, possible: int, now: datetime) -> str:
    """Why the pool keeps too many VMs, or "", if `possible` of them can be deleted now."""
    excess = len(snapshot.counted) - snapshot.pool.spec.replicas - extra_vms(snapshot, now)
    if excess <= possible:
        return ""
    too_many = f"{count_noun(excess, 'VM', 'is', 'are')} too many"
    if len(candidates(snapshot)) >= excess:
        minimum = DisruptionBudget.of(snapshot).min_available
        return f"{too_many}, {possible} can be deleted now: {minimum} must stay available"
    match snapshot.pool.spec.scale_in_strategy.chosen:
        case ScaleInProactive():
            protected = [vm.name for vm in snapshot.counted if vm.protected]
            why = f"{names_and_verb(protected, 'is', 'are')} protected by {meta.SCALE_IN}"
        case ScaleInOpportunistic():
            why = "the strategy is opportunistic, and the other VMs are not halted or are protected"
        case _:
            why = "the strategy is unmanaged: delete VMs yourself"
    return f"{too_many}, {possible} can be deleted: {why}"


def with_invalid_scale_in(snapshot: PoolSnapshot) -> list[VM]:
    return [vm for vm in snapshot.active if vm.scale_in not in (*UNPROTECTED, "Protect")]


def cancel_deletions(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """Removes finalizers that an earlier process left: it stopped before it deleted the VM."""
    if len(snapshot.counted) > snapshot.pool.spec.replicas:
        return
    for vm in snapshot.counted:
        if vm.retains_disks:
            yield RemoveFinalizer(vm.name, vm.uid, vm.resource_version, "it stays")


def _conditions(snapshot: PoolSnapshot, plan: Plan, now: datetime) -> Iterator[Condition]:
    reason = PoolReason.NO_CANDIDATES if plan.blocked else PoolReason.NOT_BLOCKED
    yield condition("ScaleInBlocked", bool(plan.blocked), reason, plan.blocked)


SCALE_OUT = Rule(scale_out, before=save_new_revision, again=(seconds_until_deletion_timeout,))
SCALE_IN = Rule(
    scale_in,
    most=most_deletions,
    transition="Terminating",
    in_bursts=True,
    # The condition ScaleInBlocked has the reason.
    reports=False,
    steps=(cancel_deletions,),
    conditions=_conditions,
)
