"""Sorts VMs by the selection policy, and limits disruptions by spec.maxUnavailable.

Two limits always hold. At least `replicas - maxUnavailable` VMs stay available. At most `maxUnavailable` VMs are in
progress: missing, or updated and not available yet. The second limit stops an update to a template that does not start,
even if the old VMs were unavailable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from controllers.pool import live_updates
from controllers.pool.actions import Restart
from controllers.pool.restores import awaits_restore
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.names import has_revision
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.label_selectors import matches
from poolhouse.api.kinds.pool_strategies import BasePolicy, SelectionPolicy, UpdateProactive


def disruption_cost(vm: VM) -> int:
    """How much a stop of the VM interrupts. VMs with lower costs are stopped first."""
    if vm.halted or not vm.vmi_exists:
        return 0
    if not vm.ready:
        return 1
    if vm.vmi is not None and vm.vmi.evacuated and not vm.migrating:
        return 2  # it must leave its node, which a stop spares it
    # A stop during a migration wastes the migration.
    return 4 if vm.migrating else 3


def random_rank(vm: VM) -> str:
    """A random order that is stable, so that a retry selects the same VMs."""
    return hashlib.sha256(vm.uid.encode()).hexdigest()


def age_order(vm: VM) -> tuple[str, str, int]:
    """Orders VMs from old to new. Of those with the same second, the pool created the lowest ordinal first."""
    return vm.created_at, vm.base_name, vm.ordinal or 0


def _newest_first(vm: VM) -> tuple[Any, ...]:
    created_at, base_name, ordinal = age_order(vm)
    return _descending(created_at), base_name, -ordinal


ORDERS: dict[BasePolicy, Callable[[VM], Any]] = {
    "Oldest": age_order,
    "Newest": _newest_first,
    "Random": disruption_cost,
}
"""VMs with the same value are alike to the base policy."""


def rank(vm: VM, policy: SelectionPolicy) -> tuple[int, Any]:
    """The place that the policy's author gives the VM. VMs with the same rank are alike to the policy, which leaves the
    choice among them to zones and chance."""
    return _priority(vm, policy), ORDERS[policy.base_policy](vm)


def sort_victims(vms: Iterable[VM], policy: SelectionPolicy) -> list[VM]:
    """All VMs, sorted by the order in which they are stopped."""
    return sorted(vms, key=lambda vm: (rank(vm, policy), random_rank(vm)))


def _descending(text: str) -> tuple[int, ...]:
    return tuple(-ord(letter) for letter in text)


def _priority(vm: VM, policy: SelectionPolicy) -> int:
    for priority, each in enumerate(policy.ordered_policies):
        if matches(each.label_selector.json(), vm.labels):
            return priority
    return len(policy.ordered_policies)


STUCK = frozenset(
    {"DataVolumeError", "ErrImagePull", "ErrorPvcNotFound", "ErrorUnschedulable", "ImagePullBackOff", "Unknown"}
)
"""Values of status.printableStatus with which a VM waits for something outside it."""
RESTARTED_BY_KUBEVIRT = frozenset({"Always"})
"""Run strategies with which KubeVirt restarts a VM whose VMI is deleted."""
RESTARTED_BY_REQUEST = frozenset({"Manual", "RerunOnFailure"})
"""Run strategies with which a VM must be restarted by the restart subresource."""
AT_REBOOT = "its guest gets the template when it reboots"


@dataclass(frozen=True)
class DisruptionBudget:
    available: int
    min_available: int
    in_progress: int
    max_unavailable: int

    @classmethod
    def of(cls, snapshot: PoolSnapshot) -> DisruptionBudget:
        in_progress = sum(
            (update_has_begun(snapshot, vm) and (not vm.available or _is_to_be_restarted(snapshot, vm)))
            or is_prepared(snapshot, vm)
            for vm in snapshot.active
            if vm.should_run and not vm.terminating
        )
        return cls(
            available=sum(vm.available for vm in snapshot.active),
            min_available=max(0, snapshot.pool.spec.replicas - snapshot.pool.max_unavailable),
            in_progress=snapshot.missing + in_progress,
            max_unavailable=snapshot.pool.max_unavailable,
        )

    def refusal(self, vm: VM, *, begun: bool = False) -> str:
        """Why this VM may not be stopped now, or "". A VM whose update has `begun` is in progress already."""
        if not begun and self.in_progress >= self.max_unavailable:
            in_progress = count_noun(self.in_progress, "VM", "is", "are")
            return f"{in_progress} in progress, maxUnavailable is {self.max_unavailable}"
        return self.refusal_of_stop(vm)

    def refusal_of_stop(self, vm: VM) -> str:
        """Why too few VMs would be available without this VM, or ""."""
        if not vm.available or self.available > self.min_available:
            return ""
        available = (
            f"{count_noun(self.available, 'VM', 'is', 'are')} available, {self.min_available} must stay available"
        )
        return f"{available}, maxUnavailable is {self.max_unavailable}"

    def without(self, vm: VM, *, begun: bool = False) -> DisruptionBudget:
        return replace(self, available=self.available - vm.available, in_progress=self.in_progress + (not begun))


def _is_to_be_restarted(snapshot: PoolSnapshot, vm: VM) -> bool:
    """A VM that KubeVirt changes while it runs, or whose guest chooses the time, takes no place in the disruption
    budget."""
    if awaits_reboot(snapshot, vm):
        return False
    return live_updates.needs_restart(snapshot, vm) and may_be_restarted(vm) and not live_updates.is_live(snapshot, vm)


def update_has_begun(snapshot: PoolSnapshot, vm: VM) -> bool:
    """Whether the VM has the template and lacks at most a restart, or is held before a restart. False for an available
    VM whose restart was refused."""
    if vm.held:
        return True
    refused = vm.available and vm.vmi is not None and vm.vmi.uid in snapshot.refused
    return not snapshot.outdated(vm) and not refused


def is_prepared(snapshot: PoolSnapshot, vm: VM) -> bool:
    """Whether the VM is the next to be stopped: its snapshot before the update is taken, or its restore has begun. A
    failed snapshot frees its place for another VM."""
    taken = snapshot.next_snapshot(vm) if snapshot.outdated(vm) else None
    return vm.awaits_state or (taken is not None and not taken.failed and not taken.deleting)


def is_behind(snapshot: PoolSnapshot, vm: VM) -> bool:
    """Whether the pool must still update or restart the VM. A VM that has the template, but whose run strategy forbids
    a restart, is not behind: its next start uses the template."""
    if snapshot.outdated(vm) or awaits_restore(snapshot, vm):
        return True
    return live_updates.needs_restart(snapshot, vm) and (may_be_restarted(vm) or live_updates.is_live(snapshot, vm))


def awaits_reboot(snapshot: PoolSnapshot, vm: VM) -> bool:
    """Whether the VM starts with its new spec when its guest reboots, and the strategy leaves that to the guest:
    KubeVirt ends the VMI, and the run strategy starts another one."""
    if snapshot.pool.spec.update_strategy.opportunistic is None or vm.vmi is None:
        return False
    return vm.run_strategy == "Always" and vm.vmi.running and vm.vmi.ends_at_reboot


def may_be_restarted(vm: VM) -> bool:
    """Whether something starts the VM again after its VMI is deleted. With other run strategies, nothing does."""
    return vm.run_strategy in RESTARTED_BY_KUBEVIRT | RESTARTED_BY_REQUEST


def at_next_start(vm: VM) -> str:
    return f"its run strategy is {vm.run_strategy}: it gets the new template at its next start"


def restart(vm: VM, reason: str) -> Restart:
    """The restart of a VM that has a VMI."""
    assert vm.vmi is not None
    by_subresource = vm.run_strategy in RESTARTED_BY_REQUEST
    return Restart(vm.name, vm.vmi.uid, by_subresource, reason, not (vm.available or vm.held))


def update_order(snapshot: PoolSnapshot, behind: list[VM]) -> list[VM]:
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
