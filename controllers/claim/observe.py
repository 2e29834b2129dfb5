"""Reads the stores, and what this process remembers, into the snapshot of a claim."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from controllers.claim.allocator import Allocator, select_pool
from controllers.claim.memory import ClaimRecord
from controllers.claim.pod_notes import PodNote, note_of
from controllers.claim.reasons import ClaimReason
from controllers.claim.snapshot import Claim, ClaimSnapshot, Failure, health_period_seconds
from controllers.claim.steps import Requeue
from controllers.warmpool.ec2.tags import has_agent
from controllers.warmpool.warm_pool import WarmPool, pool_of
from controllers.warmpool.warm_vm import WarmVM, with_resumed_guest
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.runtime.store import Store


@dataclass(frozen=True)
class ClaimObserver:
    allocator: Allocator
    clock: Callable[[], float]
    vms_unknown: Callable[[WarmPool], str | None] = lambda pool: None
    """returns why the pool's VMs cannot be listed now, or None; without a list, the controller creates no VM"""
    pod_notes: Store[PodNote] = field(default_factory=Store)
    """by Pod. It is empty without a virtual node, so that no claim of a Pod launches its application."""
    cluster: Callable[[], ClusterSettings | None] = lambda: None

    def __call__(self, claim: Claim, record: ClaimRecord) -> ClaimSnapshot:
        now = self.clock()
        snapshot = self._claim_and_vms(claim, record, now)
        if (claim.vm_uid and not claim.finished) or any(not vm.deleting for vm in snapshot.vms):
            return self._with_pool_of_vm(snapshot, record, now)
        return self._with_selected_pool(snapshot)

    def _claim_and_vms(self, claim: Claim, record: ClaimRecord, now: float) -> ClaimSnapshot:
        """The snapshot without a pool."""
        stores = self.allocator.stores
        cached = stores.vms.of_claim(claim)
        vms = tuple(stores.vms.join(vm) for vm in record.merged(cached, now))
        vms = tuple(with_resumed_guest(vm) if record.has_resumed(vm, now) else vm for vm in vms)
        personalized, not_personalized = record.personalization or ("", None)
        note = note_of(claim, self.pod_notes)
        return ClaimSnapshot(
            claim=claim,
            vms=vms,
            unrecorded=frozenset(vm.uid for vm in vms if not self.allocator.given_by_controllers(claim, vm, record)),
            vms_known=record.vms_known,
            health=record.health,
            failure=record.failure if now < record.retry_at else None,
            not_personalized=not_personalized if personalized == claim.vm_uid else None,
            deletion=record.deletion,
            application=record.read_application(now),
            may_launch=claim.pod is None or note is not None,
            deletion_grace_seconds=note.grace_seconds if note is not None else None,
            has_agent=any(vm.uid == claim.vm_uid and _has_agent(claim, vm) for vm in vms),
            ending_seconds=None if record.terminated_at is None else now - record.terminated_at,
            cluster=self.cluster(),
            timeline=record.timeline,
        )

    def _with_pool_of_vm(self, snapshot: ClaimSnapshot, record: ClaimRecord, now: float) -> ClaimSnapshot:
        """The snapshot of a claim that has a VM."""
        claim = snapshot.claim
        pool, candidate = self._pool_of(claim, snapshot.vms), None
        if pool is not None and claim.status.launch_type == "Cold" and not claim.status.ready_at:
            candidate = self.allocator.candidate(claim, pool)
        recent = record.recent_application_health(now, health_period_seconds(pool))
        return replace(snapshot, pool=pool, candidate=candidate, application_health=recent)

    def _with_selected_pool(self, snapshot: ClaimSnapshot) -> ClaimSnapshot:
        """The snapshot of a claim without a VM, with its place in the pool's queue."""
        claim = snapshot.claim
        pool = select_pool(claim, self.allocator.stores.pools.by("namespace", claim.namespace))
        if claim.ended:
            return snapshot if isinstance(pool, Failure) else replace(snapshot, pool=pool)
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

    def requeue_after(self, claim: Claim, record: ClaimRecord, step: Requeue) -> float | None:
        """Seconds until the next reconcile. A VM that the store does not show may be gone, and then has no event."""
        hidden = record.seconds_until_shown(self.allocator.stores.vms.of_claim(claim), self.clock())
        return min((each for each in (step.after_seconds, hidden) if each is not None), default=None)

    def _pool_of(self, claim: Claim, vms: tuple[WarmVM, ...]) -> WarmPool | None:
        """The pool of the claim's VM. None if the pool was deleted, even if a new pool has its name."""
        own = next((vm for vm in vms if vm.uid == claim.vm_uid or not claim.vm_uid), None)
        found = pool_of(self.allocator.stores.pools, own) if own is not None else None
        return found if isinstance(found, WarmPool) else None


def _has_agent(claim: Claim, vm: WarmVM) -> bool:
    """Whether the agent in the VM knows the health of an application. An agent of an EC2 instance always has one."""
    return has_agent(vm) or (bool(vm.agent) and claim.spec.application is not None)
