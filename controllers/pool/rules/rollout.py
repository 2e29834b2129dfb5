"""The rule that updates VMs to the pool's template, and what keeps its revisions."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial

from controllers.pool import live_updates
from controllers.pool.actions import Action, SaveRevision, Update
from controllers.pool.disk_templates import carried_over, disks_by_entry
from controllers.pool.gates.before_update import is_needed
from controllers.pool.gates.disruptions import Cause, Disruption, Wanted
from controllers.pool.gates.waiting import Waiting
from controllers.pool.power import update_halts, update_starts
from controllers.pool.progress import seconds_until_deadline
from controllers.pool.reasons import PoolReason
from controllers.pool.replacement import annotations, disk_replacements
from controllers.pool.restores import awaits_restore, begin, continue_restore, requested_restore, restore_of
from controllers.pool.rules.rule import Rule
from controllers.pool.selection import (
    awaits_reboot,
    is_prepared,
    may_be_restarted,
    restart,
    sort_victims,
    update_has_begun,
)
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.data_sources import describe_changes
from controllers.shared.names import has_revision, name_of
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.kinds.pool_strategies import SelectionPolicy, UpdateProactive

Make = Callable[[], Action]
UNMANAGED = "the update strategy is unmanaged"
AT_REBOOT = "its guest gets the template when it reboots"


def update(snapshot: PoolSnapshot, now: datetime) -> Iterator[Wanted]:
    """What each VM needs that does not match the template, in the order of the selection policy."""
    behind = [vm for vm in snapshot.active if _needs_action(snapshot, vm) and not vm.terminating]
    unmanaged = snapshot.pool.spec.update_strategy.unmanaged is not None
    for vm in behind if unmanaged else _in_order(snapshot, behind):
        if restore := restore_of(snapshot, vm):
            # KubeVirt has halted the VM, so the pool must start it again, with any strategy.
            yield continue_restore(snapshot, vm, restore)
        elif unmanaged:
            yield Waiting(vm.name, UNMANAGED)
        else:
            yield _wanted(snapshot, vm, now)


def save_revision(snapshot: PoolSnapshot, found: Iterable[Action]) -> Iterator[SaveRevision]:
    """Saves the revision that VMs have or get. One that somebody has deleted is written again while VMs have it: the
    next update needs it. With `liveUpdate: Require` the update may reach no VM, and the history has its template."""
    needed = any(vm.revision == snapshot.revision.label for vm in snapshot.active)
    needed |= snapshot.pool.live_update == "Require" and any(map(snapshot.outdated, snapshot.active))
    if not snapshot.revision_saved and (needed or any(isinstance(each, Update) for each in found)):
        yield SaveRevision(snapshot.revision.name, snapshot.revision.number, _what_changed(snapshot, None))


def _needs_action(snapshot: PoolSnapshot, vm: VM) -> bool:
    return snapshot.outdated(vm) or live_updates.needs_restart(snapshot, vm) or awaits_restore(snapshot, vm)


def _wanted(snapshot: PoolSnapshot, vm: VM, now: datetime) -> Wanted:
    source, prepared = requested_restore(snapshot, vm), is_prepared(snapshot, vm)
    # An available VM that has the template is not in progress before its restore.
    begun = prepared or (update_has_begun(snapshot, vm) and not (source and vm.available))
    prepared = prepared and snapshot.outdated(vm)
    if source is not None:
        make: Make = partial(begin, snapshot, vm, source)
        return Disruption(vm, "Restore", make, not vm.halted, updates=True, begun=begun, prepared=prepared)
    cause: Cause = "Rollback" if snapshot.aborted else "Update"
    if not snapshot.outdated(vm):
        if why := live_updates.waits_for(snapshot, vm, now):
            return Waiting(vm.name, why, progressing=PoolReason.UPDATING)
        reason = f"the template has changed{_because(live_updates.why_restart(snapshot, vm))}"
        return Disruption(vm, cause, partial(restart, vm, reason), begun=begun, prepared=prepared)
    quiet = _why_quiet(snapshot, vm)
    if not quiet and snapshot.pool.live_update == "Require" and not update_halts(snapshot, vm):
        why = live_updates.waits_forever(snapshot, live_updates.refusal(snapshot, vm))
        return Waiting(vm.name, why, progressing=PoolReason.UPDATING)
    make, moves = partial(_update, snapshot, vm, quiet, now), bool(quiet) and live_updates.moves(snapshot, vm)
    return Disruption(vm, cause, make, not quiet, moves=moves, updates=True, begun=begun, prepared=prepared)


def _because(why: str) -> str:
    return f"; {why}" if why else ""


def _why_quiet(snapshot: PoolSnapshot, vm: VM) -> str:
    """Why the update of an outdated VM stops no guest, or "": it does, or the restart does that follows it."""
    if vm.halted:
        return "it is halted: the update starts it" if update_starts(snapshot, vm) else "it is halted"
    if update_halts(snapshot, vm):
        return ""
    if not live_updates.needs_restart(snapshot, vm) and not (vm.vmi and snapshot.disks_to_replace(vm)):
        return "the change needs no restart" if vm.vmi else "it is not running yet"
    if live_updates.is_live(snapshot, vm):
        return live_updates.describe(snapshot, vm)
    if awaits_reboot(snapshot, vm):
        return AT_REBOOT
    return "" if may_be_restarted(vm) else _at_next_start(vm)


def _at_next_start(vm: VM) -> str:
    return f"its run strategy is {vm.run_strategy}: it gets the new template at its next start"


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


def not_updatable(snapshot: PoolSnapshot, vm: VM) -> str:
    """Why the VM cannot have the template, or "": its name has another pattern, or a new disk has another owner."""
    pool = snapshot.pool
    if vm.ordinal is None or vm.base_name != pool.name:
        return f"its name does not match the pool's pattern {pool.name}-NUMBER, so it has no template"
    known = disks_by_entry(vm.disks, vm.ordinal, pool.disk_names)
    new = {name_of(disk, vm.ordinal) for disk in pool.disk_names if disk not in known}
    if others := sorted(new & snapshot.foreign_disks.keys()):
        owner = snapshot.foreign_disks[others[0]]
        return f"the template gives it disk {others[0]}, {owner}: give the disk another name"
    return snapshot.disk_conflict.message if new and snapshot.disk_conflict else ""


def refusal_of_strategy(snapshot: PoolSnapshot, wanted: Disruption) -> str:
    """Why the update strategy, or the VM's run strategy, leaves the VM as it is, or ""."""
    vm = wanted.vm
    if snapshot.pool.spec.update_strategy.opportunistic is not None and not vm.halted:
        if not awaits_reboot(snapshot, vm):
            return "the update strategy is opportunistic, and it is not halted"
        if wanted.stops:
            return f"the update strategy is opportunistic: {AT_REBOOT}"
    return _at_next_start(vm) if not wanted.updates and not may_be_restarted(vm) else ""


def _update(snapshot: PoolSnapshot, vm: VM, quiet: str, now: datetime) -> Update:
    assert vm.ordinal is not None
    reason = quiet or _what_changed(snapshot, vm)
    disks, replaced = carried_over(snapshot.created_from(vm), snapshot.revision.disks), ""
    if replacements := disk_replacements(snapshot, vm):
        disks, replaced = annotations(snapshot, vm, disks, replacements)
        reason = "; ".join([reason, *map(str, replacements)])
    # A snapshot of this stay at the revision must not count for a later stay, even if it is not used.
    counts = is_needed(snapshot, vm) or snapshot.next_snapshot(vm) is not None
    label = snapshot.revision.label
    update = Update(vm.name, vm.uid, vm.ordinal, vm.revision, label, reason, disks, replacements, replaced, counts)
    if update_halts(snapshot, vm):
        return replace(update, halts=True, reason=f"{reason}: it halts the VM")
    return replace(update, live_since=format_time(now)) if quiet and _changes_guest(snapshot, vm) else update


def _changes_guest(snapshot: PoolSnapshot, vm: VM) -> bool:
    """Whether KubeVirt may change the running guest by the update, also if that takes back an earlier change."""
    if snapshot.pool.live_update == "Never" or vm.vmi is None or not vm.vmi.running:
        return False
    has, needed = snapshot.revisions_by_label.get(vm.revision), live_updates.needs_restart(snapshot, vm)
    changes = has is not None and has.live != snapshot.revision.live
    return changes and (not needed or live_updates.is_live(snapshot, vm))


UPDATES = Rule(
    update,
    before=save_revision,
    in_bursts=True,
    again=(seconds_until_deadline, live_updates.seconds_until_late),
)
