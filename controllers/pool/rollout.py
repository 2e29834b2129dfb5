"""Updates VMs within the disruption budget, and deletes unused revisions."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from controllers.pool.actions import (
    Action,
    AdoptRevision,
    LabelVMI,
    PruneRevision,
    Restart,
    Restore,
    RewriteRevision,
    SaveRevision,
    TakeSnapshot,
    Update,
)
from controllers.pool.before_update import before_update, is_needed
from controllers.pool.disk_templates import carried_over, disks_by_entry
from controllers.pool.progress import deadline_exceeded
from controllers.pool.replacement import annotations, disk_replacements, unready_disk
from controllers.pool.restores import awaits_restore, begin, continue_restore, requested_restore, restore_of
from controllers.pool.selection import (
    DisruptionBudget,
    is_prepared,
    may_be_restarted,
    restart,
    sort_victims,
    update_has_begun,
)
from controllers.pool.snapshot import PoolSnapshot, once
from controllers.pool.steps import update_limit, with_template
from controllers.pool.surge import is_replaced, replacement_reason
from controllers.pool.vm_snapshots import VMSnapshot
from controllers.pool.waiting import Waiting
from controllers.pool.windows import refusal_of_updates
from controllers.pool.zones import ZoneGuard
from controllers.shared.conditions import join_names
from controllers.shared.data_sources import describe_changes
from controllers.shared.names import has_revision, name_of
from controllers.shared.vm import VM, disk_names
from kinds import meta
from kinds.pool_strategies import SelectionPolicy, UpdateProactive

UNMANAGED = "the update strategy is unmanaged"
Decision = Update | Restart | TakeSnapshot | Restore | Waiting


def roll_out(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    found = [each for each in _decisions(snapshot, now) if not isinstance(each, Waiting)][: snapshot.burst]
    # A revision that somebody has deleted is written again while VMs have it: the next update needs it.
    needed = any(vm.revision == snapshot.revision.label for vm in snapshot.active)
    needed = needed or any(isinstance(each, Update) for each in found)
    if needed and not snapshot.revision_saved:
        yield SaveRevision(snapshot.revision.name, snapshot.revision.number, _what_changed(snapshot, None))
    yield from found


def waiting(snapshot: PoolSnapshot, now: datetime) -> tuple[Waiting, ...]:
    return tuple(each for each in _decisions(snapshot, now) if isinstance(each, Waiting))


def stops(snapshot: PoolSnapshot, now: datetime) -> set[str]:
    """UIDs of the VMs that the next updates and restarts concern."""
    names = {each.name for each in _decisions(snapshot, now) if not isinstance(each, Waiting)}
    return {vm.uid for vm in snapshot.active if vm.name in names}


def keep_disks(snapshot: PoolSnapshot) -> Iterator[Waiting]:
    """VMs whose disks were created from an older template. No update changes a disk that exists."""
    for vm in snapshot.active:
        left = set(snapshot.outdated_disks(vm)).difference(snapshot.disks_to_replace(vm))
        if left and not is_replaced(snapshot, vm) and vm.ordinal is not None:
            known = snapshot.disks_by_entry(vm)
            disks = join_names(known.get(name, name_of(name, vm.ordinal)) for name in sorted(left))
            protects = vm.protected and (snapshot.replaces_disks or snapshot.surges)
            why = f" {meta.SCALE_IN} protects the VM." if protects else ""
            yield Waiting(
                vm.name, f"{disks}: the template has changed, but not the disk.{why} A new VM gets a new disk"
            )


def prune_revisions(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """Keeps the revisions of VMs and VMIs, and as many others as revisionHistoryLimit allows."""
    needed = {vm.revision for vm in snapshot.vms} | {vm.vmi.revision for vm in snapshot.vms if vm.vmi}
    # The former template must stay until all VMs have the new one: an update may be rolled back.
    kept = {snapshot.revision.name, snapshot.pool.status.current_revision}
    idle = [each for each in snapshot.revisions if each.label not in needed and each.name not in kept]
    oldest_first = sorted(idle, key=lambda each: each.number)
    limit = snapshot.pool.spec.revision_history_limit
    for each in oldest_first[: max(0, len(idle) - limit)]:
        yield PruneRevision(each.name, f"revisionHistoryLimit is {limit}")


def label_vmis(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """Brings the VMIs up to date whose revision differs from the pool's, but not in anything that needs a restart."""
    for vm in snapshot.active:
        ours = vm.ordinal is not None and vm.base_name == snapshot.pool.name and not snapshot.outdated(vm)
        if not ours or vm.vmi is None or vm.vmi.deleting or vm.vmi.final or snapshot.needs_restart(vm):
            continue
        if vm.vmi.revision != snapshot.revision.label:
            assert vm.ordinal is not None
            reason = "the change needs no restart"
            yield LabelVMI(vm.name, vm.vmi.uid, vm.ordinal, vm.vmi.revision, reason)


def rewrite_revisions(snapshot: PoolSnapshot) -> Iterator[Action]:
    for each in snapshot.revisions:
        if not each.orphanable:
            yield RewriteRevision(each.name, "the garbage collector cannot orphan it")


def adopt_revisions(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """Without an owner, a revision would outlive the pool."""
    for each in snapshot.revisions:
        if not each.owned and each.orphanable:
            yield AdoptRevision(each.name, each.uid, "it has no owner")


@once
def _decisions(snapshot: PoolSnapshot, now: datetime) -> tuple[Decision, ...]:
    return tuple(_decide(snapshot, now))


def _decide(snapshot: PoolSnapshot, now: datetime) -> Iterator[Decision]:
    """A decision for each VM that does not match the template, in the order of the selection policy."""
    behind = [vm for vm in snapshot.active if _needs_action(snapshot, vm) and not vm.terminating]
    if snapshot.pool.spec.update_strategy.unmanaged is not None:
        yield from (_unmanaged(snapshot, vm) for vm in behind)
    elif behind:
        yield from _decide_in_order(snapshot, _in_order(snapshot, behind), now)


def _unmanaged(snapshot: PoolSnapshot, vm: VM) -> Decision:
    restore = restore_of(snapshot, vm)
    # KubeVirt has halted a VM with a restore, so the pool must start it again.
    return continue_restore(snapshot, vm, restore) if restore else Waiting(vm.name, UNMANAGED)


def _decide_in_order(snapshot: PoolSnapshot, vms: list[VM], now: datetime) -> Iterator[Decision]:
    """Decides about the VMs one after another. A decision to stop a VM leaves less of the disruption budget for the
    VMs after it, and a decision to update a VM leaves fewer updates that the current step allows."""
    stopped, budget = deadline_exceeded(snapshot, now), DisruptionBudget.of(snapshot)
    zones = ZoneGuard.of(snapshot)
    closed = refusal_of_updates(snapshot, now)
    replaced = replacement_reason(snapshot) if snapshot.surges else ""
    limit = update_limit(snapshot, now)
    allowed = limit.allowed - with_template(snapshot)
    for vm in vms:
        if restore := restore_of(snapshot, vm):
            yield continue_restore(snapshot, vm, restore)
            continue
        prepared, source = is_prepared(snapshot, vm), requested_restore(snapshot, vm)
        # An available VM that has the template is not in progress before its restore.
        begun = prepared or (update_has_begun(snapshot, vm) and not (source and vm.available))
        if snapshot.outdated(vm) and allowed <= 0:
            yield Waiting(vm.name, limit.reason or "enough VMs have the template")
            continue
        if is_replaced(snapshot, vm):
            yield Waiting(vm.name, stopped or closed or replaced)
            continue
        found = _obstacle(snapshot, vm) or _without_disruption(snapshot, vm, source) or _unready_disk(snapshot, vm)
        # A maintenance window does not delay a restore, because a user has asked for it.
        outside = closed if vm.available and source is None else ""
        refusal = stopped or outside or zones.refusal(vm) or budget.refusal(vm, begun=begun)
        if found is None and refusal:
            found = Waiting(vm.name, refusal)
        disrupts, found = found is None, found or _disruption(snapshot, vm, source)
        if isinstance(found, Update):
            found = before_update(snapshot, vm, now) or found
        if disrupts and (prepared or not isinstance(found, Waiting)):
            budget, zones = budget.without(vm, begun=begun), zones.without(vm)
        allowed -= isinstance(found, Update | TakeSnapshot | Restore) or (prepared and snapshot.outdated(vm))
        yield found


def _needs_action(snapshot: PoolSnapshot, vm: VM) -> bool:
    return snapshot.outdated(vm) or snapshot.needs_restart(vm) or awaits_restore(snapshot, vm)


def _disruption(snapshot: PoolSnapshot, vm: VM, source: VMSnapshot | None) -> Decision:
    if source is not None:
        return begin(snapshot, vm, source)
    return (
        _update(snapshot, vm, _what_changed(snapshot, vm))
        if snapshot.outdated(vm)
        else restart(vm, "the template has changed")
    )


def _what_changed(snapshot: PoolSnapshot, vm: VM | None) -> str:
    """What is new in the pool's revision for a VM, or since the pool's last revision."""
    if vm is not None:
        before = snapshot.revisions_by_label.get(vm.revision)
    else:
        last = snapshot.pool.status.update_revision
        before = next((each for each in snapshot.revisions if each.name == last), None)
    images = describe_changes(before.sources, snapshot.revision.sources) if before is not None else ""
    return images or "the template has changed"


def _in_order(snapshot: PoolSnapshot, behind: list[VM]) -> list[VM]:
    """VMs whose update has begun come first, because they already count as in progress. Within each group, VMs whose
    update was refused come last, so that they do not block the others."""
    chosen = snapshot.pool.spec.update_strategy.chosen
    policy = chosen.selection_policy if isinstance(chosen, UpdateProactive) else SelectionPolicy()
    outdated = sort_victims([vm for vm in behind if snapshot.outdated(vm)], policy)
    outdated.sort(key=lambda vm: has_revision(vm.name, snapshot.revision.label) in snapshot.refused)
    updated = [vm for vm in behind if not snapshot.outdated(vm)]
    outdated.sort(key=lambda vm: not is_prepared(snapshot, vm))
    begun = [vm for vm in updated if update_has_begun(snapshot, vm)]
    return [*begun, *outdated, *(vm for vm in updated if not update_has_begun(snapshot, vm))]


def _obstacle(snapshot: PoolSnapshot, vm: VM) -> Waiting | None:
    """Why the VM cannot be updated: its name lacks the pool's pattern, or a new disk has another owner."""
    pool = snapshot.pool
    if vm.ordinal is None or vm.base_name != pool.name:
        return Waiting(vm.name, f"its name does not match the pool's pattern {pool.name}-NUMBER, so it has no template")
    known = disks_by_entry(vm.disks, vm.ordinal, disk_names(pool.spec.template))
    new = {name_of(disk, vm.ordinal) for disk in disk_names(pool.spec.template) if disk not in known}
    if others := sorted(new & snapshot.foreign_disks.keys()):
        owner = snapshot.foreign_disks[others[0]]
        return Waiting(vm.name, f"the template gives it disk {others[0]}, {owner}: give the disk another name")
    return Waiting(vm.name, snapshot.disk_conflict.message) if new and snapshot.disk_conflict else None


def _without_disruption(snapshot: PoolSnapshot, vm: VM, source: VMSnapshot | None) -> Decision | None:
    """The decision for a VM that must not or need not be stopped. None for other VMs."""
    if vm.halted and (source is not None or snapshot.outdated(vm)):
        reason = "it is halted: the update starts it" if snapshot.starts(vm) else "it is halted"
        return begin(snapshot, vm, source) if source is not None else _update(snapshot, vm, reason)
    if not isinstance(snapshot.pool.spec.update_strategy.chosen, UpdateProactive):
        return Waiting(vm.name, "the update strategy is opportunistic, and it is not halted")
    if source is not None:
        return None
    if snapshot.outdated(vm) and snapshot.halts(vm):
        return None
    if not snapshot.needs_restart(vm) and not (vm.vmi and snapshot.disks_to_replace(vm)):
        return _update(snapshot, vm, "the change needs no restart" if vm.vmi else "it is not running yet")
    if not may_be_restarted(vm):
        reason = f"its run strategy is {vm.run_strategy}: it gets the new template at its next start"
        return _update(snapshot, vm, reason) if snapshot.outdated(vm) else Waiting(vm.name, reason)
    return None


def _unready_disk(snapshot: PoolSnapshot, vm: VM) -> Waiting | None:
    reason = "" if snapshot.outdated(vm) else unready_disk(snapshot, vm)
    return Waiting(vm.name, reason) if reason else None


def _update(snapshot: PoolSnapshot, vm: VM, reason: str) -> Update:
    assert vm.ordinal is not None
    disks, replaced = carried_over(snapshot.created_from(vm), snapshot.revision.disks), ""
    if replacements := disk_replacements(snapshot, vm):
        disks, replaced = annotations(snapshot, vm, disks, replacements)
        reason = "; ".join([reason, *map(str, replacements)])
    # A snapshot of this stay at the revision must not count for a later stay, even if it is not used.
    counts = is_needed(snapshot, vm) or snapshot.next_snapshot(vm) is not None
    label = snapshot.revision.label
    update = Update(vm.name, vm.uid, vm.ordinal, vm.revision, label, reason, disks, replacements, replaced, counts)
    return replace(update, halts=True, reason=f"{reason}: it halts the VM") if snapshot.halts(vm) else update
