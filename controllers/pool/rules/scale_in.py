"""The rule that deletes the VMs above `replicas`, and the VMs whose place others have taken."""

from collections.abc import Iterator
from datetime import datetime
from functools import partial

from controllers.pool.actions import Action, Delete, RemoveFinalizer
from controllers.pool.disk_templates import uses_replaced_disk
from controllers.pool.gates.disruptions import Disruption, DisruptionCause
from controllers.pool.reasons import PoolReason
from controllers.pool.replacement import retain as retain_disks
from controllers.pool.rules.rule import Plan, Rule
from controllers.pool.rules.scale_in_candidates import candidates, has_candidates
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.surge import extra_vms, is_replaced
from controllers.shared.conditions import condition
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.counting import count_noun, count_verb
from poolhouse.api.kinds.metav1 import Condition


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


def _cause(snapshot: PoolSnapshot, now: datetime) -> DisruptionCause:
    excess = len(snapshot.counted) - snapshot.pool.spec.replicas
    return "Replacement" if snapshot.pool.surges and excess <= extra_vms(snapshot, now) else "ScaleIn"


def deletion(snapshot: PoolSnapshot, vm: VM, reason: str) -> Action | None:
    """Deletes the VM for good, as the scale-in strategy says for its disks. None while its disks are being retained."""
    if not vm.replaced_disks:
        retain = snapshot.pool.spec.scale_in_strategy.retains_disks
        return Delete(vm.name, vm.uid, vm.resource_version, reason, retain, vm.may_become_available)
    # Its replaced disks would be deleted with it. Those that its VMI no longer uses are being retained.
    return retain_disks(vm, "the VM is about to be deleted") if uses_replaced_disk(vm) else None


def cancel_deletions(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    """Removes finalizers that an earlier process left: it stopped before it deleted the VM."""
    if len(snapshot.counted) > snapshot.pool.spec.replicas:
        return
    for vm in snapshot.counted:
        if vm.retains_disks:
            yield RemoveFinalizer(vm.name, vm.uid, vm.resource_version, "it stays")


def _conditions(snapshot: PoolSnapshot, plan: Plan, now: datetime) -> Iterator[Condition]:
    if not plan.blocked:
        yield condition("ScaleInBlocked", False, PoolReason.NOT_BLOCKED)
        return
    waits = has_candidates(snapshot, now)
    reason = PoolReason.WAITING_FOR_BUDGET if waits else PoolReason.NO_CANDIDATES
    yield condition("ScaleInBlocked", True, reason, plan.blocked)


SCALE_IN = Rule(
    scale_in,
    most=most_deletions,
    in_bursts=True,
    # The condition ScaleInBlocked has the reason.
    reports=False,
    steps=(cancel_deletions,),
    conditions=_conditions,
)
