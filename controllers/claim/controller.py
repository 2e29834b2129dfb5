"""Goes on with each claim until it has to wait, and decides who is looked at when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from datetime import datetime

from controllers.claim.apply import ClaimWriter
from controllers.claim.observe import ClaimObserver, Floor, Stores
from controllers.claim.plan import plan
from controllers.claim.record import ClaimRecord
from controllers.claim.snapshot import CLAIMS, Claim, ClaimSnapshot, read_claim
from controllers.claim.steps import CheckHealth, Requeue, Step
from controllers.claim.wait_queue import WaitQueue
from controllers.warmpool.health_tracker import needs_probe
from controllers.warmpool.node import Node
from controllers.warmpool.vmi import VMI
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool
from controllers.warmpool.warm_vm import WarmVM
from runtime.api import Api
from runtime.controller import RetryWithBackoff
from runtime.errors import NotFound
from runtime.resource import Key

MOST_STEPS = 40
"""of one claim in a row; a claim comes to rest after ten of them"""
TURNS = 32
"""Claims that are gone on with at once. Each makes one call at a time, so that is also how many calls there are."""
WOKEN = 16
"""Those whose turn is next are looked at when there is one machine more: more than one, as looking takes a while."""

IN_LINE_PER_SECOND = 200.0
"""Those in a line of which all have to be looked at."""

Enqueue = Callable[[Key, float], None]


@dataclass
class ClaimController:
    api: Api
    stores: Stores
    floor: Floor
    observe: ClaimObserver
    apply: ClaimWriter
    now: Callable[[], datetime]
    enqueue: Enqueue
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(TURNS))
    _memories: dict[str, ClaimRecord] = field(default_factory=dict)
    """by UID of the claim"""
    _older: set[str] = field(default_factory=set)
    """claims that there were when we began to lead: somebody else may have given them a machine a moment ago"""
    _leading: bool = False

    async def begin(self) -> None:
        """To be called when we begin to lead, and before anything is given away. What was remembered of an earlier
        time is worth nothing; who waits is found in the claims."""
        living, _ = await self.api.list(CLAIMS)
        # Nothing is waited for from here on: pools don't see what is half forgotten.
        for uid in list(self._memories):
            self._forget(uid)
        self.floor.shelves.reset(map(self.stores.queues.joined, self.stores.queues.vms.all()))
        # Who waited when we led before may have been served, or have failed, by somebody else's hand.
        waited = set(self.floor.lines)
        self.floor.lines.clear()
        self._older = {each["metadata"]["uid"] for each in living}
        for document in living:
            self._place(read_claim(document))
        for pool_uid in waited | set(self.floor.lines):
            self.floor.demand.wait(pool_uid, len(self.floor.lines.get(pool_uid, WaitQueue())))
        self._leading = True

    def end(self) -> None:
        self._leading = False

    async def reconcile(self, key: Key) -> float | None:
        async with self.turns:
            return await self._go_on(key)

    async def _go_on(self, key: Key) -> float | None:
        shown = self.stores.claims.get(key)
        if shown is None:
            return None
        memory = self._memory(shown)
        memory.health = None
        for _ in range(MOST_STEPS):
            if memory.stale and not await self._read(shown, memory):
                return None
            state = self.observe(memory.latest(shown), memory)
            step = plan(state, self.now())
            if isinstance(step, Requeue):
                if state.claim.over and not state.machines:
                    self._forget(shown.uid)
                return step.seconds
            await self._take_step(state, step, memory)
            now = self.stores.claims.get(key)
            if now is None or now.uid != shown.uid:  # its event has put it, or its successor, in the queue
                return None
            shown = now
        raise RetryWithBackoff(f"still not at rest after {MOST_STEPS} steps; the last was {type(step).__name__}")

    async def _take_step(self, state: ClaimSnapshot, step: Step, memory: ClaimRecord) -> None:
        """A machine that is asked over the network may never answer. Whoever waits for that keeps nobody from going
        on: one pool's silent machines must not hold up the claims of all others."""
        if not isinstance(step, CheckHealth) or state.pool is None or not needs_probe(state.pool):
            await self.apply(state, step, memory)
            return
        self.turns.release()
        try:
            await self.apply(state, step, memory)
        finally:
            await self.turns.acquire()

    async def _read(self, shown: Claim, memory: ClaimRecord) -> bool:
        """The claim from the API. False if it is gone."""
        try:
            live = read_claim(await self.api.get(CLAIMS, shown.namespace, shown.name))
        except NotFound:
            live = None
        memory.stale = False
        if live is None or live.uid != shown.uid:
            self._forget(shown.uid)
            return False
        memory.claim = live
        return True

    def _memory(self, c: Claim) -> ClaimRecord:
        if c.uid not in self._memories:
            self._memories[c.uid] = ClaimRecord(certain=c.uid not in self._older and not c.vm_uid and not c.over)
        return self._memories[c.uid]

    def _forget(self, uid: str) -> None:
        self.apply.forget(uid, self._memories.pop(uid, None))
        # Whatever is done for it again begins with a look.
        self._older.add(uid)

    def _place(self, c: Claim) -> None:
        """In line, or among those who have a machine."""
        pool = c.status.pool_name
        if c.over or not pool:
            return
        if c.vm_uid:
            self.floor.holders.hold(c.uid, (c.namespace, pool), c.requester)
        elif c.status.phase == "Queued":
            found = self.stores.pools.get((c.namespace, pool))
            if isinstance(found, WarmPool):
                place = f"{c.status.queue_position or 0:09}"  # before all that is seen from now on
                self.floor.lines.setdefault(found.uid, WaitQueue()).join(c.requester, c.created_at, c.uid, seen=place)

    # What changed, and whose business it is

    def claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._forget(old.uid)
            self._older.discard(old.uid)
        if new is None or not self._leading:
            if new is not None:
                self.enqueue(new.key, 0.0)
            return
        if old is None or old.uid != new.uid:
            memory = self._memory(new)
            if memory.certain:
                memory.marks = replace(memory.marks, seen=memory.marks.seen or self.now())
        elif new.vm_uid and not new.over and new.status.pool_name:
            self.floor.holders.hold(new.uid, (new.namespace, new.status.pool_name), new.requester)
        self.enqueue(new.key, 0.0)

    def vm_changed(self, old: WarmVM | None, new: WarmVM | None) -> None:
        more = self.floor.shelves.changed(old, self.stores.queues.joined(new) if new is not None else None)
        for m in (old, new):
            if m is not None:
                self._tell(m)
        gone = old is not None and (new is None or new.uid != old.uid)
        if old is not None and gone and (memory := self._memories.get(old.claim_uid)):
            memory.gone(old.uid)
        if new is not None:
            self.floor.demand.made(new.pool_uid, new.name)
            if more:
                self.next_in_line(new.pool_uid)

    def vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        for g in (old, new):
            m = self.stores.queues.get(g.key) if g is not None else None
            if m is None:
                continue
            if m.claim_uid:
                self._tell(m)
            elif self.floor.shelves.changed(m, m):
                self.next_in_line(m.pool_uid)

    def _tell(self, m: WarmVM) -> None:
        """Its claim, by the label that only we write: owner references are anybody's."""
        for c in self.stores.claims.by("uid", m.claim_uid) if m.claim_uid else ():
            self.enqueue(c.key, 0.0)

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        for name in {n.name for n in (old, new) if n is not None}:
            for m in map(self.stores.queues.joined, self.stores.queues.on(name)):
                self.floor.shelves.changed(m, m)
        for pool_uid in list(self.floor.lines):
            self.next_in_line(pool_uid)

    def pool_changed(self, old: WarmPool | InvalidWarmPool | None, new: WarmPool | InvalidWarmPool | None) -> None:
        """Claims that wait for a pool look again soon by themselves; those in its line need not wait for that."""
        for each in (old, new):
            if each is not None:
                self.next_in_line(each.uid)
                if _terms(old) != _terms(new):
                    self._all_in_line(each.uid)

    def _all_in_line(self, pool_uid: str) -> None:
        """They may not have to wait any more, or not be allowed to. One after the other, as nobody is in a hurry."""
        line = self.floor.lines.get(pool_uid, WaitQueue())
        for position, uid in enumerate(line.first(len(line))):
            for c in self.stores.claims.by("uid", uid):
                self.enqueue(c.key, position / IN_LINE_PER_SECOND)

    def next_in_line(self, pool_uid: str) -> None:
        line = self.floor.lines.get(pool_uid)
        ready = len(self.floor.shelves.of(pool_uid))
        if line is None or not ready:
            return
        for uid in line.first(min(ready, WOKEN)):
            for c in self.stores.claims.by("uid", uid):
                self.enqueue(c.key, 0.0)


def _terms(pool: WarmPool | InvalidWarmPool | None) -> Hashable:
    """What claims in its line depend on, but for what is ready."""
    return (pool.uid, pool.deleting, pool.generation) if isinstance(pool, WarmPool) else pool is not None
