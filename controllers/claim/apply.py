"""Takes a step. The only code of claims that writes; it decides nothing.

Every write of a machine or of a claim carries the resourceVersion that was looked at. What an answer tells is put into
the claim's memory; an answer that did not come, or that says that somebody was first, leaves there that we must look.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from controllers.claim.metrics import ClaimMetrics
from controllers.claim.observe import Floor, Stores
from controllers.claim.overrides import applied
from controllers.claim.personalization import labels, personal_template, seed
from controllers.claim.ready_queue import is_unclaimed
from controllers.claim.record import ClaimRecord
from controllers.claim.snapshot import CLAIMS, Claim, ClaimSnapshot, Failure, read_claim, text
from controllers.claim.steps import (
    ActivateVM,
    CheckHealth,
    ClaimEvent,
    CreateVM,
    DeleteVM,
    FindVMs,
    HandOverVM,
    JoinWaitQueue,
    MarkActivated,
    PersonalizeVM,
    Requeue,
    ReserveVM,
    Step,
    UpdateStatus,
)
from controllers.claim.wait_queue import WaitQueue
from controllers.claim.wishes import Wishes
from controllers.warmpool.audit_log import log_event
from controllers.warmpool.backends import Backend, Change, CreateRequest, Health, OutcomeUnknown, WriteConflict
from controllers.warmpool.naming import draw_placement
from controllers.warmpool.ssh_keys import wants_key
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import WarmVM
from kinds import meta
from kinds.claim import ClaimStatus
from kinds.warm_states import WarmState
from kinds.warmpool import Health as HealthTerms
from kinds.warmpool import Readiness
from runtime.api import Api
from runtime.backoff import Backoff
from runtime.errors import OUTCOME_UNKNOWN, AlreadyExists, ApiError, Conflict, Invalid, NotFound, Throttled
from runtime.events import EventRecorder, view_reference
from runtime.resource import Key

log = logging.getLogger(__name__)

SAME_TRIES = 3
"""A write of the machine's status between our look and our write refuses ours, and takes nothing from us."""
REFUSALS = Backoff(base_seconds=1, cap_seconds=30)
"""between tries to make or take a machine that were refused for a reason that may pass"""


@dataclass
class ClaimWriter:
    api: Api
    events: EventRecorder
    machines: Callable[[WarmPool | None], Backend]
    """who holds the machines of a pool"""
    stores: Stores
    floor: Floor
    metrics: ClaimMetrics
    clock: Callable[[], float]
    now: Callable[[], datetime]

    async def __call__(self, s: ClaimSnapshot, step: Step, memory: ClaimRecord) -> None:
        """Raises only what the API server's absence raises."""
        health, memory.health = memory.health, None
        holder = self.machines(s.pool)
        match step:
            case FindVMs():
                await self._look(s, holder, memory)
            case ReserveVM(m):
                await self._take(s, m, holder, memory)
            case CreateVM():
                await self._make(s, step, holder, memory)
            case UpdateStatus(status, news):
                memory.health = health
                await self._say(s, status, news, memory)
            case MarkActivated(m):
                await self._change(s, m, Change(annotations={meta.ACTIVATED_AT: text(self.now())}), holder, memory)
            case ActivateVM(m):
                await self._wake(m, holder, memory)
            case CheckHealth(m):
                asks = (s.pool.spec.readiness, s.pool.spec.health) if s.pool else (Readiness(), HealthTerms())
                memory.health = await holder.check(m, asks[0], asks[1].timeout_seconds)
            case PersonalizeVM(m):
                memory.health = health
                await self._grant(s, m, holder, memory)
            case HandOverVM(m):
                await self._hand_over(s, m, holder, memory)
                memory.health = memory.health or health
            case DeleteVM(m, reason):
                await self._end(s, m, reason, holder, memory)
            case JoinWaitQueue():
                self._wait(s)
            case Requeue():
                raise AssertionError("to rest is nothing to be done")

    async def _look(self, s: ClaimSnapshot, holder: Backend, memory: ClaimRecord) -> None:
        found = await holder.find(s.claim.namespace, s.claim.uid)
        memory.found(found, self.clock())
        for uid in memory.taking.keys() - {m.uid for m in found}:
            self._put_back(uid, memory.taking.pop(uid))
        # What was found is counted until the store shows it; what was not, was not made.
        names = {m.name for m in found}
        for pool_uid, name in list(memory.making):
            if name not in names or self.stores.queues.vms.get((s.claim.namespace, name)) is not None:
                self.floor.demand.made(pool_uid, name)
            if name not in names:
                memory.making.discard((pool_uid, name))

    # The first compare-and-swap

    async def _take(self, s: ClaimSnapshot, m: WarmVM, holder: Backend, memory: ClaimRecord) -> None:
        assert s.pool is not None
        self._let_go(memory.refused)
        # Before the first await: whoever looks while we wait is offered another one.
        self.floor.shelves.take(m)
        self.floor.holders.hold(s.claim.uid, s.pool.key, s.claim.requester)
        self._leave(s.claim.uid, s.pool.uid, served=True)
        memory.taking[m.uid] = m.key
        memory.marks = replace(memory.marks, popped=memory.marks.popped or self.now())
        change = Change(
            state=WarmState.ALLOCATING,
            claim_uid=s.claim.uid,
            owner=s.claim.owner,
            annotations={meta.CLAIM_NAME: s.claim.name, meta.STATE_REASON: f"given to claim {s.claim.name}"},
        )
        for _ in range(SAME_TRIES):
            try:
                given = await holder.change(m, change)
            except OutcomeUnknown:
                memory.certain = False
                self.metrics.conflict("unsure")
                return
            except WriteConflict:
                live = await self._live(m, holder, memory)
                if live is None or not is_unclaimed(live) or live.pool_uid != s.pool.uid:
                    # Its event is on the way; until then nobody is offered it.
                    self.metrics.conflict("lost")
                    self.floor.holders.free(s.claim.uid)
                    return
                self.metrics.conflict("false")
                m = live
            except Throttled:
                self.floor.holders.free(s.claim.uid)
                self._put_back(m.uid, memory.taking.pop(m.uid))
                raise
            except ApiError as error:
                # It may be this one that is refused: it is kept back until another was tried.
                self.floor.holders.free(s.claim.uid)
                memory.refused[m.uid] = memory.taking.pop(m.uid)
                why = Failure("TakeRefused", f"{m.name} could not be given to it: {error.message}")
                self._refused(s, why, error, memory)
                return
            else:
                log_event(log, "MachineAssigning", f"gave {m.name} to {s.claim.name}", machine=m, claim=s.claim.name)
                memory.note(given, self.clock())
                memory.marks = replace(memory.marks, taken=self.now(), bound=None, awake=None)
                return
        self.floor.holders.free(s.claim.uid)
        self._put_back(m.uid, m.key)

    async def _live(self, m: WarmVM, holder: Backend, memory: ClaimRecord) -> WarmVM | None:
        try:
            return await holder.read(m)
        except OutcomeUnknown:
            memory.certain = False
            raise

    # A machine of its own

    async def _make(self, s: ClaimSnapshot, step: CreateVM, holder: Backend, memory: ClaimRecord) -> None:
        pool = step.pool
        self.floor.holders.hold(s.claim.uid, pool.key, s.claim.requester)
        self._leave(s.claim.uid, pool.uid)
        memory.marks = replace(memory.marks, popped=memory.marks.popped or self.now())
        self.floor.demand.make(pool.uid, step.name)
        memory.making.add((pool.uid, step.name))
        log_event(log, "MachineCreating", f"makes {step.name} for {s.claim.name}: {step.message}", claim=s.claim.name)
        try:
            made = await holder.create(self._order(s, step, memory.draws))
        except OutcomeUnknown:
            memory.certain = False
            memory.doubtful = step.name
        except ApiError as error:
            self.floor.demand.made(pool.uid, step.name)
            memory.making.discard((pool.uid, step.name))
            self.floor.holders.free(s.claim.uid)
            # It made nothing, so another place may be tried; but what was perhaps made before must be asked for again
            # as it was, or there would be two.
            memory.draws += step.name != memory.doubtful
            final = isinstance(error, Invalid | AlreadyExists | NotFound)
            why = Failure("CreateRefused", f"no machine could be made: {error.message}", final)
            self._refused(s, why, error, memory)
        else:
            memory.refusals = 0
            memory.note(made, self.clock())

    def _refused(self, s: ClaimSnapshot, why: Failure, error: ApiError, memory: ClaimRecord) -> None:
        """It is told, and not tried again for a while."""
        memory.refusals += 1
        pause = max(REFUSALS.delay(memory.refusals, s.claim.uid), error.retry_after_seconds or 0.0)
        memory.trouble = why
        memory.trouble_until = self.clock() + pause
        pool = s.pool.name if s.pool is not None else None
        log_event(log, "Failure", str(error), level=logging.WARNING, claim=s.claim.name, pool=pool)

    def _order(self, s: ClaimSnapshot, step: CreateVM, draws: int) -> CreateRequest:
        pool, c = step.pool, s.claim
        lot = f"{step.name}/{draws}" if draws else step.name
        placement = c.wanted.placement or draw_placement(pool.uid, lot, pool.spec.places)
        at = pool.placements.get(placement) or next(iter(pool.placements.values()))
        template = personal_template(applied(pool.template, c.wanted), c.spec.personalization)
        return CreateRequest(
            namespace=c.namespace,
            name=step.name,
            pool=pool.name,
            pool_uid=pool.uid,
            owner=c.owner,
            template=template,
            template_hash=pool.hashes.get(str(at["name"]), pool.template_hash),
            placement=at,
            state=WarmState.ALLOCATING,
            claim_uid=c.uid,
            labels=labels(c.spec.personalization),
            # It boots for this claim and for nobody else, so it is awake from its first moment.
            annotations={
                meta.CLAIM_NAME: c.name,
                meta.ACTIVATED_AT: text(self.now()),
                meta.STATE_REASON: f"made for claim {c.name}",
            },
        )

    # The second compare-and-swap, and all else that a claim says

    async def _say(self, s: ClaimSnapshot, status: ClaimStatus, news: ClaimEvent | None, memory: ClaimRecord) -> None:
        c = s.claim
        # With null for what is not there: a merge would keep it.
        nothing = dict.fromkeys(status.model_dump(by_alias=True))
        change = {
            "metadata": {"uid": c.uid, "resourceVersion": c.resource_version},
            "status": {**nothing, **status.json()},
        }
        try:
            answer = await self.api.patch(CLAIMS, c.namespace, c.name, change, subresource="status")
        except (Conflict, NotFound):
            memory.stale = True
            return
        except OUTCOME_UNKNOWN:
            memory.stale, memory.certain = True, False
            raise
        written = read_claim(answer)
        memory.claim = written
        if written.vm_uid and written.vm_uid != c.vm_uid:
            memory.marks = replace(memory.marks, bound=self.now(), awake=None)
            memory.taking.pop(written.vm_uid, None)
            self._let_go(memory.taking)
            self._let_go(memory.refused)
        if written.over or not written.vm_uid:
            self.floor.holders.free(c.uid)
        if written.status.phase == "Queued":
            memory.marks = replace(memory.marks, placed=self.now())
        else:  # what holds one up must not hold up those behind it
            self._leave_all(c.uid)
        self.metrics.said(c, written)
        if news is not None:
            self._emit(c, news)

    # The machine

    async def _change(
        self, s: ClaimSnapshot, m: WarmVM, change: Change, holder: Backend, memory: ClaimRecord
    ) -> WarmVM | None:
        try:
            changed = await holder.change(m, change)
        except (WriteConflict, OutcomeUnknown):
            memory.certain = False
            await self._look(s, holder, memory)
            return None
        except Throttled:
            raise
        except ApiError as error:
            if s.claim.status.ready_at:  # its user has it: the label can wait
                raise
            # It was forbidden to be used, which is as good as not working: another one may be tried, and it is told.
            memory.health = Health("Failed", "WriteRefused", error.message)
            log_event(log, "Failure", str(error), machine=m, level=logging.WARNING, claim=s.claim.name)
            return None
        memory.note(changed, self.clock())
        return changed

    async def _wake(self, m: WarmVM, holder: Backend, memory: ClaimRecord) -> None:
        memory.marks = replace(memory.marks, awake=self.now())
        try:
            await holder.activate(m)
        except (WriteConflict, OutcomeUnknown):
            memory.certain = False

    async def _grant(self, s: ClaimSnapshot, m: WarmVM, holder: Backend, memory: ClaimRecord) -> None:
        keyed = s.pool is None or wants_key(s.pool.template)
        seeded = s.pool is None or bool(seed(s.pool.template))
        try:
            changed, refused = await Wishes(self.api).grant(s.claim, m, keyed=keyed, seeded=seeded)
        except (WriteConflict, OutcomeUnknown):
            memory.certain = False
            await self._look(s, holder, memory)
            return
        memory.denied = m.uid, refused
        memory.note(changed, self.clock())

    async def _hand_over(self, s: ClaimSnapshot, m: WarmVM, holder: Backend, memory: ClaimRecord) -> None:
        change = Change(
            state=WarmState.IN_USE,
            owner=None if m.owned_by(s.claim.uid) else s.claim.owner,
            labels=labels(s.claim.spec.personalization),
            annotations={meta.STATE_REASON: f"handed over to claim {s.claim.name}"},
        )
        await self._change(s, m, change, holder, memory)

    async def _end(self, s: ClaimSnapshot, m: WarmVM, reason: str, holder: Backend, memory: ClaimRecord) -> None:
        try:
            done = await holder.terminate(m, reason)
        except OutcomeUnknown:
            done = False
        if not done:
            memory.certain = False
            await self._look(s, holder, memory)
            return
        memory.note(replace(m, deleting=True), self.clock())
        if m.uid == s.claim.vm_uid and not s.claim.status.ready_at and not s.claim.over:
            memory.ended = Failure("ActivationFailed", f"{m.name} {reason}")
        self.metrics.ended(m)
        self._emit(s.claim, ClaimEvent("MachineDeleted", f"{m.name}: {reason}"))

    # The line

    def _wait(self, s: ClaimSnapshot) -> None:
        assert s.pool is not None
        line = self.floor.lines.setdefault(s.pool.uid, WaitQueue())
        seen = text(s.marks.seen) if s.marks.seen is not None else ""
        line.join(s.claim.requester, s.claim.created_at, s.claim.uid, seen=seen)
        self.floor.demand.wait(s.pool.uid, len(line))

    def _leave_all(self, uid: str) -> None:
        for pool_uid in list(self.floor.lines):
            self._leave(uid, pool_uid)

    def _leave(self, uid: str, pool_uid: str, *, served: bool = False) -> None:
        line = self.floor.lines.get(pool_uid)
        if line is not None and uid in line:
            line.leave(uid, served=served)
            self.floor.demand.wait(pool_uid, len(line))
            if not len(line):
                del self.floor.lines[pool_uid]

    def forget(self, uid: str, memory: ClaimRecord | None) -> None:
        """The claim is gone, or nothing will be done for it any more."""
        self._leave_all(uid)
        self.floor.holders.free(uid)
        if memory is not None:
            self._let_go(memory.taking)
            self._let_go(memory.refused)
            for pool_uid, name in memory.making:
                self.floor.demand.made(pool_uid, name)

    def _let_go(self, kept: dict[str, Key]) -> None:
        """Machines that were kept from others, by UID."""
        while kept:
            self._put_back(*kept.popitem())

    def _put_back(self, uid: str, key: Key) -> None:
        """As the store shows it. One that it does not show Ready will be offered by its event."""
        self.floor.shelves.put_back(uid, self.stores.queues.get(key))

    def _emit(self, c: Claim, news: ClaimEvent) -> None:
        self.events.emit(view_reference(CLAIMS, c), news.type, news.reason, news.note, action="Claim")
