"""Who took the VMs of a pool that were available, and whether the pool's own controller ever took one too many.

A controller acts on what it has seen, which is a moment old. So what people took a moment ago, and what the pool was
meant to be until then, is taken off the account; at rest, or with slow people, the account is exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from controllers.shared.vm import VM
from controllers.shared.vmi import VMI

MOMENT_SECONDS = 12.0
SEEN_SECONDS = 1.0
"""Time in which a leader sees what another process that believes it leads has restarted."""


@dataclass
class Budget:
    clock: Callable[[], float]
    pool_uid: str
    max_unavailable: int
    moment_seconds: float = MOMENT_SECONDS
    wanted: deque[tuple[float, int]] = field(default_factory=deque)
    """how many VMs the pool was meant to have, and until when"""
    mishaps: deque[float] = field(default_factory=deque)
    """when an available VM was taken by somebody else"""
    spared: set[str] = field(default_factory=set)
    """UIDs of VMs and runs that people are about to take"""
    vms: dict[tuple[str, str], VM] = field(default_factory=dict)
    vmis: dict[tuple[str, str], VMI] = field(default_factory=dict)
    leaders: int = 1
    takes: deque[float] = field(default_factory=deque)
    """when a leader took an available VM"""
    taken: int = 0
    """VMs that were available and that the controller took"""

    def wants(self, replicas: int) -> None:
        if self.wanted:
            self.wanted[-1] = self.clock(), self.wanted[-1][1]
        self.wanted.append((float("inf"), replicas))

    def vm_seen(self, vm: VM, gone: bool) -> str:
        before = self.available()
        known = self.vms.get(vm.key)
        if not gone:
            self.vms[vm.key] = vm
        elif known is not None and known.uid == vm.uid:
            del self.vms[vm.key]
        ours = vm.deleting and vm.uid not in self.spared and vm.owner_uid == self.pool_uid
        return self._judged(before, ours, f"deleted {vm.name}")

    def vmi_seen(self, vmi: VMI, gone: bool) -> str:
        before = self.available()
        known = self.vmis.get(vmi.key)
        if not gone:
            self.vmis[vmi.key] = vmi
        elif known is not None and known.uid == vmi.uid:
            del self.vmis[vmi.key]
        vm = self.vms.get(vmi.key)
        ours = vmi.deleting and vmi.uid not in self.spared and vm is not None and not vm.deleting
        return self._judged(before, ours, f"restarted {vmi.name}")

    def available(self) -> set[str]:
        members = (vm for vm in self.vms.values() if vm.owner_uid == self.pool_uid and not vm.deleting)
        return {vm.uid for vm in members if self._with_vmi(vm).available}

    def _with_vmi(self, vm: VM) -> VM:
        vmi = self.vmis.get(vm.key)
        return replace(vm, vmi=vmi) if vmi is not None and vmi.owner_uid == vm.uid else vm

    def _judged(self, before: set[str], ours: bool, act: str) -> str:
        """What is wrong with that, or nothing."""
        now, left = self.clock(), self.available()
        lost = len(before - left)
        if not lost:
            return ""
        if not ours:
            self.mishaps.extend([now] * lost)
            return ""
        self.taken += lost
        recent = sum(now - at < self.moment_seconds for at in self.mishaps)
        if self.leaders > 1:
            recent += sum(now - at < SEEN_SECONDS for at in self.takes)
        self.takes.extend([now] * lost)
        least = min(replicas for until, replicas in self.wanted if until > now - self.moment_seconds)
        floor = least - self.max_unavailable
        if len(left) + recent >= floor:
            return ""
        return f"{act}: {len(left)} VMs are left available, {floor} must be (and {recent} were taken by others)"
