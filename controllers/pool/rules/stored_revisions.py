"""The rule that keeps the ControllerRevisions of a pool, and the labels by which VMIs tell their revision."""

from collections.abc import Iterator
from datetime import datetime

from controllers.pool import lost_base
from controllers.pool.actions import Action, AdoptRevision, LabelVMI, PinMachineType, PruneRevision
from controllers.pool.live_updates import needs_restart
from controllers.pool.machine_types import machine_type
from controllers.pool.reasons import PoolReason
from controllers.pool.rules.rule import Plan, Rule
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.conditions import condition, join_names
from poolhouse.api.kinds.metav1 import Condition


def adopt_revisions(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """Without an owner, a revision would outlive the pool."""
    for each in snapshot.revisions:
        if not each.owned:
            yield AdoptRevision(each.name, each.uid, "it has no owner")


def pin_machine_types(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """VMs of one revision get one machine type, although their nodes and the defaulter may change meanwhile."""
    for each in snapshot.revisions:
        if each.owned and not each.pinned_machine_type and (found := machine_type(snapshot, each)):
            yield PinMachineType(each.name, each.uid, found, "its VMs have this machine type")


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
        if not ours or vm.vmi is None or vm.vmi.deleting or vm.vmi.final or needs_restart(snapshot, vm):
            continue
        if vm.vmi.revision != snapshot.revision.label:
            assert vm.ordinal is not None
            reason = "the change needs no restart"
            yield LabelVMI(vm.name, vm.vmi.uid, vm.ordinal, vm.vmi.revision, reason)


def _conditions(snapshot: PoolSnapshot, plan: Plan, now: datetime) -> Iterator[Condition]:
    found = sorted((vm for vm in snapshot.active if vm.left_fields), key=lambda vm: vm.name)
    if not found:
        yield condition("RevisionLost", False, PoolReason.NO_REVISION_LOST)
        return
    message = (
        f"{join_names(vm.name for vm in found)}: the ControllerRevision of the former template was gone, so that an"
        f" update removed nothing. It may have left {lost_base.show(found[0].left_fields)}: {lost_base.REMEDY}"
    )
    yield condition("RevisionLost", True, PoolReason.REVISION_LOST, message)


REVISIONS = Rule(
    steps=(adopt_revisions, pin_machine_types, prune_revisions, label_vmis),
    conditions=_conditions,
)
