"""Allocates VMs of warm pools to claims: selects the pool, the VM and the order of the claims.

    ReadyQueue     the VMs of the pools that claims can get now
    WaitQueue      the claims that wait for VMs of a pool
    QuotaTracker   how many VMs of a pool each requester has
    ClaimRecord    the data of this process about one claim, in addition to the stores

The allocator keeps these data in memory and calls no API. The data let concurrent claims reserve different VMs, in
order. Only the write of the claim's UID on the VM ensures that a VM has at most one claim, because this write carries
the VM's resourceVersion.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from controllers.claim.memory import ClaimRecord
from controllers.claim.ready_queue import ReadyQueue, Variant
from controllers.claim.reasons import ClaimReason
from controllers.claim.snapshot import Claim, ClaimSnapshot, Failure, time_or_min
from controllers.claim.wait_queue import WaitQueue
from controllers.shared.conditions import find_condition
from controllers.warmpool.cache import Demand, WarmVMCache
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool, default_pool, is_recorded, pool_of
from controllers.warmpool.warm_vm import WarmVM, why_unavailable
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.timestamps import format_micro_time
from poolhouse.api.kinds.decisions import Decision
from poolhouse.runtime.expectations import Expectations
from poolhouse.runtime.resource import Key
from poolhouse.runtime.store import Store
from poolhouse.service.held_counter import HeldCounter

UNSERVED = (ClaimReason.NO_CAPACITY, ClaimReason.BIND_TIMEOUT)
"""reasons of failed claims for which the pool had no VM in time"""


@dataclass(frozen=True)
class Stores:
    claims: Store[Claim]
    """indexed by `uid`"""
    pools: Store[WarmPool | InvalidWarmPool]
    """indexed by `namespace` and `uid`"""
    vms: WarmVMCache


def select_pool(claim: Claim, pools: Collection[WarmPool | InvalidWarmPool]) -> WarmPool | Failure:
    """The pool that the claim names, or the default pool. `pools` are the pools of the claim's namespace."""
    name, namespace = claim.spec.pool_name, claim.namespace
    if not name and (default := default_pool(pools)):
        return default
    found = next((pool for pool in pools if pool.name == name), None)
    if isinstance(found, WarmPool) and not found.deleting:
        return found
    names = ", ".join(sorted(pool.name for pool in pools)) or "none"
    if not name:
        problem = f"there is no warm pool in namespace {namespace}"
        if pools:
            problem = f"namespace {namespace} has no default pool: set spec.poolName to one of: {names}"
        return Failure(ClaimReason.NO_DEFAULT_POOL, f"the claim names no pool, and {problem}")
    if found is None:
        message = f"there is no warm pool {name} in namespace {namespace}, which has: {names}"
        return Failure(ClaimReason.POOL_NOT_FOUND, f"{message}; a pool serves claims of its own namespace only")
    if isinstance(found, InvalidWarmPool):
        return Failure(ClaimReason.POOL_INVALID, f"warm pool {name} is not valid: {found.problem}")
    return Failure(ClaimReason.POOL_NOT_FOUND, f"warm pool {name} is being deleted")


class QuotaTracker:
    """Counts VMs that claims have or are getting, so that concurrent claims stay within the quota."""

    def __init__(self) -> None:
        self._charged: dict[str, tuple[Key, str]] = {}
        """pool and requester, by UID of the claim"""
        self._by_pool = HeldCounter[Key]()
        self._by_requester = HeldCounter[tuple[Key, str]]()

    def charge(self, claim_uid: str, pool: Key, requester: str) -> None:
        if self._charged.get(claim_uid) == (pool, requester):
            return
        self.release(claim_uid)
        self._charged[claim_uid] = (pool, requester)
        self._by_pool[pool] += 1
        self._by_requester[pool, requester] += 1

    def release(self, claim_uid: str) -> None:
        if claim_uid not in self._charged:
            return
        pool, requester = self._charged.pop(claim_uid)
        self._by_pool.release(pool)
        self._by_requester.release((pool, requester))

    def exceeded(self, claim: Claim, pool: WarmPool) -> Failure | None:
        """Why the pool's quota does not allow the claim a VM now, or None."""
        if claim.uid in self._charged:
            return None
        policy, total = pool.spec.claim_policy, self._by_pool[pool.key]
        own = self._by_requester[pool.key, claim.requester]
        if policy.max_per_user is not None and own >= policy.max_per_user:
            requester = claim.requester or "the claim's user"
            message = f"{requester} has {count_noun(own, 'VM')} of the pool, maxPerUser is {policy.max_per_user}"
        elif policy.max_per_namespace is not None and total >= policy.max_per_namespace:
            message = (
                f"claims have {count_noun(total, 'VM')} of the pool, maxPerNamespace is {policy.max_per_namespace}"
            )
        else:
            return None
        return Failure(ClaimReason.QUOTA_EXCEEDED, message)


@dataclass
class Allocator:
    stores: Stores
    demand: Demand = field(default_factory=Demand)
    pool_creations: Expectations[str] = field(default_factory=Expectations)
    """creations of the pools that no store shows yet, by UID of the pool"""
    ready: ReadyQueue = field(init=False)
    quotas: QuotaTracker = field(default_factory=QuotaTracker)
    _waiting: dict[str, WaitQueue] = field(default_factory=dict)
    """the key is the UID of the pool"""
    _records: dict[str, ClaimRecord] = field(default_factory=dict)
    """the key is the UID of the claim"""
    _vms_unknown: set[str] = field(default_factory=set)
    """UIDs of claims that may have a VM without a record in this process"""

    def __post_init__(self) -> None:
        self.ready = ReadyQueue(self._is_offered)
        self.demand.reserved = self.ready.reserved

    def _is_offered(self, vm: WarmVM) -> bool:
        """Whether the status of the VM's pool says that the controllers have created the VM. A pool that is not valid
        gives no VM away, and is asked again when it does."""
        pool = self.stores.pools.first("uid", vm.pool_uid)
        if pool is not None and pool.namespace != vm.namespace:
            return False
        return not isinstance(pool, WarmPool) or pool.recorded(vm)

    def given_by_controllers(self, claim: Claim, vm: WarmVM, record: ClaimRecord) -> bool:
        """Whether a controller has given the VM to the claim. The VM's label alone does not say so: the status of the
        claim or of the pool has the VM's UID, or this process has reserved or created it."""
        if vm.uid == claim.vm_uid or vm.uid in record.own:
            return True
        pool = pool_of(self.stores.pools, vm)
        return pool is not None and is_recorded(pool.status.members, vm)

    # Records

    def record(self, claim: Claim) -> ClaimRecord:
        if claim.uid not in self._records:
            known = claim.uid not in self._vms_unknown and not claim.vm_uid and not claim.finished
            self._records[claim.uid] = ClaimRecord(vms_known=known)
        return self._records[claim.uid]

    def status_observed(self, claim: Claim) -> None:
        """Lists the claim's VMs before the next decision, if another process has bound a VM that this process has not
        seen. The store of claims may be ahead of the store of VMs, in which the VM still belongs to its pool."""
        record = self.record(claim)
        seen = {*record.vms, *(vm.uid for vm in self.stores.vms.of_claim(claim))}
        if claim.vm_uid and claim.vm_uid not in seen:
            record.vms_known = False

    def wrote_claim(self, claim: Claim) -> bool:
        """Whether this version of the claim is the last write of this process, whose answer the record has."""
        record = self._records.get(claim.uid)
        written = record.claim if record is not None and not record.stale else None
        return written is not None and written.resource_version == claim.resource_version

    def wrote_vm(self, vm: WarmVM) -> bool:
        """Like `wrote_claim`, of the claim's VM."""
        record = self._records.get(vm.claim_uid)
        written = record.vms[vm.uid][0] if record is not None and vm.uid in record.vms else None
        return written is not None and not written.deleting and written.resource_version == vm.resource_version

    def forget(self, claim_uid: str) -> None:
        """Drops the record, the queue position and the quota of a deleted or finished claim. A new record of the claim
        has to list its VMs first."""
        self.leave_queues(claim_uid)
        self.quotas.release(claim_uid)
        self._vms_unknown.add(claim_uid)
        if record := self._records.pop(claim_uid, None):
            self._offer_again(record.reserved)
            self._offer_again(record.rejected)
            for pool_uid, name in record.creating:
                self.demand.creation_over(pool_uid, name)

    def claim_deleted(self, claim_uid: str) -> None:
        self.forget(claim_uid)
        self._vms_unknown.discard(claim_uid)

    def reset(self, claims: Collection[Claim]) -> None:
        """Rebuilds all data for a new leader, because another process may have served the claims before."""
        # The pools must not see partial data, so the records are dropped first.
        for uid in list(self._records):
            self.forget(uid)
        self.demand.forget_arrivals()
        self.ready.reset(map(self.stores.vms.join, self.stores.vms.vms.all()))
        pools = set(self._waiting)
        self._waiting.clear()
        self._vms_unknown = {claim.uid for claim in claims}
        for claim in claims:
            self._restore(claim)
        for pool_uid in pools | set(self._waiting):
            self.demand.set_queued(pool_uid, len(self._waiting.get(pool_uid, ())))

    def _restore(self, claim: Claim) -> None:
        pool = claim.status.pool_name
        if claim.finished or not pool:
            return
        if claim.vm_uid:
            self.quotas.charge(claim.uid, (claim.namespace, pool), claim.requester)
        elif claim.status.phase == "Queued":
            found = self.stores.pools.get((claim.namespace, pool))
            if isinstance(found, WarmPool):
                # A sort key below all times at which this process observes claims.
                observed_at = f"{claim.status.queue_position or 0:09}"
                queue = self._waiting.setdefault(found.uid, WaitQueue())
                queue.join(claim.requester, claim.created_at, claim.uid, observed_at=observed_at)

    # Wait queues

    def queue(self, pool_uid: str) -> WaitQueue:
        return self._waiting.get(pool_uid) or WaitQueue()

    def join_queue(self, claim: Claim, pool: WarmPool, record: ClaimRecord) -> None:
        observed_at = format_micro_time(record.timeline.observed) if record.timeline.observed else ""
        queue = self._waiting.setdefault(pool.uid, WaitQueue())
        queue.join(claim.requester, claim.created_at, claim.uid, observed_at=observed_at)
        self.demand.set_queued(pool.uid, len(queue))

    def leave_queues(self, claim_uid: str) -> None:
        for pool_uid in list(self._waiting):
            self._leave_queue(claim_uid, pool_uid)

    def _leave_queue(self, claim_uid: str, pool_uid: str, *, served: bool = False) -> None:
        queue = self._waiting.get(pool_uid)
        if queue is not None and claim_uid in queue:
            queue.leave(claim_uid, served=served)
            self.demand.set_queued(pool_uid, len(queue))
            if not len(queue):
                del self._waiting[pool_uid]

    def pools_with_queue(self) -> list[str]:
        return list(self._waiting)

    def next_claims(self, pool_uid: str, limit: int) -> list[str]:
        """UIDs of waiting claims that ready VMs of the pool can serve now."""
        return self.queue(pool_uid).first(min(self.ready.count(pool_uid), limit))

    # Demand

    def count_arrival(self, s: ClaimSnapshot, record: ClaimRecord) -> None:
        """Adds the claim to the demand of its pool, once. The pool knows which claims an earlier leader has added."""
        if not record.counted and s.pool is not None and not s.claim.ended:
            record.counted = True
            self.demand.arrived(s.pool.uid, time_or_min(s.claim.created_at).timestamp())

    def count_wait(self, s: ClaimSnapshot, after: Claim) -> None:
        """Adds the time until the claim was handed over, or that it got no VM in time, to the demand of its pool."""
        status = after.status
        if s.pool is None or self.stores.pools.first("uid", s.pool.uid) is None:  # nobody would read it
            return
        if status.ready_at and not s.claim.status.ready_at and status.timings is not None:
            self.demand.served(s.pool.uid, (status.timings.total_ms or 0) / 1000)
        failed = status.phase == "Failed" and s.claim.status.phase != "Failed"
        bound = find_condition(status.conditions, "Bound")
        if failed and bound is not None and bound.reason in UNSERVED:
            self.demand.served(s.pool.uid, math.inf)

    def count_deletion(self, vm: WarmVM, decision: Decision) -> None:
        """Records the deletion of a VM for the log of its pool, which may be deleted."""
        if pool_of(self.stores.pools, vm) is not None:
            self.demand.deleted(vm.pool_uid, decision)

    # Ready VMs

    def candidate(self, claim: Claim, pool: WarmPool) -> WarmVM | None:
        """The VM that the claim gets now. None if the claims before it in the queue need all ready VMs."""
        overrides = claim.overrides

        def is_current(variant: Variant) -> bool:
            return pool.is_current(variant.template_hash, variant.placement)

        def is_usable(variant: Variant) -> bool:
            return pool.spec.update_strategy.type != "Recreate" or is_current(variant)

        def fits(variant: Variant) -> bool:
            """Whether the claim can get the VM. Overrides match only the current template, not an older template."""
            compared = overrides.instancetype or overrides.image
            in_placement = overrides.placement in (None, variant.placement)
            return in_placement and (is_current(variant) if compared else is_usable(variant))

        if self.queue(pool.uid).position(claim.uid) > self.ready.count(pool.uid, is_usable):
            return None
        vms = (self.stores.vms.get(key) for key in self.ready.candidates(pool.uid, is_current, fits))
        return next((vm for vm in vms if vm is not None and not why_unavailable(vm) and pool.recorded(vm)), None)

    def reserve(self, claim: Claim, pool: WarmPool, vm: WarmVM, record: ClaimRecord) -> None:
        """Reserves the VM for the claim. Callers must call this method before the first await, so that other claims get
        other VMs."""
        self._offer_again(record.rejected)
        self.ready.reserve(vm)
        self.quotas.charge(claim.uid, pool.key, claim.requester)
        self._leave_queue(claim.uid, pool.uid, served=True)
        record.reserved[vm.uid] = vm.key

    def cancel_reservation(self, claim: Claim, vm: WarmVM, record: ClaimRecord) -> None:
        """Cancels the reservation of a VM that the claim did not get. Other claims can get the VM."""
        self.free_quota(claim)
        record.reserved.pop(vm.uid, None)
        self._offer_again({vm.uid: vm.key})

    def reject(self, claim: Claim, vm: WarmVM, record: ClaimRecord) -> None:
        """Cancels a refused reservation. The next attempt uses another VM, because this VM may be the cause."""
        self.free_quota(claim)
        if key := record.reserved.pop(vm.uid, None):
            record.rejected[vm.uid] = key

    def free_quota(self, claim: Claim) -> None:
        """Frees the claim's place in the quota after it did not get a VM. A claim whose own VM boots keeps it."""
        if not claim.vm_uid:
            self.quotas.release(claim.uid)

    # VMs that are created for a claim

    def is_full(self, pool: WarmPool) -> bool:
        if pool.spec.max_total is None:
            return False
        creating = len(self.pool_creations.open(pool.uid)[0]) + self.demand.creating(pool.uid)
        return self.stores.vms.count(pool) + creating >= pool.spec.max_total

    def begin_creation(self, claim: Claim, pool: WarmPool, name: str, record: ClaimRecord) -> None:
        self.quotas.charge(claim.uid, pool.key, claim.requester)
        self._leave_queue(claim.uid, pool.uid)
        self.demand.expect_creation(pool.uid, name)
        record.creating.add((pool.uid, name))

    def cancel_creation(self, claim: Claim, pool: WarmPool, name: str, record: ClaimRecord) -> None:
        self.quotas.release(claim.uid)
        self.demand.creation_over(pool.uid, name)
        record.creating.discard((pool.uid, name))

    # Results of API calls and events

    def vms_listed(self, claim: Claim, vms: Iterable[WarmVM], record: ClaimRecord, now: float) -> None:
        """Records `vms`, the complete list of VMs with the claim's UID."""
        found = {vm.uid: vm for vm in vms}
        record.listed(found.values(), now)
        self._offer_again({uid: record.reserved.pop(uid) for uid in record.reserved.keys() - found.keys()})
        # A listed VM counts as being created until the store shows it. A VM that is not listed was not created.
        names = {vm.name for vm in found.values()}
        for pool_uid, name in list(record.creating):
            if name not in names or self.stores.vms.vms.get((claim.namespace, name)) is not None:
                self.demand.creation_over(pool_uid, name)
            if name not in names:
                record.creating.discard((pool_uid, name))

    def status_written(self, before: Claim, after: Claim, record: ClaimRecord) -> None:
        # While its own VM boots, a claim may try to reserve others. It needs none of them when it is Ready.
        is_ready = bool(after.status.ready_at) and not before.status.ready_at
        if after.vm_uid and (after.vm_uid != before.vm_uid or is_ready):
            record.reserved.pop(after.vm_uid, None)
            self._offer_again(record.reserved)
            self._offer_again(record.rejected)
        if after.finished or not after.vm_uid:
            self.quotas.release(after.uid)
        if after.status.phase != "Queued":  # a claim with an obstacle must not delay the claims behind it
            self.leave_queues(after.uid)

    def vm_changed(self, old: WarmVM | None, new: WarmVM | None) -> bool:
        """Returns whether the pool has one more ready VM."""
        more = self.ready.update(old, self.stores.vms.join(new) if new is not None else None)
        deleted = old is not None and (new is None or new.uid != old.uid)
        if old is not None and deleted and (record := self._records.get(old.claim_uid)):
            record.vm_deleted(old.uid)
        if new is not None:
            self.demand.creation_over(new.pool_uid, new.name)
        return more

    def _offer_again(self, vms: dict[str, Key]) -> None:
        """Offers VMs to other claims, as the store shows them. If the store does not show a VM as Ready, the next event
        of the VM offers it."""
        while vms:
            uid, key = vms.popitem()
            self.ready.restore(uid, self.stores.vms.get(key))
