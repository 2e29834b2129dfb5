"""Deletes retained disks whose time has ended, or of which the pool has too many.

The time is in an annotation of the disk, so it does not depend on the controllers. Disks of one VM that were retained
at scale-in are deleted together, because the next VM of the name gets all of them or none. A disk that an update
replaced is deleted alone.
"""

from collections.abc import Hashable, Iterator
from datetime import datetime, timedelta

from controllers.pool.actions import Action, DateDisk, DeleteDisks, ReleaseDisks, ReturnDisk
from controllers.pool.disk_templates import parse_replaced
from controllers.pool.rules.rule import Rule
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.surge import extra_vms
from controllers.shared.vm import VM, RetainedDisk
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.timestamps import format_time, known_time, seconds_until_next
from poolhouse.api.kinds.pool import RetainedDiskStatus
from poolhouse.api.kinds.pool_lifecycle import RetainedDisks

MAX_RETAINED_DISKS = 100
"""in the status"""
PAUSE_OF_USED_DISK = timedelta(hours=1)
"""How long a disk that was in use stays before the controller looks again."""


def delete_disks(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    limits = snapshot.pool.spec.retained_disks
    if limits.ttl_seconds is None and limits.max is None:
        return
    for disk in snapshot.retained_disks:
        if known_time(disk.retained_at) is None and not disk.deleting:
            yield DateDisk(disk.retained_for, disk.name, disk.uid, format_time(now), "it has no time of retention")
    left = sum(not disk.deleting for disk in snapshot.retained_disks)
    for group in _oldest_first(snapshot):
        reason = _why_delete(group, left, limits, now)
        if reason and not any(_may_be_used(snapshot, disk, now) for disk in group):
            left -= len(group)
            disks = tuple((disk.name, disk.uid) for disk in group)
            yield DeleteDisks(group[0].retained_for, disks, group[0].retained_by, reason)


def _why_delete(group: list[RetainedDisk], retained: int, limits: RetainedDisks, now: datetime) -> str:
    """Which limit ends the retention of the disks; "" if none does. The pool retains `retained` disks now."""
    if limits.max is not None and retained > limits.max:
        return f"{count_noun(retained, 'disk', 'is', 'are')} retained, retainedDisks.max is {limits.max}"
    ends = [expires_at(disk, limits) for disk in group]
    if all(end is not None and end <= now for end in ends):
        return f"it was retained at {group[-1].retained_at}, retainedDisks.ttlSeconds is {limits.ttl_seconds}"
    return ""


def expires_at(disk: RetainedDisk, limits: RetainedDisks) -> datetime | None:
    """When `ttlSeconds` ends the retention of the disk. None if it does not."""
    since = known_time(disk.retained_at)
    if since is None or limits.ttl_seconds is None:
        return None
    return since + timedelta(seconds=limits.ttl_seconds)


def retained(snapshot: PoolSnapshot) -> tuple[RetainedDiskStatus, ...]:
    """The retained disks that the status names."""
    found = sorted(snapshot.retained_disks, key=lambda disk: disk.name)[:MAX_RETAINED_DISKS]
    ends = [(disk, expires_at(disk, snapshot.pool.spec.retained_disks)) for disk in found]
    return tuple(
        RetainedDiskStatus(name=disk.name, vm=disk.retained_for, expires_at=format_time(end) if end else None)
        for disk, end in ends
    )


def seconds_until_expiry(snapshot: PoolSnapshot, now: datetime) -> float | None:
    limits, times = snapshot.pool.spec.retained_disks, list[datetime | None]()
    for disk in snapshot.retained_disks:
        times += expires_at(disk, limits), _pause_end(disk)
    return seconds_until_next(times, now)


def _oldest_first(snapshot: PoolSnapshot) -> list[list[RetainedDisk]]:
    groups: dict[Hashable, list[RetainedDisk]] = {}
    for disk in snapshot.retained_disks:
        if not disk.deleting:
            groups.setdefault((disk.retained_for, disk.replaced and disk.name), []).append(disk)
    found = [sorted(group, key=_age) for group in groups.values()]
    return sorted((group for group in found if known_time(group[0].retained_at)), key=lambda group: _age(group[-1]))


def _age(disk: RetainedDisk) -> tuple[str, str]:
    return disk.retained_at, disk.name


def _may_be_used(snapshot: PoolSnapshot, disk: RetainedDisk, now: datetime) -> bool:
    """Whether a VM of the pool has the disk or is about to get it, or the disk was in use a short time ago."""
    if any(disk.name in vm.disks or (vm.vmi is not None and disk.name in vm.vmi.disks) for vm in snapshot.vms):
        return True
    # While the VM's annotation lists a replaced disk, the VM may still own its DataVolume.
    if any(disk.name in parse_replaced(vm.replaced_disks) for vm in snapshot.vms):
        return True
    grows = len(snapshot.active) < snapshot.pool.spec.replicas + extra_vms(snapshot, now)
    returns = not disk.replaced and (grows or any(vm.name == disk.retained_for for vm in snapshot.vms))
    pause_end = _pause_end(disk)
    return returns or (pause_end is not None and now < pause_end)


def _pause_end(disk: RetainedDisk) -> datetime | None:
    seen = known_time(disk.used_at)
    return seen + PAUSE_OF_USED_DISK if seen is not None else None


def release_disks(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    for vm in snapshot.awaiting_release:
        yield release(vm, "its disks are retained")


def release(vm: VM, reason: str) -> ReleaseDisks:
    return ReleaseDisks(
        vm.name, vm.uid, vm.disks, vm.disk_templates, vm.persists_state, vm.retained_by or vm.owner_uid, reason
    )


def return_disks(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """Sets existing VMs as owners of their retained disks, so that the disks are deleted with the VM."""
    by_name = {vm.name: vm for vm in snapshot.active}
    for disk in snapshot.retained_disks:
        vm = by_name.get(disk.retained_for)
        if vm is not None and (disk.persistent_state or disk.name in vm.disks):
            yield ReturnDisk(vm.name, vm.uid, disk.name, f"{vm.name} exists again")


RETENTION = Rule(
    steps=(return_disks, delete_disks),
    # A deleted VM waits for the release of its disks.
    always=(release_disks,),
    again=(seconds_until_expiry,),
)
