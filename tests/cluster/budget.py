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

    def vm_seen(self, m: VM, gone: bool) -> str:
        before = self.available()
        known = self.vms.get(m.key)
        if not gone:
            self.vms[m.key] = m
        elif known is not None and known.uid == m.uid:
            del self.vms[m.key]
        ours = m.deleting and m.uid not in self.spared and m.owner_uid == self.pool_uid
        return self._judged(before, ours, f"deleted {m.name}")

    def vmi_seen(self, g: VMI, gone: bool) -> str:
        before = self.available()
        known = self.vmis.get(g.key)
        if not gone:
            self.vmis[g.key] = g
        elif known is not None and known.uid == g.uid:
            del self.vmis[g.key]
        m = self.vms.get(g.key)
        ours = g.deleting and g.uid not in self.spared and m is not None and not m.deleting
        return self._judged(before, ours, f"restarted {g.name}")

    def available(self) -> set[str]:
        members = (m for m in self.vms.values() if m.owner_uid == self.pool_uid and not m.deleting)
        return {m.uid for m in members if self._with_vmi(m).available}

    def _with_vmi(self, m: VM) -> VM:
        vmi = self.vmis.get(m.key)
        return replace(m, vmi=vmi) if vmi is not None and vmi.owner_uid == m.uid else m

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
