"""From the stores, and what we remember, to a State. Reads, and decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace

from controllers.claim.allocator import select_pool
from controllers.claim.limits import QuotaTracker
from controllers.claim.ready_queue import ReadyQueues, Variant
from controllers.claim.record import ClaimRecord
from controllers.claim.snapshot import Claim, ClaimSnapshot, Failure
from controllers.claim.wait_queue import WaitQueue
from controllers.warmpool.cache import WarmVMCache
from controllers.warmpool.demand import Demand
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool
from controllers.warmpool.warm_vm import WarmVM, why_unavailable
from runtime.expectations import Expectations
from runtime.store import Store


@dataclass(frozen=True)
class Stores:
    claims: Store[Claim]
    """indexed `uid`"""
    pools: Store[WarmPool | InvalidWarmPool]
    """indexed `namespace` and `uid`"""
    queues: WarmVMCache


@dataclass(frozen=True)
class Floor:
    """Where machines are given away: what is ready, who waits, who has how many."""

    shelves: ReadyQueues = field(default_factory=ReadyQueues)
    lines: dict[str, WaitQueue] = field(default_factory=dict)
    """by UID of the pool"""
    holders: QuotaTracker = field(default_factory=QuotaTracker)
    demand: Demand = field(default_factory=Demand)


@dataclass(frozen=True)
class ClaimObserver:
    stores: Stores
    floor: Floor
    filling: Expectations[str]
    """what the pools have asked for and not seen yet, by UID"""
    clock: Callable[[], float]
    unseen: Callable[[WarmPool], str | None] = lambda pool: None
    """why the pool's machines cannot be seen, where they can't: none that is shown is no reason to make one"""

    def __call__(self, claim: Claim, memory: ClaimRecord) -> ClaimSnapshot:
        now = self.clock()
        shown = self.stores.queues.vms.by("claim", claim.uid)
        machines = tuple(self.stores.queues.joined(m) for m in memory.known(shown, now))
        trouble = memory.trouble if memory.trouble is not None and now < memory.trouble_until else None
        state = ClaimSnapshot(
            claim=claim,
            machines=machines,
            certain=memory.certain,
            health=memory.health,
            trouble=trouble,
            refused=memory.denied[1] if memory.denied is not None and memory.denied[0] == claim.vm_uid else None,
            ended=memory.ended,
            marks=memory.marks,
        )
        if claim.vm_uid or any(not m.deleting for m in machines):
            return replace(state, pool=self._pool_of(claim, machines))
        if claim.over or claim.deleting:
            return state
        pool = select_pool(claim, self.stores.pools.by("namespace", claim.namespace))
        if isinstance(pool, Failure):
            return replace(state, absent=pool)
        if blind := self.unseen(pool):
            return replace(state, absent=Failure("MachinesUnseen", blind))
        line = self.floor.lines.get(pool.uid, WaitQueue())
        return replace(
            state,
            pool=pool,
            place=line.place(claim.uid) if claim.uid in line else 0,
            waiting=len(line),
            candidate=self.candidate(claim, pool, line),
            over_limit=self.floor.holders.over(claim, pool),
            full=self._full(pool),
        )

    def candidate(self, claim: Claim, pool: WarmPool, line: WaitQueue) -> WarmVM | None:
        """The machine that the claim would get, if there is one for everybody whose turn is before."""
        shelf, want = self.floor.shelves.of(pool.uid), claim.wanted
        probe = WarmVM(pool.namespace, "", "")

        def current(kin: Variant) -> bool:
            return pool.current(replace(probe, placement=kin.placement, template_hash=kin.template_hash))

        def serves(kin: Variant) -> bool:
            return pool.spec.update_strategy.type != "Recreate" or current(kin)

        def does(kin: Variant) -> bool:
            """What it wants otherwise was compared with today's template; of an older one nothing is known."""
            asks = want.instancetype or want.image
            return want.placement in ("", kin.placement) and (current(kin) if asks else serves(kin))

        if line.place(claim.uid) > shelf.count(serves):
            return None
        with closing(shelf.candidates(current, does)) as candidates:
            found = (self.stores.queues.get(key) for key in candidates)
            return next((m for m in found if m is not None and not why_unavailable(m)), None)

    def _pool_of(self, claim: Claim, machines: tuple[WarmVM, ...]) -> WarmPool | None:
        """The one that its machine came from, however many of its name there have been since."""
        uid = next((m.pool_uid for m in machines if m.uid == claim.vm_uid or not claim.vm_uid), "")
        found = self.stores.pools.by("uid", uid)
        return next((p for p in found if isinstance(p, WarmPool)), None)

    def _full(self, pool: WarmPool) -> bool:
        if pool.spec.max_total is None:
            return False
        filling = len(self.filling.open(pool.uid)[0])
        return self.stores.queues.places(pool.uid) + filling + self.floor.demand.making(pool.uid) >= pool.spec.max_total
