"""Reconciles claims: executes the steps of a claim until the claim must wait, and maps events to claims."""

from collections.abc import Callable, Hashable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime

from controllers.claim.allocator import Allocator
from controllers.claim.apply import ClaimWriter
from controllers.claim.evictions import delay
from controllers.claim.memory import ClaimRecord
from controllers.claim.observe import ClaimObserver
from controllers.claim.plan import plan
from controllers.claim.pod_notes import PodNote
from controllers.claim.queue_checks import QueueChecks
from controllers.claim.snapshot import CLAIMS, Claim, ClaimSnapshot, claim_of, parse_claim
from controllers.claim.steps import CheckApplication, CheckHealth, Requeue, Step, TerminateApplication
from controllers.shared.vmi import VMI
from controllers.warmpool.health import needs_probe
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool
from controllers.warmpool.warm_vm import Node, WarmVM
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.runtime.api import Api, find
from poolhouse.runtime.controller import RetryWithBackoff
from poolhouse.runtime.fair_slots import FairSlots, Slot
from poolhouse.runtime.resource import Key

MAX_STEPS = 40
"""Maximum number of steps in one reconcile of a claim. A claim needs about ten steps until it waits."""
MAX_IN_FLIGHT = 32
"""maximum number of claims that are reconciled at once; this also limits the number of API calls in flight"""
MAX_IN_FLIGHT_PER_NAMESPACE = 24
"""Fewer than all, so that the claims of one namespace, however many, never stop those of another."""
WOKEN_CLAIMS = 16
"""Number of queued claims to enqueue for one more ready VM. It is above 1, because a reconcile takes a while."""
Enqueue = Callable[[Key, float], None]
AnyWarmPool = WarmPool | InvalidWarmPool


@dataclass
class ClaimController:
    api: Api
    allocator: Allocator
    observe: ClaimObserver
    apply: ClaimWriter
    now: Callable[[], datetime]
    enqueue: Enqueue
    slots: FairSlots[str] = field(default_factory=lambda: FairSlots(MAX_IN_FLIGHT, per_key=MAX_IN_FLIGHT_PER_NAMESPACE))
    """by namespace"""
    _leading: bool = False

    def __post_init__(self) -> None:
        self.queue_checks = QueueChecks(self.allocator.queue, self._enqueue_claims)

    async def begin(self) -> None:
        """Restores the allocator. Must be called when this process becomes the leader, before the first reconcile."""
        documents, _ = await self.api.list(CLAIMS)
        self.allocator.reset([parse_claim(document) for document in documents])
        self._leading = True

    def end(self) -> None:
        self._leading = False

    async def reconcile(self, key: Key) -> float | None:
        async with self.slots.slot(key[0]) as slot:
            return await self._take_steps(key, slot)

    async def _take_steps(self, key: Key, slot: Slot[str]) -> float | None:
        claims = self.allocator.stores.claims
        cached = claims.get(key)
        if cached is None:
            return None
        record = self.allocator.record(cached)
        record.health = None
        for _ in range(MAX_STEPS):
            if record.stale and not await self._refresh(cached, record):
                return None
            snapshot = self.observe(record.latest(cached), record)
            self.allocator.count_arrival(snapshot, record)
            step = plan(snapshot, self.now())
            if isinstance(step, Requeue):
                if snapshot.claim.ended and not snapshot.vms:
                    self.allocator.forget(cached.uid)
                    return step.after_seconds
                return self.observe.requeue_after(cached, record, step)
            await self._take_step(snapshot, step, record, slot)
            after = claims.get(key)
            if after is None or after.uid != cached.uid:  # the event of the new claim has enqueued it
                return None
            cached = after
        raise RetryWithBackoff(f"more steps to take after {MAX_STEPS}; the last was {type(step).__name__}")

    async def _take_step(self, snapshot: ClaimSnapshot, step: Step, record: ClaimRecord, slot: Slot[str]) -> None:
        """Executes the step. Network health checks give their slot back, so that VMs of one pool that do not answer do
        not delay claims of other pools."""
        probes = isinstance(step, CheckApplication | TerminateApplication) or (
            isinstance(step, CheckHealth) and snapshot.pool is not None and needs_probe(snapshot.pool)
        )
        async with slot.given_back() if probes else nullcontext():
            await self.apply(snapshot, step, record)

    async def _refresh(self, cached: Claim, record: ClaimRecord) -> bool:
        """Reads the claim from the API. Returns False if the claim no longer exists."""
        found = await find(self.api, CLAIMS, cached.namespace, cached.name)
        live = parse_claim(found) if found is not None else None
        record.stale = False
        if live is None or live.uid != cached.uid:
            self.allocator.forget(cached.uid)
            return False
        record.claim = live
        self.allocator.status_observed(live)
        return True

    # Event handlers

    def claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self.allocator.claim_deleted(old.uid)
            old = None  # a claim with another UID is a new one
        if new is None:
            return
        if old is None or not self.allocator.wrote_claim(new):
            self.enqueue(new.key, 0.0)
        if not self._leading:
            return
        if old is None:
            record = self.allocator.record(new)
            if record.vms_known:
                record.timeline = replace(record.timeline, observed=record.timeline.observed or self.now())
            return
        if new.vm_uid != old.vm_uid:
            self.allocator.status_observed(new)
        if new.status.phase not in (old.status.phase, "Queued"):
            # Another process that believes it leads may have served the claim. If the claim waits again, it joins the
            # queue again.
            self.allocator.leave_queues(new.uid)
        if new.vm_uid and not new.ended and new.status.pool_name:
            self.allocator.quotas.charge(new.uid, (new.namespace, new.status.pool_name), new.requester)

    def pod_note_changed(self, old: PodNote | None, new: PodNote | None) -> None:
        """The claim that a Pod names may launch its application now, or must end it sooner."""
        if new is not None and new.claim:
            self.enqueue((new.namespace, new.claim), 0.0)

    def vm_changed(self, old: WarmVM | None, new: WarmVM | None) -> None:
        more = self.allocator.vm_changed(old, new)
        for vm in (old, new):
            # The reconcile that wrote the VM has gone on with the answer.
            known = (
                vm is not None and new is not None and vm.claim_uid == new.claim_uid and self.allocator.wrote_vm(new)
            )
            if vm is not None and not known:
                self._enqueue_claim_of(vm)
        if new is not None and more:
            self.wake_queue(new.pool_uid)

    def vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        for vmi in (old, new):
            vm = self.allocator.stores.vms.get(vmi.key) if vmi is not None else None
            if vm is None:
                continue
            if vm.claim_uid:
                self._enqueue_claim_of(vm)
            elif self.allocator.ready.update(vm, vm):
                self.wake_queue(vm.pool_uid)

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        vms, leaves = self.allocator.stores.vms, _leaves(old) != _leaves(new)
        for name in {node.name for node in (old, new) if node is not None}:
            for vm in map(vms.join, vms.on_node(name)):
                self.allocator.ready.update(vm, vm)
                if leaves:
                    self._enqueue_claim_of(vm)
        for pool_uid in self.allocator.pools_with_queue():
            self.wake_queue(pool_uid)

    def pool_changed(self, old: AnyWarmPool | None, new: AnyWarmPool | None) -> None:
        """Enqueues the claims in the pool's queue. Claims without a pool are requeued after a short time."""
        self._offer_recorded(old, new)
        if isinstance(old, WarmPool) and isinstance(new, WarmPool) and delay(old) != delay(new):
            for vm in self.allocator.stores.vms.of_pool(new):
                if vm.node is not None and vm.node.leaving:
                    self._enqueue_claim_of(vm)
        for pool in (old, new):
            if pool is not None:
                self.wake_queue(pool.uid)
                if _relevant(old) != _relevant(new):
                    self.queue_checks.add(pool.namespace, pool.uid)

    def _offer_recorded(self, old: AnyWarmPool | None, new: AnyWarmPool | None) -> None:
        """Offers Ready VMs that the status did not have before, and no longer offers those that have left it."""
        if not isinstance(old, WarmPool) or not isinstance(new, WarmPool) or old.members == new.members:
            return
        for vm in self.allocator.stores.vms.in_state(new, WarmState.READY):
            if old.recorded(vm) != new.recorded(vm):
                self.allocator.ready.update(vm, vm)

    def wake_queue(self, pool_uid: str) -> None:
        self._enqueue_claims(self.allocator.next_claims(pool_uid, WOKEN_CLAIMS))

    def _enqueue_claim_of(self, vm: WarmVM) -> None:
        """Uses the label, because only the controllers write it. Any user may change owner references."""
        if (claim := claim_of(self.allocator.stores.claims, vm)) is not None:
            self.enqueue(claim.key, 0.0)

    def _enqueue_claims(self, uids: Iterable[str]) -> None:
        for uid in uids:
            for claim in self.allocator.stores.claims.by("uid", uid):
                self.enqueue(claim.key, 0.0)


def _leaves(node: Node | None) -> bool:
    return node is not None and node.leaving


def _relevant(pool: AnyWarmPool | None) -> Hashable:
    """The fields of the pool that affect the claims in its queue."""
    return (pool.uid, pool.deleting, pool.generation) if isinstance(pool, WarmPool) else pool is not None
