"""Decides which disks of a VM an update replaces, and which disks take their place.

The VM stays, with its identity and its other disks. One write gives an entry of the VM's dataVolumeTemplates another
name and lists the old disk in an annotation. KubeVirt then creates the new disk while the VMI still runs from the old
one. The VM restarts when the new disk is ready. After that the old disk is retained, like a disk at scale-in. Each step
can be repeated after a crash, and no step deletes a disk.
"""

from dataclasses import dataclass
from datetime import datetime

from controllers.pool.actions import DiskReplacement, RetainDisks
from controllers.pool.disk_templates import (
    entry_of,
    format_hashes,
    parse_hashes,
    parse_replaced,
    replacement_name,
    same_origin,
    uses_replaced_disk,
)
from controllers.pool.revisions import Revision
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.conditions import join_names
from controllers.shared.names import name_of
from controllers.shared.vm import VM, RetainedDisk


def disk_replacements(snapshot: PoolSnapshot, vm: VM) -> tuple[DiskReplacement, ...]:
    assert vm.ordinal is not None
    names, wanted = snapshot.disks_by_entry(vm), dict(snapshot.revision.disks)
    found = []
    for entry in snapshot.disks_to_replace(vm):
        known = _disk_in_use(snapshot, vm, entry, wanted[entry]) or _former_disk(snapshot, vm, entry, wanted[entry])
        # No two writes of a VM start from the same resourceVersion, so the name is new even after many updates.
        new = known or replacement_name(entry, vm.ordinal, vm.uid, vm.resource_version, wanted[entry])
        found.append(DiskReplacement(entry, names[entry], new, existing=bool(known)))
    return tuple(found)


def annotations(
    snapshot: PoolSnapshot, vm: VM, hashes: str, replacements: tuple[DiskReplacement, ...]
) -> tuple[str, str]:
    """The annotations poolhouse.dev/disk-templates, from `hashes`, and poolhouse.dev/replaced-disks after an update."""
    created, wanted, pending = snapshot.created_from(vm), dict(snapshot.revision.disks), _pending(snapshot, vm)
    now = parse_hashes(hashes)
    for each in replacements:
        pending[each.old] = created[each.entry]
        pending.pop(each.new, None)
        now[each.entry] = wanted[each.entry]
    return format_hashes(tuple(now.items())), format_hashes(tuple(pending.items()))


def retain(vm: VM, reason: str) -> RetainDisks:
    disks = parse_replaced(vm.replaced_disks)
    return RetainDisks(vm.name, vm.uid, tuple(disks.items()), vm.owner_uid, f"{join_names(disks)}: {reason}")


@dataclass(frozen=True)
class NewDisks:
    """The disks of a VM that is created."""

    retained: tuple[tuple[str, str], ...] = ()
    """entries whose disks were retained at scale-in and return, with their hashes"""
    names: tuple[tuple[str, str], ...] = ()
    """entries whose disks do not have the usual name, with the names"""


def disks_of_new_vm(snapshot: PoolSnapshot, ordinal: int, revision: Revision, now: datetime) -> NewDisks:
    """A disk that was retained at scale-in returns. A replaced one does not, and another new disk gets another name."""
    entries, retained, names = dict(revision.disks), dict[str, str](), dict[str, str]()
    own = snapshot.retained_by_vm.get(name_of(snapshot.pool.name, ordinal), ())
    taken = sorted(disk.name for disk in own)
    for entry, wanted in revision.disks:
        usual = name_of(entry, ordinal)
        kept = [disk for disk in own if not disk.replaced and entry_of(disk.name, entries) == entry]
        last = max(kept, key=_age, default=None)
        if last is not None and (not snapshot.pool.replaces_disks or _is_current(snapshot, last, wanted)):
            disk = last.name
            retained |= {entry: snapshot.entry_hash(last.template_hash)} if last.template_hash else {}
        elif usual in taken:
            disk = replacement_name(entry, ordinal, snapshot.pool.uid, now.isoformat(), *taken)
        else:
            disk = usual
        if disk != usual:
            names[entry] = disk
    return NewDisks(tuple(sorted(retained.items())), tuple(sorted(names.items())))


def unready_disk(snapshot: PoolSnapshot, vm: VM) -> str:
    """Why a VM whose disks were replaced cannot be restarted yet, or ""."""
    if not uses_replaced_disk(vm):
        return ""
    unready = (state.describe(disk) for disk, state in snapshot.unready_disks_of(vm).items())
    return next((f"its new disk {why}" for why in unready), "")


def _pending(snapshot: PoolSnapshot, vm: VM) -> dict[str, str]:
    return {disk: snapshot.entry_hash(found) for disk, found in parse_replaced(vm.replaced_disks).items()}


def _disk_in_use(snapshot: PoolSnapshot, vm: VM, entry: str, wanted: str) -> str:
    """The replaced disk of this template that is not retained yet. The VMI may still run from it."""
    entries = dict(snapshot.revision.disks)
    for disk, created_from in _pending(snapshot, vm).items():
        if same_origin(created_from, wanted) and entry_of(disk, entries) == entry:
            return disk
    return ""


def _former_disk(snapshot: PoolSnapshot, vm: VM, entry: str, wanted: str) -> str:
    """The disk that the VM had with an earlier template, if the update goes back to this template and the disk is still
    retained. An update to a later template always starts from a new disk."""
    if not _goes_back(snapshot, vm):
        return ""
    entries = dict(snapshot.revision.disks)

    def matches(disk: RetainedDisk) -> bool:
        is_former = disk.replaced and same_origin(snapshot.entry_hash(disk.template_hash), wanted)
        return is_former and entry_of(disk.name, entries) == entry

    found = filter(matches, snapshot.retained_by_vm.get(vm.name, ()))
    last = max(found, key=_age, default=None)
    return last.name if last is not None else ""


def _is_current(snapshot: PoolSnapshot, disk: RetainedDisk, wanted: str) -> bool:
    return not disk.template_hash or same_origin(snapshot.entry_hash(disk.template_hash), wanted)


def _age(disk: RetainedDisk) -> tuple[str, str]:
    return disk.created_at, disk.name


def _goes_back(snapshot: PoolSnapshot, vm: VM) -> bool:
    has = snapshot.revisions_by_label.get(vm.revision)
    return snapshot.aborted is not None or (has is not None and has.number > snapshot.revision.number)
