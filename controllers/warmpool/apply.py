"""Applies the plan of a warm pool. Only this module writes the pool's VMs, finalizers and events."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from controllers.sets.write_batches import Failure
from controllers.warmpool.actions import (
    Action,
    CountFailedCheck,
    CreateVM,
    DeleteVM,
    OrphanVM,
    SetFinalizer,
    SetStandby,
    SetState,
    VMAction,
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
from controllers.warmpool.warm_pool import WARM_POOLS, InvalidWarmPool, WarmPool
from controllers.warmpool.warm_vm import NO_OWNER, WarmVM
from defaulter.contract import InvalidDocument
from kinds import meta
from kinds.warm_states import WarmState
from runtime.api import Api
from runtime.batch_writer import BatchWriter, ExpectedEvents, NotSent
from runtime.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    NotFound,
    QuotaExceeded,
    Throttled,
    Unavailable,
    Unreachable,
)
from runtime.events import EventRecorder, EventType, view_reference
from runtime.expectations import Expectations
from runtime.resource import VMS

log = logging.getLogger(__name__)

MAX_VM_WRITES_IN_FLIGHT = 16
"""Smaller than the client's connection limit, so that claims get connections too."""

CHANGED_MEANWHILE = (AlreadyExists, Conflict, NotFound, WriteConflict, NotSent)
"""Errors of writes that are based on an outdated snapshot. The next plan uses a new snapshot."""
SERVER_UNAVAILABLE = (Throttled, OutcomeUnknown, Unreachable, Unavailable, TimeoutError)
PASSING = CHANGED_MEANWHILE + SERVER_UNAVAILABLE

NORMAL_CAUSES = frozenset({"Excess", "Outdated", "Expired", "NodeLeaving", "Marked"})
"""Deletion causes that are not a fault of the VM."""
FAILURE_CAUSES = frozenset({"ReadinessTimeout", "NoRoom"})
"""Deletion causes that count as failures of the pool, because a new VM is likely to fail too."""


@dataclass(frozen=True)
class Outcome:
    created: int = 0
    refused: Failure | None = None
    lost: tuple[Failure, ...] = ()
    """Deletions whose cause is in FAILURE_CAUSES."""
    became_ready: int = 0
    retry: bool = False
    """Whether the controller must repeat some writes."""
    last_error: Exception | None = None
    """The first error that is not a conflict with another write."""
    done: tuple[Action, ...] = ()
    """Creations, deletions and releases of VMs that succeeded."""


@dataclass
class WarmPoolWriter:
    api: Api
    events: EventRecorder
    expectations: Expectations[str]
    """The key is the pool's UID."""
    metrics: WarmPoolMetrics
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._batches = BatchWriter(self.expectations, self.clock, _expected_events, outcome_unknown=(OutcomeUnknown,))

    async def __call__(self, snapshot: WarmPoolSnapshot, plan: Plan, backend: Backend) -> Outcome:
        pool = snapshot.pool
        creations = [a for a in plan.actions if isinstance(a, CreateVM)]
        # The creations are expected before the first await: claims that create VMs count them towards `maxTotal`.
        self._batches.expect(pool.uid, creations)
        changed = await self._change(pool, [a for a in plan.actions if isinstance(a, VMAction)], backend)
        deleted = await self._delete(pool, [a for a in plan.actions if isinstance(a, DeleteVM)], backend)
        created = await self._create(pool, creations, backend)
        finalizer = await self._set_finalizer(pool, [a for a in plan.actions if isinstance(a, SetFinalizer)])
        return Outcome(
            created.created,
            created.refused,
            deleted.lost,
            changed.became_ready,
            changed.retry or deleted.retry or created.retry or finalizer.retry,
            created.last_error or deleted.last_error or changed.last_error or finalizer.last_error,
            (*changed.done, *deleted.done, *created.done),
        )

    def forget(self, uid: str) -> None:
        """Drops the batches of a deleted pool."""
        self._batches.forget(uid)

    async def orphan(self, orphans: Sequence[OrphanVM], backend: Backend) -> bool:
        """Orphans VMs without a pool. Returns whether all writes succeeded."""
        return not (await self._change(None, orphans, backend)).retry

    # Changes of VMs

    async def _change(self, pool: WarmPool | None, actions: Sequence[VMAction], backend: Backend) -> Outcome:
        in_flight = asyncio.Semaphore(MAX_VM_WRITES_IN_FLIGHT)

        async def one(action: VMAction) -> Exception | None:
            async with in_flight:
                return await self._change_vm(pool, action, backend)

        errors = await asyncio.gather(*map(one, actions))
        done = [action for action, error in zip(actions, errors, strict=True) if error is None]
        ready = sum(isinstance(a, SetState) and a.state is WarmState.READY for a in done)
        orphaned = tuple(a for a in done if isinstance(a, OrphanVM))
        return Outcome(became_ready=ready, retry=any(errors), last_error=_first_server_error(errors), done=orphaned)

    async def _change_vm(self, pool: WarmPool | None, action: VMAction, backend: Backend) -> Exception | None:
        try:
            if isinstance(action, SetStandby):
                await backend.stand_by(action.vm, action.mode)
            else:
                await backend.change(action.vm, vm_change(action))
        except PASSING as error:
            _log_retry(error, action.vm.name, pool, action.vm)
            return error
        except InvalidTransition as error:
            self._report_violation(pool, "states", action.vm, str(error))
            return None
        except ApiError as error:
            message = f"{action.vm.name}: {error}"
            log_event(log, "Failure", message, about=action.vm, level=logging.ERROR, reason=error.reason)
            return error
        self._report(pool, action)
        return None

    def _report(self, pool: WarmPool | None, action: VMAction) -> None:
        m = action.vm
        before = m.state.value if m.state else ""
        match action:
            case SetState(state=after, reason=why):
                message = f"{m.name} is {after.value}: {why}"
                log_event(log, "MachineMoved", message, about=m, state_from=before, state_to=after.value, reason=why)
                if pool is not None:
                    self._report_state(pool, action)
            case OrphanVM():
                log_event(log, "MachineMoved", f"{m.name} is orphaned: {action.reason}", about=m, reason=action.cause)
                self.metrics.orphaned.labels(m.namespace, m.pool, action.cause).inc()
                message = f"released {m.name} from the pool: {action.reason}"
                # If the pool no longer exists, the event is about the VM.
                regarding = view_reference(WARM_POOLS, pool) if pool is not None else view_reference(VMS, m)
                self.events.emit(regarding, "Warning", Reason.ORPHANED, message, action="Orphan")
            case SetStandby():
                message = f"asked KubeVirt to bring {m.name} to the mode {action.mode}"
                log_event(log, "MachinePolled", message, about=m, level=logging.DEBUG, reason=action.reason)
            case CountFailedCheck():
                message = f"{m.name} is still unhealthy: {action.reason}"
                log_event(log, "MachinePolled", message, about=m, attempt=action.failures, reason=action.reason)

    def _report_state(self, pool: WarmPool, action: SetState) -> None:
        m, message = action.vm, f"{action.vm.name}: {action.reason}"
        if action.state is WarmState.READY and m.state in (WarmState.PROVISIONING, WarmState.STANDING_BY):
            self.emit(pool, "Normal", Reason.VM_READY, message, "Fill")
        elif action.state is WarmState.STANDING_BY and m.state is not WarmState.STANDING_BY:
            self.emit(pool, "Normal", Reason.STANDBY_ENTERED, message, "StandBy")
        elif action.state in (WarmState.UNHEALTHY, WarmState.UNKNOWN):
            message = f"{m.name} is {action.state.value}: {action.reason}"
            self.emit(pool, "Warning", Reason.UNHEALTHY, message, "Check")

    # Deletions and creations

    async def _delete(self, pool: WarmPool, actions: Sequence[DeleteVM], backend: Backend) -> Outcome:
        async def one(action: DeleteVM) -> None:
            if not await backend.terminate(action.vm, action.reason):
                raise WriteConflict(f"{action.vm.name} has changed")

        results = await self._batches.make(pool.uid, "Terminate", actions, one, careful=False)
        lost = []
        for action, error in results:
            m = action.vm
            if isinstance(error, PASSING):
                _log_retry(error, f"deleting {m.name}", pool, m)
            elif error is not None:
                log_event(log, "Failure", f"deleting {m.name}: {error}", about=m, level=logging.ERROR)
            else:
                self._report_deletion(pool, action)
                if action.cause in FAILURE_CAUSES:
                    lost.append(Failure(action.cause, f"{m.name} was deleted: {action.reason}"))
        errors = [error for _, error in results]
        done = tuple(action for action, error in results if error is None)
        return Outcome(lost=tuple(lost), retry=any(errors), last_error=_first_server_error(errors), done=done)

    def _report_deletion(self, pool: WarmPool, action: DeleteVM) -> None:
        self.metrics.terminations.labels(*pool.key, action.cause).inc()
        if action.cause == "Contradiction":
            self._report_violation(pool, "labels", action.vm, action.reason)
        kind: EventType = "Normal" if action.cause in NORMAL_CAUSES else "Warning"
        self.emit(pool, kind, Reason.SUCCESSFUL_DELETE, f"deleted {action.vm.name}: {action.reason}", "Terminate")

    async def _create(self, pool: WarmPool, actions: Sequence[CreateVM], backend: Backend) -> Outcome:
        async def one(action: CreateVM) -> None:
            await backend.create(create_request(pool, action))

        results = await self._batches.make(pool.uid, "Create", actions, one)
        created, refused = 0, None
        for action, error in results:
            about = {"pool": pool.name, "vm": action.name}
            if error is None:
                created += 1
                message = f"created {action.name}: {action.reason}"
                log_event(log, "MachineCreating", message, about=about, placement=action.placement)
                self.emit(pool, "Normal", Reason.SUCCESSFUL_CREATE, message, "Fill")
            elif isinstance(error, PASSING):
                _log_retry(error, f"creating {action.name}", pool)
            elif refused is None:
                refused = create_failure(error)
                message = f"creating {action.name}: {refused.message}"
                log_event(log, "Failure", message, about=about, level=logging.ERROR, reason=refused.reason)
                self.emit(pool, "Warning", refused.reason, message, "Fill")
        errors = [error for _, error in results]
        retry = any(errors) and refused is None
        done = tuple(action for action, error in results if error is None)
        last_error = _first_server_error(errors) if retry else None
        return Outcome(created, refused, retry=retry, last_error=last_error, done=done)

    # The pool

    async def _set_finalizer(self, pool: WarmPool, actions: Iterable[SetFinalizer]) -> Outcome:
        """The patch replaces the whole list, so it has the resourceVersion: finalizers of other clients must stay."""
        others = [each for each in pool.finalizers if each != FINALIZER]
        for action in actions:
            finalizers = [*others, FINALIZER] if action.wanted else others
            change = {"uid": pool.uid, "resourceVersion": pool.resource_version, "finalizers": finalizers}
            try:
                await self.api.patch(WARM_POOLS, pool.namespace, pool.name, {"metadata": change})
            except NotFound:
                pass  # the pool no longer exists
            except PASSING as error:
                _log_retry(error, "the pool's finalizer", pool)
                return Outcome(retry=True, last_error=_first_server_error([error]))
        return Outcome()

    def emit(self, pool: WarmPool | InvalidWarmPool, kind: EventType, reason: str, message: str, action: str) -> None:
        self.events.emit(view_reference(WARM_POOLS, pool), kind, reason, message, action=action)

    def _report_violation(self, pool: WarmPool | None, invariant: str, m: WarmVM, message: str) -> None:
        self.metrics.violations.labels(m.namespace, m.pool, invariant).inc()
        log_event(log, "Failure", message, about=m, level=logging.ERROR, reason=Reason.INVARIANT_VIOLATED)
        if pool is not None:
            self.emit(pool, "Warning", Reason.INVARIANT_VIOLATED, message, "Check")


def _expected_events(action: CreateVM | DeleteVM) -> ExpectedEvents:
    if isinstance(action, CreateVM):
        return ExpectedEvents(creates=(action.name,))
    return ExpectedEvents(deletes=(action.vm.uid,))


def create_request(pool: WarmPool, action: CreateVM) -> CreateRequest:
    return CreateRequest(
        namespace=pool.namespace,
        name=action.name,
        pool=pool.name,
        pool_uid=pool.uid,
        owner=pool.owner,
        template=pool.pinned(pool.template),
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


def create_failure(error: Exception) -> Failure:
    message = error.message if isinstance(error, ApiError) else str(error)
    # `controllers.warmpool.ec2.client` gives this reason to the errors of EC2.
    is_short = isinstance(error, ApiError) and error.reason == Reason.INSUFFICIENT_CAPACITY
    if isinstance(error, QuotaExceeded) or is_short:
        return Failure(str(Reason.INSUFFICIENT_CAPACITY), message)
    reason = Reason.INVALID_TEMPLATE if isinstance(error, InvalidDocument) else Reason.FAILED_CREATE
    return Failure(str(reason), message)


def _first_server_error(results: Iterable[object]) -> Exception | None:
    errors = (each for each in results if isinstance(each, Exception) and not isinstance(each, CHANGED_MEANWHILE))
    return next(errors, None)


def _log_retry(error: Exception, what: str, pool: WarmPool | None, m: WarmVM | None = None) -> None:
    level = logging.DEBUG if isinstance(error, CHANGED_MEANWHILE) else logging.INFO
    about = m or {"pool": pool.name if pool is not None else ""}
    message = f"{what}: {str(error) or 'no answer in time'}; will retry"
    log_event(log, "Retry", message, about=about, level=level, reason=type(error).__name__)
