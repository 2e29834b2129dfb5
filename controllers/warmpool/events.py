"""The events, the log and the metrics of what happens to the VMs of warm pools."""

import logging
from dataclasses import dataclass

from controllers.sets.events import SetEvents
from controllers.sets.write_batches import Failure, error_message, is_outdated
from controllers.warmpool.actions import (
    Action,
    CountFailedCheck,
    CreateVM,
    DeleteEvictionBudget,
    DeleteVM,
    OrphanVM,
    SetEvictionBudget,
    SetFinalizer,
    SetStandby,
    SetState,
)
from controllers.warmpool.audit_log import log_event
from controllers.warmpool.metrics import WarmPoolMetrics
from controllers.warmpool.reasons import WarmPoolReason as Reason
from controllers.warmpool.warm_pool import WARM_POOLS, WarmPool
from controllers.warmpool.warm_vm import WarmVM
from defaulter.contract import InvalidDocument
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.runtime.errors import ApiError, QuotaExceeded, Throttled, Unavailable, Unreachable
from poolhouse.runtime.events import EventType, view_reference
from poolhouse.runtime.resource import VMS

log = logging.getLogger(__name__)

NORMAL_CAUSES = frozenset({"Excess", "Outdated", "Expired", "NodeLeaving", "Marked"})
"""Deletion causes that are not a fault of the VM."""
NOT_OF_VMS = (CreateVM, SetFinalizer, SetEvictionBudget, DeleteEvictionBudget)
SERVER_UNAVAILABLE = (Throttled, Unreachable, Unavailable, TimeoutError)


def is_passing(error: Exception | None) -> bool:
    """Whether the error gets no event: the next plan uses a new snapshot, or the server is unavailable."""
    return is_outdated(error) or isinstance(error, SERVER_UNAVAILABLE)


@dataclass
class WarmPoolEvents(SetEvents[WarmPool]):
    resource = WARM_POOLS
    metrics: WarmPoolMetrics

    def done(self, pool: WarmPool | None, action: Action) -> None:
        """Reports a write that succeeded. The pool is None after its deletion, which leaves only VMs to be orphaned."""
        match action:
            case CreateVM():
                assert pool is not None
                message, about = f"created {action.name}: {action.reason}", {"pool": pool.name, "vm": action.name}
                log_event(log, "VMCreating", message, about=about, placement=action.placement)
                self.emit(pool, "Normal", Reason.SUCCESSFUL_CREATE, message, "Fill")
            case DeleteVM():
                assert pool is not None
                self._deleted(pool, action)
            case SetState(vm, after, why):
                before, message = vm.state.value if vm.state else "", f"{vm.name} is {after.value}: {why}"
                log_event(log, "VMStateChanged", message, about=vm, state_from=before, state_to=after.value, reason=why)
                if pool is not None:
                    self._state_set(pool, action)
            case OrphanVM(vm, cause, why):
                log_event(log, "VMStateChanged", f"{vm.name} is orphaned: {why}", about=vm, reason=cause)
                self.metrics.orphaned.labels(vm.namespace, vm.pool, cause).inc()
                message = f"released {vm.name} from the pool: {why}"
                # If the pool no longer exists, the event is about the VM.
                regarding = view_reference(WARM_POOLS, pool) if pool is not None else view_reference(VMS, vm)
                self.recorder.emit(regarding, "Warning", Reason.ORPHANED, message, action="Orphan")
            case SetStandby(vm, mode, why):
                message = f"asked KubeVirt to bring {vm.name} to the mode {mode}"
                log_event(log, "VMChecked", message, about=vm, level=logging.DEBUG, reason=why)
            case CountFailedCheck(vm, failures, why):
                message = f"{vm.name} is still unhealthy: {why}"
                log_event(log, "VMChecked", message, about=vm, attempt=failures, reason=why)

    def _state_set(self, pool: WarmPool, action: SetState) -> None:
        vm, message = action.vm, f"{action.vm.name}: {action.reason}"
        if action.state is WarmState.READY and vm.state in (WarmState.PROVISIONING, WarmState.STANDING_BY):
            self.emit(pool, "Normal", Reason.VM_READY, message, "Fill")
        elif action.state is WarmState.STANDING_BY and vm.state is not WarmState.STANDING_BY:
            self.emit(pool, "Normal", Reason.STANDBY_ENTERED, message, "StandBy")
        elif action.state in (WarmState.UNHEALTHY, WarmState.UNKNOWN):
            message = f"{vm.name} is {action.state.value}: {action.reason}"
            self.emit(pool, "Warning", Reason.UNHEALTHY, message, "Check")

    def _deleted(self, pool: WarmPool, action: DeleteVM) -> None:
        self.metrics.terminations.labels(*pool.key, action.cause).inc()
        if action.cause == "Contradiction":
            self.invariant_violated(pool, "labels", action.vm, action.reason)
        kind: EventType = "Normal" if action.cause in NORMAL_CAUSES else "Warning"
        self.emit(pool, kind, Reason.SUCCESSFUL_DELETE, f"deleted {action.vm.name}: {action.reason}", "Terminate")

    def not_done(self, pool: WarmPool | None, action: Action, error: Exception) -> None:
        """Reports a write that failed. The first refused creation of a batch stands for the others: see `failed`."""
        about = {"pool": pool.name if pool is not None else ""} if isinstance(action, NOT_OF_VMS) else action.vm
        reason = error.reason if isinstance(error, ApiError) else type(error).__name__
        if is_passing(error):
            level = logging.DEBUG if is_outdated(error) else logging.INFO
            message = f"{_what(action)}: {error_message(error)}; will retry"
            log_event(log, "Retry", message, about=about, level=level, reason=type(error).__name__)
        elif not isinstance(action, CreateVM):
            log_event(log, "Failure", f"{_what(action)}: {error}", about=about, level=logging.ERROR, reason=reason)

    def failed(self, found: WarmPool, action: Action, error: Exception) -> Failure:
        failure = create_failure(error)
        if isinstance(action, CreateVM):
            message, about = f"{_what(action)}: {failure.message}", {"pool": found.name, "vm": action.name}
            log_event(log, "Failure", message, about=about, level=logging.ERROR, reason=failure.reason)
            self.emit(found, "Warning", failure.reason, message, "Fill")
        return failure

    def invariant_violated(self, pool: WarmPool | None, invariant: str, vm: WarmVM, message: str) -> None:
        self.metrics.violations.labels(vm.namespace, vm.pool, invariant).inc()
        log_event(log, "Failure", message, about=vm, level=logging.ERROR, reason=Reason.INVARIANT_VIOLATED)
        if pool is not None:
            self.emit(pool, "Warning", Reason.INVARIANT_VIOLATED, message, "Check")


def _what(action: Action) -> str:
    match action:
        case CreateVM(name):
            return f"creating {name}"
        case DeleteVM(vm):
            return f"deleting {vm.name}"
        case SetFinalizer():
            return "the pool's finalizer"
        case SetEvictionBudget() | DeleteEvictionBudget():
            return "the pool's PodDisruptionBudget"
        case _:
            return action.vm.name


def create_failure(error: Exception) -> Failure:
    message = error_message(error)
    # `controllers.warmpool.ec2.client` gives this reason to the errors of EC2.
    is_short = isinstance(error, ApiError) and error.reason == Reason.INSUFFICIENT_CAPACITY
    if isinstance(error, QuotaExceeded) or is_short:
        return Failure(str(Reason.INSUFFICIENT_CAPACITY), message)
    reason = Reason.INVALID_TEMPLATE if isinstance(error, InvalidDocument) else Reason.FAILED_CREATE
    return Failure(str(reason), message)
