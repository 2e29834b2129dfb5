"""Carries a warm pool's plan out. The only code of it that writes; it decides nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from controllers.warmpool.actions import (
    CountFailedCheck,
    CreateVM,
    DeleteVM,
    OrphanVM,
    SetFinalizer,
    SetStandby,
    SetState,
)
from controllers.warmpool.audit_log import log_event
from controllers.warmpool.backends import (
    Backend,
    Change,
    CreateRequest,
    InvalidTransition,
    OutcomeUnknown,
    WriteConflict,
)
from controllers.warmpool.metrics import WarmPoolMetrics
from controllers.warmpool.orphaning import FINALIZER
from controllers.warmpool.plan import Plan
from controllers.warmpool.reasons import WarmPoolReason as Reason
from controllers.warmpool.snapshot import WarmPoolSnapshot
from controllers.warmpool.vm_backend import VMS
from controllers.warmpool.warm_pool import WARM_POOLS, InvalidWarmPool, WarmPool
from controllers.warmpool.warm_vm import NO_OWNER, WarmVM
from defaulter.contract import InvalidDocument
from kinds import meta
from kinds.warm_states import WarmState
from kinds.warmpool import WarmPoolStatus
from runtime.api import Api
from runtime.batch_writer import BatchWriter, ExpectedEvents, NotSent
from runtime.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, Throttled, Unavailable, Unreachable
from runtime.events import EventRecorder, view_reference
from runtime.expectations import Expectations

log = logging.getLogger(__name__)

LABELS_AT_ONCE = 16
"""of the calls that may be under way, so many are for labels; the others are left to claims"""


OVERTAKEN = (AlreadyExists, Conflict, NotFound, WriteConflict, NotSent)
"""Somebody was first, or it has changed since it was chosen. The next plan knows more."""
AWAY = (Throttled, OutcomeUnknown, Unreachable, Unavailable, TimeoutError)
"""The server is busy or gave no answer."""
PASSING = OVERTAKEN + AWAY
"""Nobody's fault."""


@dataclass(frozen=True)
class CreateFailure:
    """Why a machine could not be had, in one word and in a sentence."""

    reason: str
    message: str


@dataclass(frozen=True)
class Outcome:
    created: int = 0
    refusal: CreateFailure | None = None
    lost: tuple[CreateFailure, ...] = ()
    """machines that were deleted, and not for others that are there: each is a failure to have one"""
    ripe: int = 0
    """machines that got Ready"""
    again: bool = False
    """something was not done, whether or not that is anybody's fault"""
    last_error: Exception | None = None
    """the first thing that was not done because the server was busy or away, or would not"""


@dataclass
class WarmPoolWriter:
    api: Api
    events: EventRecorder
    expectations: Expectations[str]
    """by UID of the pool"""
    metrics: WarmPoolMetrics
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._writes = BatchWriter(self.expectations, self.clock, trace, outcome_unknown=(OutcomeUnknown,))

    async def __call__(self, state: WarmPoolSnapshot, plan: Plan, machines: Backend) -> Outcome:
        pool = state.pool
        labels = [a for a in plan.actions if isinstance(a, SetState | SetStandby | CountFailedCheck | OrphanVM)]
        making = [a for a in plan.actions if isinstance(a, CreateVM)]
        # Before anything is waited for: claims that have machines made look at it, to keep to `maxTotal`.
        self._writes.expect(pool.uid, making)
        kept = await self._keep(pool, labels, machines)
        removed = await self._remove(pool, [a for a in plan.actions if isinstance(a, DeleteVM)], machines)
        created = await self._create(pool, making, machines)
        held = await self._hold(pool, [a for a in plan.actions if isinstance(a, SetFinalizer)])
        return Outcome(
            created.created,
            created.refusal,
            removed.lost,
            kept.ripe,
            kept.again or removed.again or created.again or held.again,
            created.last_error or removed.last_error or kept.last_error or held.last_error,
        )

    def forget(self, uid: str) -> None:
        """The pool is gone."""
        self._writes.forget(uid)

    async def orphan(self, orphans: Sequence[OrphanVM], machines: Backend) -> bool:
        """Machines without a pool; whether all of it was done."""
        return not (await self._keep(None, orphans, machines)).again

    # Labels

    async def _keep(
        self, pool: WarmPool | None, actions: Sequence[SetState | SetStandby | CountFailedCheck | OrphanVM], of: Backend
    ) -> Outcome:
        turns = asyncio.Semaphore(LABELS_AT_ONCE)

        async def one(action: SetState | SetStandby | CountFailedCheck | OrphanVM) -> Exception | None:
            async with turns:
                return await self._relabel(pool, action, of)

        wrong = await asyncio.gather(*map(one, actions))
        done = zip(actions, wrong, strict=True)
        ripe = sum(e is None and isinstance(a, SetState) and a.state is WarmState.READY for a, e in done)
        return Outcome(ripe=ripe, again=any(wrong), last_error=_hindrance(wrong))

    async def _relabel(
        self, pool: WarmPool | None, action: SetState | SetStandby | CountFailedCheck | OrphanVM, of: Backend
    ) -> Exception | None:
        """Why it was not done, or None."""
        try:
            if isinstance(action, SetStandby):
                await of.stand_by(action.vm, action.mode)
            else:
                await of.change(action.vm, vm_change(action))
        except PASSING as error:
            self._again(error, action.vm.name, pool, action.vm)
            return error
        except InvalidTransition as error:
            self._violated(pool, "states", action.vm, str(error))
            return None
        except ApiError as error:
            said = f"{action.vm.name}: {error}"
            log_event(log, "Failure", said, machine=action.vm, level=logging.ERROR, reason=error.reason)
            return error
        self._tell(pool, action)
        return None

    def _tell(self, pool: WarmPool | None, action: SetState | SetStandby | CountFailedCheck | OrphanVM) -> None:
        m = action.vm
        before = m.state.value if m.state else ""
        match action:
            case SetState():
                after, why = action.state.value, action.reason
                said = f"{m.name} is {after}: {why}"
                log_event(log, "MachineMoved", said, machine=m, state_from=before, state_to=after, reason=why)
                if pool is not None:
                    self._moved(pool, action)
            case OrphanVM():
                log_event(log, "MachineMoved", f"{m.name} is orphaned: {action.reason}", machine=m, reason=action.cause)
                self.metrics.orphaned.labels(m.namespace, m.pool, action.cause).inc()
                said = f"{m.name} is left to itself: {action.reason}"
                # Where there is no pool any more, the machine itself is where people look.
                regarding = view_reference(WARM_POOLS, pool) if pool is not None else view_reference(VMS, m)
                self.events.emit(regarding, "Warning", Reason.ORPHANED, said, action="Orphan")
            case SetStandby():
                said = f"{m.name} is asked to be {action.mode.lower()}"
                log_event(log, "MachinePolled", said, machine=m, level=logging.DEBUG, reason=action.reason)
            case CountFailedCheck():
                said = f"{m.name} is still unhealthy: {action.reason}"
                log_event(log, "MachinePolled", said, machine=m, attempt=action.failures, reason=action.reason)

    def _moved(self, pool: WarmPool, action: SetState) -> None:
        m, said = action.vm, f"{action.vm.name}: {action.reason}"
        if action.state is WarmState.READY and m.state in (WarmState.PROVISIONING, WarmState.STANDING_BY):
            self.say(pool, "Normal", Reason.VM_READY, said, "Fill")
        elif action.state is WarmState.STANDING_BY and m.state is not WarmState.STANDING_BY:
            self.say(pool, "Normal", Reason.STANDBY_ENTERED, said, "StandBy")
        elif action.state in (WarmState.UNHEALTHY, WarmState.UNKNOWN):
            self.say(pool, "Warning", Reason.UNHEALTHY, f"{m.name} is {action.state.value}: {action.reason}", "Check")

    # Number

    async def _remove(self, pool: WarmPool, actions: Sequence[DeleteVM], of: Backend) -> Outcome:
        async def one(action: DeleteVM) -> None:
            if not await of.terminate(action.vm, action.reason):
                raise WriteConflict(f"{action.vm.name} has changed")

        made = await self._writes.make(pool.uid, "Terminate", actions, one, careful=False)
        lost = []
        for action, error in made:
            m = action.vm
            if isinstance(error, PASSING):
                self._again(error, f"deleting {m.name}", pool, m)
            elif error is not None:
                log_event(log, "Failure", f"deleting {m.name}: {error}", machine=m, level=logging.ERROR)
            if error is not None:
                continue
            self.metrics.terminations.labels(*pool.key, action.cause).inc()
            if action.cause in FAILURES:
                lost.append(CreateFailure(action.cause, f"{m.name} was deleted: {action.reason}"))
            if action.cause == "Contradiction":
                self._violated(pool, "labels", m, action.reason)
            kind: Literal["Normal", "Warning"] = "Normal" if action.cause in QUIET else "Warning"
            self.say(pool, kind, Reason.SUCCESSFUL_DELETE, f"deleted {m.name}: {action.reason}", "Terminate")
        errors = [error for _, error in made]
        return Outcome(lost=tuple(lost), again=any(errors), last_error=_hindrance(errors))

    async def _create(self, pool: WarmPool, actions: Sequence[CreateVM], of: Backend) -> Outcome:
        async def one(action: CreateVM) -> None:
            await of.create(create_request(pool, action))

        made = await self._writes.make(pool.uid, "Create", actions, one)
        created, refusal = 0, None
        for action, error in made:
            if error is None:
                created += 1
                self._created(pool, action)
            elif isinstance(error, PASSING):
                self._again(error, f"creating {action.name}", pool)
            elif refusal is None:
                refusal = create_failure(error)
                said = f"creating {action.name}: {refusal.message}"
                log_event(
                    log, "Failure", said, pool=pool.name, vm=action.name, level=logging.ERROR, reason=refusal.reason
                )
                self.say(pool, "Warning", refusal.reason, said, "Fill")
        errors = [error for _, error in made]
        again = any(errors) and refusal is None
        return Outcome(created=created, refusal=refusal, again=again, last_error=_hindrance(errors) if again else None)

    def _created(self, pool: WarmPool, action: CreateVM) -> None:
        said = f"created {action.name}: {action.reason}"
        log_event(log, "MachineCreating", said, pool=pool.name, vm=action.name, placement=action.placement)
        self.say(pool, "Normal", Reason.SUCCESSFUL_CREATE, said, "Fill")

    # The pool itself

    async def write_status(self, pool: WarmPool | InvalidWarmPool, status: WarmPoolStatus) -> None:
        # With null for what is not there: a merge would keep it. With the UID, so that it never lands on another pool.
        nothing = dict.fromkeys(status.model_dump(by_alias=True))
        body = {"metadata": {"uid": pool.uid}, "status": {**nothing, **status.json()}}
        with suppress(NotFound):  # it has been deleted since: there is nobody left to tell
            await self.api.patch(WARM_POOLS, pool.namespace, pool.name, body, subresource="status")

    async def _hold(self, pool: WarmPool, actions: Iterable[SetFinalizer]) -> Outcome:
        """A write of the whole list, so it is refused where that was not seen: it would take away what others hold."""
        rest = [each for each in pool.finalizers if each != FINALIZER]
        for action in actions:
            wanted = [*rest, FINALIZER] if action.wanted else rest
            change = {"uid": pool.uid, "resourceVersion": pool.resource_version, "finalizers": wanted}
            try:
                await self.api.patch(WARM_POOLS, pool.namespace, pool.name, {"metadata": change})
            except NotFound:
                pass  # it has gone without
            except PASSING as error:
                self._again(error, "the pool's finalizer", pool)
                return Outcome(again=True, last_error=_hindrance([error]))
        return Outcome()

    def say(
        self, pool: WarmPool | InvalidWarmPool, kind: Literal["Normal", "Warning"], reason: str, said: str, action: str
    ) -> None:
        self.events.emit(view_reference(WARM_POOLS, pool), kind, reason, said, action=action)

    def _again(self, error: Exception, what: str, pool: WarmPool | None, m: WarmVM | None = None) -> None:
        """Who lost a race is not news; a server that is away is."""
        level = logging.DEBUG if isinstance(error, OVERTAKEN) else logging.INFO
        why = str(error) or "no answer in time"
        facts = {} if m is not None or pool is None else {"pool": pool.name}
        log_event(
            log, "Retry", f"{what}: {why}; again soon", machine=m, level=level, reason=type(error).__name__, **facts
        )

    def _violated(self, pool: WarmPool | None, invariant: str, m: WarmVM, said: str) -> None:
        self.metrics.violations.labels(m.namespace, m.pool, invariant).inc()
        log_event(log, "Failure", said, machine=m, level=logging.ERROR, reason="InvariantViolated")
        if pool is not None:
            self.say(pool, "Warning", Reason.INVARIANT_VIOLATED, said, "Check")


def trace(action: CreateVM | DeleteVM) -> ExpectedEvents:
    return (
        ExpectedEvents(creates=(action.name,))
        if isinstance(action, CreateVM)
        else ExpectedEvents(deletes=(action.vm.uid,))
    )


QUIET = frozenset({"Excess", "Outdated", "Expired", "NodeLeaving", "Marked"})
"""Causes for which a machine goes without anything being wrong with it."""
FAILURES = frozenset({"ReadinessTimeout", "NoRoom"})
"""Causes after which the pool is more patient: the next machine is hardly better off."""


def create_request(pool: WarmPool, action: CreateVM) -> CreateRequest:
    return CreateRequest(
        namespace=pool.namespace,
        name=action.name,
        pool=pool.name,
        pool_uid=pool.uid,
        owner=pool.owner,
        template=pool.template,
        template_hash=pool.hashes[action.placement],
        placement=pool.placements[action.placement],
        standby=action.standby,
    )


def vm_change(action: SetState | CountFailedCheck | OrphanVM) -> Change:
    match action:
        case SetState():
            annotations: dict[str, str | None] = {meta.STATE_REASON: action.reason}
            if action.vm.check_failures:
                annotations[meta.CHECK_FAILURES] = None
            labels: dict[str, str | None] = {meta.STANDBY: action.standby} if action.standby else {}
            return Change(action.state, labels=labels, annotations=annotations)
        case CountFailedCheck():
            return Change(annotations={meta.CHECK_FAILURES: str(action.failures)})
        case OrphanVM():
            return Change(owner=NO_OWNER, labels={meta.ORPHANED: action.cause})


def _hindrance(results: Iterable[object]) -> Exception | None:
    """Of those that were not overtaken, which passes by itself, the first."""
    return next((each for each in results if isinstance(each, Exception) and not isinstance(each, OVERTAKEN)), None)


def create_failure(error: Exception) -> CreateFailure:
    """A quota that is full answers as one who may not."""
    said = error.message if isinstance(error, ApiError) else str(error)
    if isinstance(error, Forbidden) and "quota" in said:
        return CreateFailure(Reason.INSUFFICIENT_CAPACITY, said)
    return CreateFailure(Reason.INVALID_TEMPLATE if isinstance(error, InvalidDocument) else Reason.FAILED_CREATE, said)
