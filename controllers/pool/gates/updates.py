"""The gates that only updates have."""

from datetime import datetime

from controllers.pool.disk_templates import disks_by_entry
from controllers.pool.gates.disruptions import Answer, Disruption, Effect, Taken
from controllers.pool.replacement import unready_disk
from controllers.pool.selection import AT_REBOOT, at_next_start, awaits_reboot, may_be_restarted
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.snapshots_before_update import before_update
from controllers.pool.surge import is_replaced, replacement_reason
from controllers.pool.update_limit import update_limit, with_template
from controllers.shared.names import name_of


def step(snapshot: PoolSnapshot, now: datetime, wanted: Disruption, taken: Taken) -> Answer:
    """Steps and a partition let some VMs keep the old template."""
    limit = update_limit(snapshot, now)
    if not snapshot.outdated(wanted.vm) or limit.allowed - with_template(snapshot) > taken.updated:
        return ""
    return limit.reason or "enough VMs have the template"


def template_fits(snapshot: PoolSnapshot, now: datetime, wanted: Disruption, taken: Taken) -> Answer:
    """A VM with another name has no template. A disk of the template may belong to somebody else."""
    pool, vm = snapshot.pool, wanted.vm
    if is_replaced(snapshot, vm):
        return ""
    if vm.ordinal is None or vm.base_name != pool.name:
        return (
            f"its name does not match the pool's pattern {pool.name}-NUMBER, so it has no template: "
            f"`poolhouse detach {vm.name}` takes it out of the pool"
        )
    known = disks_by_entry(vm.disks, vm.ordinal, pool.disk_names)
    new = {name_of(disk, vm.ordinal) for disk in pool.disk_names if disk not in known}
    if others := snapshot.of_others(vm, new):
        owner = snapshot.foreign_disks[others[0]]
        return f"the template gives it disk {others[0]}, {owner}: give the disk another name"
    if new and snapshot.unlisted_disks:
        unknown = "whose owner is unknown until the controllers can list DataVolumes"
        return f"the template gives it disk {min(new)}, {unknown}"
    return snapshot.disk_conflict.message if new and snapshot.disk_conflict else ""


def strategy(snapshot: PoolSnapshot, now: datetime, wanted: Disruption, taken: Taken) -> Answer:
    """The update strategy, or the VM's run strategy, may leave the VM as it is."""
    vm = wanted.vm
    if snapshot.pool.spec.update_strategy.opportunistic is not None and not vm.halted:
        if not awaits_reboot(snapshot, vm):
            return "the update strategy is opportunistic, and it is not halted"
        if wanted.effect is Effect.STOPS:
            return f"the update strategy is opportunistic: {AT_REBOOT}"
    return at_next_start(vm) if not wanted.updates and not may_be_restarted(vm) else ""


def new_disk(snapshot: PoolSnapshot, now: datetime, wanted: Disruption, taken: Taken) -> Answer:
    """A VM that has the template restarts when the disks that replace others are ready."""
    return "" if snapshot.outdated(wanted.vm) else unready_disk(snapshot, wanted.vm)


def surge(snapshot: PoolSnapshot, now: datetime, wanted: Disruption, taken: Taken) -> Answer:
    """With maxSurge a new VM comes first. Scale-in then deletes the old one."""
    return replacement_reason(snapshot) if is_replaced(snapshot, wanted.vm) else ""


def snapshot_before(snapshot: PoolSnapshot, now: datetime, wanted: Disruption, taken: Taken) -> Answer:
    """Takes the snapshot of the VM, and waits until it is ready."""
    return before_update(snapshot, wanted.vm, now)
