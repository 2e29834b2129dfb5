"""Updates VMs within the disruption budget and progressDeadlineSeconds, and deletes unused revisions."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from apimachinery.timestamps import parse_time
from controllers.pool.actions import (
    Action,
    LabelVMI,
    PruneRevision,
    Restart,
    Restore,
    RewriteRevision,
    SaveRevision,
    TakeSnapshot,
    Update,
)
from controllers.pool.analysis import overdue
from controllers.pool.before_update import before_update, held_by_snapshots, is_needed
from controllers.pool.disk_templates import carried_over, disks_by_entry
from controllers.pool.reasons import PoolReason
from controllers.pool.replacement import annotations, disk_replacements, unready_disk
from controllers.pool.restores import awaits_restore, begin, continue_restore, requested_restore, restore_of
from controllers.pool.selection import (
    RESTARTED_BY_REQUEST,
    DisruptionBudget,
    is_behind,
    is_prepared,
    may_be_restarted,
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
from kinds.pool import PoolStatus
from kinds.pool_strategies import SelectionPolicy, UpdateProactive

UNMANAGED = "the update strategy is unmanaged"
Decision = Update | Restart | TakeSnapshot | Restore | Waiting


def roll_out(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    found = [each for each in _decisions(snapshot, now) if not isinstance(each, Waiting)][: snapshot.burst]
    if any(isinstance(each, Update) for each in found) and not snapshot.revision_saved:
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


@once
def _decisions(snapshot: PoolSnapshot, now: datetime) -> tuple[Decision, ...]:
    return tuple(_decide(snapshot, now))


def _decide(snapshot: PoolSnapshot, now: datetime) -> Iterator[Decision]:
    """A decision for each VM that does not match the template, in the order of the selection policy."""
    strategy = snapshot.pool.spec.update_strategy
    behind = [vm for vm in snapshot.active if _needs_action(snapshot, vm) and not vm.terminating]
    if strategy.unmanaged is not None:
        for vm in behind:
            restore = restore_of(snapshot, vm)
            # KubeVirt has halted this VM, so the pool must start it again.
            yield continue_restore(snapshot, vm, restore) if restore else Waiting(vm.name, UNMANAGED)
        return
    if not behind:
        return
    stopped, budget = deadline_exceeded(snapshot, now), DisruptionBudget.of(snapshot)
    zones = ZoneGuard.of(snapshot)
    closed = refusal_of_updates(snapshot, now)
    replaced = replacement_reason(snapshot) if snapshot.surges else ""
    limit = update_limit(snapshot, now)
    room = limit.allowed - with_template(snapshot)
    for vm in _in_order(snapshot, behind):
        if restore := restore_of(snapshot, vm):
            yield continue_restore(snapshot, vm, restore)
            continue
        prepared, source = is_prepared(snapshot, vm), requested_restore(snapshot, vm)
        # An available VM that has the template is not in progress before its restore.
        begun = prepared or (update_has_begun(snapshot, vm) and not (source and vm.available))
        if snapshot.outdated(vm) and room <= 0:
            yield Waiting(vm.name, limit.reason or "enough VMs have the template")
            continue
        if is_replaced(snapshot, vm):
            yield Waiting(vm.name, stopped or closed or replaced)
            continue
        found = _obstacle(snapshot, vm) or _without_disruption(snapshot, vm, source)
        if found is None and not snapshot.outdated(vm) and (reason := unready_disk(snapshot, vm)):
            found = Waiting(vm.name, reason)
        # A user asks for a restore.
        outside = closed if vm.available and source is None else ""
        refusal = stopped or outside or zones.refusal(vm) or budget.refusal(vm, begun=begun)
        if found is None and refusal:
            found = Waiting(vm.name, refusal)
        disrupts, found = found is None, found or _disruption(snapshot, vm, source)
        if isinstance(found, Update):
            found = before_update(snapshot, vm, now) or found
        if disrupts and (prepared or not isinstance(found, Waiting)):
            budget, zones = budget.without(vm, begun=begun), zones.without(vm)
        room -= isinstance(found, Update | TakeSnapshot | Restore) or (prepared and snapshot.outdated(vm))
        yield found


def _needs_action(snapshot: PoolSnapshot, vm: VM) -> bool:
    return snapshot.outdated(vm) or snapshot.needs_restart(vm) or awaits_restore(snapshot, vm)


def _disruption(snapshot: PoolSnapshot, vm: VM, source: VMSnapshot | None) -> Decision:
    if source is not None:
        return begin(snapshot, vm, source)
    return _update(snapshot, vm, _what_changed(snapshot, vm)) if snapshot.outdated(vm) else _restart(vm)


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
        return begin(snapshot, vm, source) if source is not None else _update(snapshot, vm, "it is halted")
    if not isinstance(snapshot.pool.spec.update_strategy.chosen, UpdateProactive):
        return Waiting(vm.name, "the update strategy is opportunistic, and it is not halted")
    if source is not None:
        return None
    if not snapshot.needs_restart(vm) and not (vm.vmi and snapshot.disks_to_replace(vm)):
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
    disks, replaced = carried_over(snapshot.created_from(vm), snapshot.revision.disks), ""
    if replacements := disk_replacements(snapshot, vm):
        disks, replaced = annotations(snapshot, vm, disks, replacements)
        reason = "; ".join([reason, *map(str, replacements)])
    # A snapshot of this stay at the revision must not count for a later stay, even if it is not used.
    counts = is_needed(snapshot, vm) or snapshot.next_snapshot(vm) is not None
    label = snapshot.revision.label
    return Update(vm.name, vm.uid, vm.ordinal, vm.revision, label, reason, disks, replacements, replaced, counts)


OWN_REASONS = (
    PoolReason.PROGRESS_DEADLINE_EXCEEDED,
    PoolReason.FAILED_UPDATE,
    PoolReason.FAILED_RESTART,
    PoolReason.FAILED_RUN_JOB,
    PoolReason.UPDATE_ABORTED,
)
"""Reasons of Progressing=False that do not restart the deadline. A pool past its deadline updates no VMs, so the API
server cannot refuse an update."""
WAITS = (
    PoolReason.WAITING_FOR_WINDOW,
    PoolReason.UPDATE_PAUSED,
    PoolReason.ANALYSIS_RUNNING,
    PoolReason.ANALYSIS_INCONCLUSIVE,
    PoolReason.UPDATE_ABORTED,
)
"""Reasons of Progressing with which an update waits, as the spec asks. This time does not count for the deadline."""


@once
def count_outdated(snapshot: PoolSnapshot, now: datetime) -> int:
    """The number of VMs that are to be updated or restarted now. Steps and partition keep others waiting."""
    if not _updates_proactively(snapshot):
        return 0
    outdated = sum(snapshot.outdated(vm) for vm in snapshot.active)
    restarts = sum(is_behind(snapshot, vm) for vm in snapshot.active) - outdated
    room = max(0, update_limit(snapshot, now).allowed - with_template(snapshot))
    return restarts + min(outdated, room)


def is_progressing(snapshot: PoolSnapshot, now: datetime) -> bool:
    """Whether VMs are missing, outdated or unavailable."""
    return bool(snapshot.missing or count_outdated(snapshot, now) or not all(vm.available for vm in snapshot.active))


def last_progress(snapshot: PoolSnapshot, fresh: PoolStatus, now: str) -> str | None:
    """The time of the last progress: a new spec, more VMs that exist, are updated or are available, or an update that
    continues.

    For a pool that was complete, it is the time at which a VM first became unavailable."""
    before = snapshot.pool.status
    goal = (fresh.update_revision, fresh.observed_generation)
    progressed = (
        before.last_progress_time is None
        or goal != (before.update_revision, before.observed_generation)
        or fresh.replicas > before.replicas
        or fresh.updated_replicas > before.updated_replicas
        or fresh.available_replicas > before.available_replicas
        or fresh.held_replicas != before.held_replicas
        or (_reason(before) in WAITS and _reason(fresh) == PoolReason.UPDATING)
        or (fresh.unavailable_replicas > 0 and _starts(snapshot))
    )
    return now if progressed else before.last_progress_time


def deadline(snapshot: PoolSnapshot) -> datetime | None:
    status = snapshot.pool.status
    known = status.update_revision == snapshot.revision.name and status.observed_generation == snapshot.pool.generation
    prepares = _reason(status) not in WAITS and (_wait_for_disks(snapshot) or _waits_for_snapshots(snapshot))
    starts = _starts(snapshot) and not prepares
    if snapshot.pool.spec.paused or not known or status.last_progress_time is None or starts:
        return None
    # The time that VMs wait for lifecycle hooks does not count.
    if any(vm.held for vm in snapshot.active):
        return None
    seconds = timedelta(seconds=snapshot.pool.spec.progress_deadline_seconds)
    return parse_time(status.last_progress_time) + seconds


@once
def deadline_exceeded(snapshot: PoolSnapshot, now: datetime) -> str:
    """Why no more VMs are updated or restarted, or ""."""
    if reason := overdue(snapshot, now):
        return reason
    end = deadline(snapshot)
    down = [vm for vm in snapshot.active if vm.should_run and not vm.available]
    # An outdated VM may become available with the new template.
    failing = [vm for vm in down if not (_updates_proactively(snapshot) and snapshot.outdated(vm))]
    held, waiting = held_by_snapshots(snapshot, now), _wait_for_disks(snapshot)
    if end is None or now < end or not (failing or waiting or snapshot.missing or held):
        return ""
    if waiting and not failing:
        name, reason = min(waiting.items())
        return f"no progress for {snapshot.pool.spec.progress_deadline_seconds} s; {name}: {reason}"
    names = join_names(f"{vm.name} ({vm.printable_status or 'no status'})" for vm in failing)
    what = f"not available: {names}" if failing else f"{snapshot.missing} VMs are missing"
    if not failing and not snapshot.missing:
        what = f"{join_names(each.name for each in held)} waits: {held[0].reason}"
    return f"no progress for {snapshot.pool.spec.progress_deadline_seconds} s; {what}"


def _wait_for_disks(snapshot: PoolSnapshot) -> dict[str, str]:
    """VMs that still run from a replaced disk because the new one is not ready, with the reason."""
    return {vm.name: reason for vm in snapshot.active if (reason := unready_disk(snapshot, vm))}


def _waits_for_snapshots(snapshot: PoolSnapshot) -> bool:
    """Whether a snapshot before an update has failed or is not ready yet."""
    known = (snapshot.next_snapshot(vm) for vm in snapshot.active if snapshot.vm_snapshots and snapshot.outdated(vm))
    return any(not each.usable for each in known if each is not None)


def seconds_until_deadline(snapshot: PoolSnapshot, now: datetime) -> float | None:
    end = deadline(snapshot)
    if end is None or now >= end or not is_progressing(snapshot, now):
        return None
    return (end - now).total_seconds()


def _starts(snapshot: PoolSnapshot) -> bool:
    """Whether VMs became unavailable just now: the pool was complete before, or its obstacle is gone."""
    before = snapshot.pool.status
    unhindered = not (snapshot.pool.spec.paused or snapshot.failure)
    return not before.unavailable_replicas or (_was_hindered(before) and unhindered)


def _reason(status: PoolStatus) -> str:
    return next((each.reason for each in status.conditions if each.type == "Progressing"), "")


def _was_hindered(status: PoolStatus) -> bool:
    """Whether the pool was paused, or the API server refused another action than an update."""
    found = (c for c in status.conditions if c.type == "Progressing" and c.status == "False")
    return any(c.reason not in OWN_REASONS for c in found)


def _updates_proactively(snapshot: PoolSnapshot) -> bool:
    return isinstance(snapshot.pool.spec.update_strategy.chosen, UpdateProactive)
