"""Reads the stores and the record of a claim into a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from controllers.claim.allocator import Allocator, select_pool
from controllers.claim.reasons import ClaimReason
from controllers.claim.record import ClaimRecord
from controllers.claim.snapshot import Claim, ClaimSnapshot, Failure
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import WarmVM


@dataclass(frozen=True)
class ClaimObserver:
    allocator: Allocator
    clock: Callable[[], float]
    vms_unknown: Callable[[WarmPool], str | None] = lambda pool: None
    """why the pool's VMs cannot be listed now: then no VM is created because none is seen"""

    def __call__(self, claim: Claim, record: ClaimRecord) -> ClaimSnapshot:
        now, stores = self.clock(), self.allocator.stores
        cached = stores.vms.vms.by("claim", claim.uid)
        vms = tuple(stores.vms.join(vm) for vm in record.merged(cached, now))
        personalized, not_personalized = record.personalization or ("", None)
        snapshot = ClaimSnapshot(
            claim=claim,
            vms=vms,
            vms_known=record.vms_known,
            health=record.health,
            failure=record.failure if now < record.retry_at else None,
            not_personalized=not_personalized if personalized == claim.vm_uid else None,
            deletion=record.deletion,
            timeline=record.timeline,
        )
        if claim.vm_uid or any(not vm.deleting for vm in vms):
            return replace(snapshot, pool=self._pool_of(claim, vms))
        if claim.finished or claim.deleting:
            return snapshot
        pool = select_pool(claim, stores.pools.by("namespace", claim.namespace))
        if isinstance(pool, Failure):
            return replace(snapshot, no_pool=pool)
        if why := self.vms_unknown(pool):
            return replace(snapshot, no_pool=Failure(ClaimReason.BACKEND_UNAVAILABLE, why))
        queue = self.allocator.queue(pool.uid)
        return replace(
            snapshot,
            pool=pool,
            position=queue.position(claim.uid) if claim.uid in queue else 0,
            queue_length=len(queue),
            candidate=self.allocator.candidate(claim, pool),
            over_quota=self.allocator.quotas.exceeded(claim, pool),
            pool_full=self.allocator.is_full(pool),
        )

    def _pool_of(self, claim: Claim, vms: tuple[WarmVM, ...]) -> WarmPool | None:
        """The pool that the claim's VM came from, which may have been deleted and created again since."""
        uid = next((vm.pool_uid for vm in vms if vm.uid == claim.vm_uid or not claim.vm_uid), "")
        found = self.allocator.stores.pools.by("uid", uid)
        return next((pool for pool in found if isinstance(pool, WarmPool)), None)
