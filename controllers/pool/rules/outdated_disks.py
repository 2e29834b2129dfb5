"""The rule about disks that were created from an older template: it retains those that updates have replaced."""

from collections.abc import Iterator
from datetime import datetime

from controllers.pool.actions import Action
from controllers.pool.disk_templates import uses_replaced_disk
from controllers.pool.reasons import PoolReason
from controllers.pool.replacement import retain
from controllers.pool.rules.rule import Plan, Rule
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.surge import is_replaced
from controllers.pool.waiting import Waiting
from controllers.shared.conditions import condition, join_names
from controllers.shared.names import name_of
from poolhouse.api.apimachinery.counting import count_noun, count_of
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.metav1 import Condition


def retain_replaced(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """Retains the disks that updates have replaced, once no VMI uses them."""
    for vm in snapshot.active:
        if vm.replaced_disks and (not uses_replaced_disk(vm) or (vm.vmi is not None and vm.vmi.final)):
            yield retain(vm, "an update has replaced the disk")


def older_disks(snapshot: PoolSnapshot, now: datetime) -> Iterator[Waiting]:
    """VMs whose disks were created from an older template. No update changes a disk that exists."""
    for vm in snapshot.active:
        left = set(snapshot.outdated_disks(vm)).difference(snapshot.disks_to_replace(vm))
        if left and not is_replaced(snapshot, vm) and vm.ordinal is not None:
            known = snapshot.disks_by_entry(vm)
            disks = join_names(known.get(name, name_of(name, vm.ordinal)) for name in sorted(left))
            protects = vm.protected and (snapshot.pool.replaces_disks or snapshot.pool.surges)
            why = f" {meta.SCALE_IN} protects the VM." if protects else ""
            yield Waiting(
                vm.name, f"{disks}: the template has changed, but not the disk.{why} A new VM gets a new disk"
            )


def _conditions(snapshot: PoolSnapshot, plan: Plan, now: datetime) -> Iterator[Condition]:
    found = [vm for vm in snapshot.active if snapshot.outdated_disks(vm)]
    if not found:
        yield condition("DisksOutdated", False, PoolReason.DISKS_UP_TO_DATE)
        return
    kept = [vm.name for vm in found if not (snapshot.disks_to_replace(vm) or is_replaced(snapshot, vm))]
    message = (
        f"{count_of(len(found), len(snapshot.active), 'VM', 'has', 'have')} disks that were created from an older"
        f" template: {join_names(vm.name for vm in found)}."
    )
    if len(kept) < len(found):
        what = "" if snapshot.pool.surges else "the disks of "
        message += f" Updates replace {what}{count_noun(len(found) - len(kept), 'VM')}."
    if kept:
        message += f" {join_names(kept)}: {_why_kept(snapshot)}; a VM that is deleted is created with new disks."
    yield condition("DisksOutdated", True, PoolReason.DISK_TEMPLATE_CHANGED, message)


def _why_kept(snapshot: PoolSnapshot) -> str:
    if snapshot.pool.replaces_disks or snapshot.pool.surges:
        return f"no update replaces the disks, because {meta.SCALE_IN} protects the VM or the disks have other names"
    return "replacePolicy is Never, so no update replaces the disks"


OUTDATED_DISKS = Rule(steps=(retain_replaced,), waits=older_disks, conditions=_conditions)
