"""How many more VMs of a pool may be stopped at once, by spec.maxUnavailable.

Two limits hold at any time. At least `replicas - maxUnavailable` VMs stay available. And no more than `maxUnavailable`
VMs are in progress: missing, or updated and not available yet. So an update to a template that does not start stops
there, even if the old VMs were not available either.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.vm import VM

RESTARTED_BY_KUBEVIRT = frozenset({"Always"})
"""Run strategies under which KubeVirt starts a VM again when its VMI is deleted."""
RESTARTED_BY_REQUEST = frozenset({"Manual", "RerunOnFailure"})
"""Run strategies under which a request to the restart subresource is necessary."""


@dataclass(frozen=True)
class DisruptionBudget:
    available: int
    min_available: int
    in_progress: int
    max_unavailable: int

    @classmethod
    def of(cls, snapshot: PoolSnapshot) -> DisruptionBudget:
        in_progress = sum(
            update_has_begun(snapshot, vm)
            and (not vm.available or (snapshot.needs_restart(vm) and may_be_restarted(vm)))
            for vm in snapshot.active
            if vm.should_run
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
            return f"{self.in_progress} VMs are in progress, maxUnavailable is {self.max_unavailable}"
        if self.forbids(vm):
            return f"{self.available} VMs are available, {self.min_available} must stay available"
        return ""

    def forbids(self, vm: VM) -> bool:
        """Too few VMs would be available without this VM."""
        return vm.available and self.available - 1 < self.min_available

    def without(self, vm: VM, *, begun: bool = False) -> DisruptionBudget:
        return replace(self, available=self.available - vm.available, in_progress=self.in_progress + (not begun))


def update_has_begun(snapshot: PoolSnapshot, vm: VM) -> bool:
    """The VM has the template, and only its restart is missing. An available VM whose restart the API server refuses
    does not count."""
    refused = vm.available and vm.vmi is not None and vm.vmi.uid in snapshot.refused
    return not snapshot.outdated(vm) and not refused


def may_be_restarted(vm: VM) -> bool:
    """Under other run strategies, nothing would start the VM again."""
    return vm.run_strategy in RESTARTED_BY_KUBEVIRT | RESTARTED_BY_REQUEST
