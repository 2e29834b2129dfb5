"""What an update does: it saves the revision, and writes the template into a VM, whose guest it may not stop."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from controllers.pool import live_updates
from controllers.pool.actions import Action, SaveRevision, Update
from controllers.pool.disk_templates import carried_over
from controllers.pool.gates.disruptions import Effect
from controllers.pool.power import update_halts, update_starts
from controllers.pool.replacement import annotations, disk_replacements
from controllers.pool.selection import AT_REBOOT, at_next_start, awaits_reboot, may_be_restarted
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.snapshots_before_update import is_needed
from controllers.shared.data_sources import describe_changes
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.timestamps import format_time


def save_revision(snapshot: PoolSnapshot, found: Iterable[Action]) -> Iterator[SaveRevision]:
    """Saves the revision that VMs have or get. One that somebody has deleted is written again while VMs have it: the
    next update needs it. With `liveUpdate: Require` the update may reach no VM, and the history has its template."""
    needed = any(vm.revision == snapshot.revision.label for vm in snapshot.active)
    needed |= snapshot.pool.live_update == "Require" and any(map(snapshot.outdated, snapshot.active))
    if not snapshot.revision_saved and (needed or any(isinstance(each, Update) for each in found)):
        yield SaveRevision(snapshot.revision.name, snapshot.revision.number, _what_changed(snapshot, None))


def update_action(snapshot: PoolSnapshot, vm: VM, quiet: str, now: datetime) -> Update:
    assert vm.ordinal is not None
    reason = quiet or _what_changed(snapshot, vm)
    disks, replaced = carried_over(snapshot.created_from(vm), snapshot.revision.disks), ""
    if replacements := disk_replacements(snapshot, vm):
        disks, replaced = annotations(snapshot, vm, disks, replacements)
        reason = "; ".join([reason, *map(str, replacements)])
    # A snapshot that this update does not need counts, too: it must not serve a later update from this revision.
    counts = is_needed(snapshot, vm) or snapshot.next_snapshot(vm) is not None
    label = snapshot.revision.label
    update = Update(vm.name, vm.uid, vm.ordinal, vm.revision, label, reason, disks, replacements, replaced, counts)
    if update_halts(snapshot, vm):
        return replace(update, halts=True, reason=f"{reason}: it halts the VM")
    return replace(update, live_since=format_time(now)) if quiet and _changes_guest(snapshot, vm) else update


def _changes_guest(snapshot: PoolSnapshot, vm: VM) -> bool:
    """Whether the update may make KubeVirt change the running guest. It also does so if it undoes an earlier change."""
    if snapshot.pool.live_update == "Never" or vm.vmi is None or not vm.vmi.running:
        return False
    has, needed = snapshot.revisions_by_label.get(vm.revision), live_updates.needs_restart(snapshot, vm)
    changes = has is not None and has.live != snapshot.revision.live
    return changes and (not needed or live_updates.is_live(snapshot, vm))


def _what_changed(snapshot: PoolSnapshot, vm: VM | None) -> str:
    """What is new in the pool's revision for a VM, or since the pool's last revision."""
    if vm is not None:
        before = snapshot.revisions_by_label.get(vm.revision)
    else:
        last = snapshot.pool.status.update_revision
        before = next((each for each in snapshot.revisions if each.name == last), None)
    images = describe_changes(before.sources, snapshot.revision.sources) if before is not None else ""
    return images or "the template has changed"


def effect_of_update(snapshot: PoolSnapshot, vm: VM) -> tuple[Effect, str]:
    """What the update of an outdated VM does to its guest, and why it stops none. Empty: it does, or the restart does
    that follows it."""
    if update_halts(snapshot, vm):
        return Effect.STOPS, ""
    quiet = _why_quiet(snapshot, vm)
    if not quiet:
        return Effect.RESTARTS_LATER, ""
    return Effect.MIGRATES if live_updates.moves(snapshot, vm) else Effect.CHANGES, quiet


def _why_quiet(snapshot: PoolSnapshot, vm: VM) -> str:
    if vm.halted:
        return "it is halted: the update starts it" if update_starts(snapshot, vm) else "it is halted"
    if not live_updates.needs_restart(snapshot, vm) and not (vm.vmi and snapshot.disks_to_replace(vm)):
        return "the change needs no restart" if vm.vmi else "it is not running yet"
    if live_updates.is_live(snapshot, vm):
        return live_updates.describe(snapshot, vm)
    if awaits_reboot(snapshot, vm):
        return AT_REBOOT
    return "" if may_be_restarted(vm) else at_next_start(vm)
