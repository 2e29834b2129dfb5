"""What this process knows of one claim beyond the stores.

A later leader needs none of it. The record keeps this process from acting on a state that it has changed itself a
moment ago, and says where it must ask the API because it did not see what happened.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from controllers.claim.snapshot import Claim, Failure, Timeline
from controllers.warmpool.backends import Health
from controllers.warmpool.warm_vm import WarmVM
from runtime.reflector import is_older
from runtime.resource import Key

MAX_CACHE_LAG_SECONDS = 15.0
"""A store that has not shown a write by then may never do so, because the write was undone: the API is asked."""


@dataclass
class ClaimRecord:
    """Dropped as a whole when the claim is gone or finished (`Allocator.forget`)."""

    vms_known: bool = False
    """no VM can carry the claim's UID except those that the stores or this record have"""
    stale: bool = False
    """the claim must be read from the API"""
    claim: Claim | None = None
    """after our last write"""
    vms: dict[str, tuple[WarmVM, float]] = field(default_factory=dict)
    """by UID: after our last write or read, and when that was"""
    reserved: dict[str, Key] = field(default_factory=dict)
    """by UID: VMs that no other claim gets while our reservation of them is not seen"""
    rejected: dict[str, Key] = field(default_factory=dict)
    """by UID: VMs whose reservation was refused, and which are not tried again before another one was"""
    creating: set[tuple[str, str]] = field(default_factory=set)
    """(pool UID, name) of VMs that were asked for"""
    placement_draws: int = 0
    """refused creations: each draws another placement"""
    unconfirmed: str = ""
    """name of a VM whose creation was not answered"""
    health: Health | None = None
    """found by the last step, and dropped with the next one"""
    failure: Failure | None = None
    retry_at: float = 0.0
    """until then what failed is not tried again"""
    failures: int = 0
    """in a row"""
    personalization: tuple[str, tuple[Failure, ...]] | None = None
    """UID of the VM that was personalized, and what it did not get"""
    deletion: Failure | None = None
    """why this process deleted the claim's VM"""
    timeline: Timeline = field(default_factory=Timeline)

    def latest(self, cached: Claim) -> Claim:
        """The claim after our last write, until the store shows that or a later version."""
        written = self.claim
        if (
            written is not None
            and written.uid == cached.uid
            and is_older(cached.resource_version, written.resource_version)
        ):
            return written
        self.claim = None
        return cached

    def remember(self, vm: WarmVM, now: float) -> None:
        self.vms[vm.uid] = (vm, now)

    def listed(self, vms: Iterable[WarmVM], now: float) -> None:
        """These are all VMs that carry the claim's UID."""
        self.vms = {vm.uid: (vm, now) for vm in vms}
        self.vms_known = True

    def merged(self, cached: Iterable[WarmVM], now: float) -> tuple[WarmVM, ...]:
        """The claim's VMs: as the store shows them, or after our last write where that is later."""
        merged = {vm.uid: vm for vm in cached}
        for uid, (vm, at) in list(self.vms.items()):
            shown = merged.get(uid)
            if shown is not None and not is_older(shown.resource_version, vm.resource_version):
                # What this process deleted stays deleted, also while the store shows its last version.
                if not vm.deleting or shown.deleting or shown.resource_version != vm.resource_version:
                    del self.vms[uid]
                    continue
            elif shown is None and now - at > MAX_CACHE_LAG_SECONDS:
                del self.vms[uid]
                self.vms_known = False
                continue
            merged[uid] = replace(vm, vmi=None, node=None)
        return tuple(merged.values())

    def vm_deleted(self, uid: str) -> None:
        """The store has shown that the VM is gone."""
        self.vms.pop(uid, None)
        self.reserved.pop(uid, None)
        self.vms_known = False
