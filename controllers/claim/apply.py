"""Executes the steps of claims. Only this module writes VMs and claims for the claim controller.

A write of a VM or a claim carries the resourceVersion that the decision used. The response goes into the claim's
record. After a conflict, or without a response, the record marks the objects that must be read from the API.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from controllers.claim import steps
from controllers.claim.allocator import Allocator
from controllers.claim.application_pod import read_pod
from controllers.claim.application_watch import ApplicationWatches
from controllers.claim.memory import ClaimRecord
from controllers.claim.metrics import ClaimMetrics
from controllers.claim.personalization import Personalizer, labels
from controllers.claim.ready_queue import is_unclaimed
from controllers.claim.reasons import ClaimReason
from controllers.claim.snapshot import CLAIMS, Claim, ClaimSnapshot, Failure, parse_claim
from controllers.claim.vm_request import create_request
from controllers.shared.decisions import decision
from controllers.shared.status_writer import status_patch
from controllers.warmpool.agent import Launched
from controllers.warmpool.audit_log import log_event
from controllers.warmpool.backends import Backend, Change, Health, OutcomeUnknown, WriteConflict
from controllers.warmpool.warm_pool import WARM_POOLS, WarmPool, parse_warm_pool
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.apimachinery.timestamps import format_micro_time, format_time
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.decisions import vm_reference
from poolhouse.api.kinds.warm_readiness import Health as HealthSpec
from poolhouse.api.kinds.warm_readiness import Readiness
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.runtime.api import Api, find
from poolhouse.runtime.backoff import Backoff
from poolhouse.runtime.errors import (
    OUTCOME_UNKNOWN,
    AlreadyExists,
    ApiError,
    Conflict,
    Invalid,
    NotFound,
    Throttled,
    WebhookFailed,
)
from poolhouse.runtime.events import EventRecorder, view_reference

log = logging.getLogger(__name__)

RESERVATION_WRITES = 3
"""Attempts to reserve a VM. A status update of the VM may cause a conflict although the VM is still unclaimed."""
TERMINATE_SECONDS = 2.0
"""Time limit for an agent's answer to TerminateApplication. The agent goes on after it."""
RETRIES = Backoff(base_seconds=1, cap_seconds=30)
"""backoff between attempts to create or reserve a VM after a refusal that may pass"""


@dataclass
class ClaimWriter:
    api: Api
    events: EventRecorder
    backend: Callable[[WarmPool | None], Backend]
    """returns the backend of a pool, or for None a backend that selects by the VM"""
    allocator: Allocator
    metrics: ClaimMetrics
    watches: ApplicationWatches
    clock: Callable[[], float]
    now: Callable[[], datetime]

    async def __call__(self, s: ClaimSnapshot, step: steps.Step, record: ClaimRecord) -> None:
        """Raises only errors of an unavailable API server."""
        if not isinstance(step, steps.UpdateStatus | steps.PersonalizeVM | steps.HandOverVM):
            record.health = None
        await WRITES[type(step)](self, s, step, self.backend(s.pool), record)

    async def _mark_activated(
        self, s: ClaimSnapshot, step: steps.MarkActivated, backend: Backend, record: ClaimRecord
    ) -> None:
        change = Change(annotations={meta.ACTIVATED_AT: format_micro_time(self.now())})
        await self._change(s, step.vm, change, backend, record)

    async def _check_health(
        self, s: ClaimSnapshot, step: steps.CheckHealth, backend: Backend, record: ClaimRecord
    ) -> None:
        readiness, spec = (s.pool.spec.readiness, s.pool.spec.health) if s.pool else (Readiness(), HealthSpec())
        pod = s.application if isinstance(s.application, dict) else None
        record.health = await backend.check(step.vm, readiness, spec.timeout_seconds, pod)
        if isinstance(record.health, Launched):
            record.application_health = record.health.application, self.clock()
            self.watches.follow(s.claim, step.vm, backend, record)

    async def _read_application(
        self, s: ClaimSnapshot, step: steps.ReadApplication, backend: Backend, record: ClaimRecord
    ) -> None:
        record.application = await read_pod(self.api, s.claim), self.clock()

    async def _check_application(
        self, s: ClaimSnapshot, step: steps.CheckApplication, backend: Backend, record: ClaimRecord
    ) -> None:
        timeout = (s.pool.spec.health if s.pool else HealthSpec()).timeout_seconds
        began = self.clock()
        health = await backend.check_application(step.vm, timeout)
        if record.application_health is None or record.application_health[1] < began:  # else a newer answer
            record.application_health = health, self.clock()
        self.watches.follow(s.claim, step.vm, backend, record)

    async def _terminate_application(
        self, s: ClaimSnapshot, step: steps.TerminateApplication, backend: Backend, record: ClaimRecord
    ) -> None:
        """An agent may answer only when the application has ended, so that an answer is not waited for."""
        vm = step.vm
        record.terminated_at, record.application_health = self.clock(), None
        log_event(log, "VMDeleting", f"stops the application in {vm.name}", about=vm, claim=s.claim.name)
        await backend.terminate_application(vm, s.claim.application_owner.uid, s.grace_seconds, TERMINATE_SECONDS)

    async def _find_vms(self, s: ClaimSnapshot, _: steps.Step, backend: Backend, record: ClaimRecord) -> None:
        record.vms_known = False  # unless this call succeeds
        found = await backend.find(s.claim.namespace, s.claim.uid)
        self.allocator.vms_listed(s.claim, found, record, self.clock())

    async def _join_queue(
        self, s: ClaimSnapshot, step: steps.JoinWaitQueue, backend: Backend, record: ClaimRecord
    ) -> None:
        assert s.pool is not None
        self.allocator.join_queue(s.claim, s.pool, record)

    async def _delete_claim(
        self, s: ClaimSnapshot, step: steps.DeleteClaim, backend: Backend, record: ClaimRecord
    ) -> None:
        claim = s.claim
        with suppress(Conflict, NotFound):  # somebody has changed or deleted the claim
            version = claim.resource_version
            await self.api.delete(CLAIMS, claim.namespace, claim.name, uid=claim.uid, resource_version=version)

    # First compare-and-swap

    async def _reserve(self, s: ClaimSnapshot, step: steps.ReserveVM, backend: Backend, record: ClaimRecord) -> None:
        vm = step.vm
        assert s.pool is not None
        claim = s.claim
        self.allocator.reserve(claim, s.pool, vm, record)
        record.timeline = replace(record.timeline, dequeued=record.timeline.dequeued or self.now())
        change = Change(
            state=WarmState.ALLOCATING,
            claim_uid=claim.uid,
            owner=claim.owner,
            annotations={**claim.notes, meta.STATE_REASON: f"reserved for claim {claim.name}"},
        )
        for _ in range(RESERVATION_WRITES):
            try:
                reserved = await backend.change(vm, change)
            except OutcomeUnknown as error:
                record.vms_known = False
                self.metrics.conflict("unsure")
                self._not_reserved(s, vm, error, record)
                return
            except WriteConflict:
                live = await self._read(vm, backend, record)
                if live is None or not is_unclaimed(live) or live.pool_uid != s.pool.uid:
                    # The VM stays reserved until its next event.
                    self.metrics.conflict("lost")
                    self.allocator.free_quota(claim)
                    return
                self.metrics.conflict("false")
                vm = live
            except Throttled:
                self.allocator.cancel_reservation(claim, vm, record)
                raise
            except ApiError as error:
                self.allocator.reject(claim, vm, record)
                self._not_reserved(s, vm, error, record)
                return
            else:
                log_event(log, "VMAssigning", f"reserved {vm.name} for {claim.name}", about=vm, claim=claim.name)
                record.own.add(reserved.uid)
                record.remember(reserved, self.clock())
                record.timeline = replace(record.timeline, reserved=self.now(), bound=None, activated=None)
                return
        self.allocator.cancel_reservation(claim, vm, record)

    def _not_reserved(self, s: ClaimSnapshot, vm: WarmVM, error: ApiError, record: ClaimRecord) -> None:
        message = f"{vm.name} could not be reserved for the claim: {error.message}"
        self._retry_later(s, Failure(ClaimReason.FAILED_RESERVE, message), error, record)

    async def _read(self, vm: WarmVM, backend: Backend, record: ClaimRecord) -> WarmVM | None:
        try:
            return await backend.read(vm)
        except OutcomeUnknown:
            record.vms_known = False
            raise

    # VMs that are created for a claim

    async def _create(self, s: ClaimSnapshot, step: steps.CreateVM, backend: Backend, record: ClaimRecord) -> None:
        pool, claim = step.pool, s.claim
        self.allocator.begin_creation(claim, pool, step.name, record)
        record.timeline = replace(record.timeline, dequeued=record.timeline.dequeued or self.now())
        log_event(log, "VMCreating", f"creates {step.name} for {claim.name}: {step.message}", claim=claim.name)
        try:
            personalization = await Personalizer(self.api).permitted(claim, pool.template)
            request = create_request(claim, step, personalization, record.placement_draws, self.now())
            created = await backend.create(replace(request, repeated=record.unconfirmed == step.name))
        except OutcomeUnknown as error:
            record.vms_known = False
            record.unconfirmed = step.name
            why = Failure(ClaimReason.FAILED_CREATE, f"no VM could be created: {error.message}")
            self._retry_later(s, why, error, record)
        except ApiError as error:
            self.allocator.cancel_creation(claim, pool, step.name, record)
            # The server created nothing, so the next attempt may use another placement. A creation without a response
            # must be repeated unchanged, because another name or placement could create two VMs.
            record.placement_draws += step.name != record.unconfirmed
            final = isinstance(error, Invalid | AlreadyExists | NotFound)
            why = Failure(ClaimReason.FAILED_CREATE, f"no VM could be created: {error.message}", final)
            self._retry_later(s, why, error, record)
        else:
            record.failures = 0
            record.own.add(created.uid)
            record.remember(created, self.clock())

    def _retry_later(self, s: ClaimSnapshot, why: Failure, error: ApiError, record: ClaimRecord) -> None:
        record.failures += 1
        pause = max(RETRIES.delay(record.failures, s.claim.uid), error.retry_after_seconds or 0.0)
        record.failure = why
        record.retry_at = self.clock() + pause
        pool = s.pool.name if s.pool is not None else None
        log_event(log, "Failure", str(error), level=logging.WARNING, claim=s.claim.name, pool=pool)

    # Second compare-and-swap, and all other status updates

    async def _update_status(
        self, s: ClaimSnapshot, step: steps.UpdateStatus, backend: Backend, record: ClaimRecord
    ) -> None:
        claim = s.claim
        change = status_patch(step.status, resource_version=claim.resource_version)
        try:
            answer = await self.api.patch(
                CLAIMS, claim.namespace, claim.name, change, kind="json", subresource="status"
            )
        except (Conflict, NotFound):
            record.stale = True
            return
        except OUTCOME_UNKNOWN:
            record.stale, record.vms_known = True, False
            raise
        written = record.claim = parse_claim(answer)
        if written.vm_uid and written.vm_uid != claim.vm_uid:
            record.timeline = replace(record.timeline, bound=self.now(), activated=None)
        if written.status.phase == "Queued":
            record.timeline = replace(record.timeline, position_written=self.now())
        self.allocator.status_written(claim, written, record)
        self.metrics.status_written(claim, written)
        self.allocator.count_wait(s, written)
        if step.event is not None:
            self._emit(claim, step.event)

    # Changes of the claim's VM

    async def _change(
        self, s: ClaimSnapshot, vm: WarmVM, change: Change, backend: Backend, record: ClaimRecord
    ) -> None:
        try:
            changed = await backend.change(vm, change)
        except WriteConflict:
            await self._find_vms(s, steps.FindVMs(), backend, record)
        except Throttled:
            raise
        except ApiError as error:
            if isinstance(error, OutcomeUnknown):
                await self._find_vms(s, steps.FindVMs(), backend, record)
            if s.claim.status.ready_at:  # the claimant already uses the VM, so its label can wait
                raise
            # A VM that cannot be updated is treated as unhealthy: the claim tries another VM.
            record.health = _refused(error, ClaimReason.FAILED_UPDATE)
            log_event(log, "Failure", str(error), about=vm, level=logging.WARNING, claim=s.claim.name)
        else:
            record.remember(changed, self.clock())

    async def _activate(self, s: ClaimSnapshot, step: steps.ActivateVM, backend: Backend, record: ClaimRecord) -> None:
        vm = step.vm
        record.timeline = replace(record.timeline, activated=self.now())
        try:
            if await backend.activate(vm):
                record.resumed = vm.uid, self.clock()
        except (WriteConflict, OutcomeUnknown):
            record.vms_known = False
        except Throttled:
            raise
        except ApiError as error:
            # The VM is treated as unhealthy: the claim's status has the answer, and the claim tries another VM in time.
            record.health = _refused(error, ClaimReason.ACTIVATION_FAILED)
            log_event(log, "Failure", str(error), about=vm, level=logging.WARNING)

    async def _personalize(
        self, s: ClaimSnapshot, step: steps.PersonalizeVM, backend: Backend, record: ClaimRecord
    ) -> None:
        vm = step.vm
        template = s.pool.template if s.pool is not None else None
        try:
            changed, failures = await Personalizer(self.api).personalize(s.claim, vm, template)
        except WriteConflict:
            await self._find_vms(s, steps.FindVMs(), backend, record)
            return
        except OutcomeUnknown:
            await self._find_vms(s, steps.FindVMs(), backend, record)
            raise
        record.personalization = vm.uid, failures
        record.remember(changed, self.clock())

    async def _hand_over(self, s: ClaimSnapshot, step: steps.HandOverVM, backend: Backend, record: ClaimRecord) -> None:
        vm = step.vm
        change = Change(
            state=WarmState.IN_USE,
            owner=None if vm.owned_by(s.claim.uid) else s.claim.owner,
            labels=labels(s.claim.spec.personalization),
            annotations={meta.STATE_REASON: f"handed over to claim {s.claim.name}"},
        )
        await self._change(s, vm, change, backend, record)

    async def _delete_unrecorded(
        self, s: ClaimSnapshot, step: steps.DeleteUnrecordedVM, backend: Backend, record: ClaimRecord
    ) -> None:
        if await self._is_recorded(step.vm):  # the store of pools was behind the store of VMs
            record.own.add(step.vm.uid)
            return
        why = "no status says that a controller gave it to its claim"
        await self._delete(s, steps.DeleteVM(step.vm, why), backend, record)

    async def _is_recorded(self, vm: WarmVM) -> bool:
        if not vm.pool:
            return False
        found = await find(self.api, WARM_POOLS, vm.namespace, vm.pool)
        pool = parse_warm_pool(found) if found is not None else None
        return isinstance(pool, WarmPool) and pool.uid == vm.pool_uid and pool.recorded(vm)

    async def _delete(self, s: ClaimSnapshot, step: steps.DeleteVM, backend: Backend, record: ClaimRecord) -> None:
        vm, reason = step.vm, step.reason
        try:
            deleted = await backend.terminate(vm, reason)
        except OutcomeUnknown:
            await self._find_vms(s, steps.FindVMs(), backend, record)
            raise
        if not deleted:
            await self._find_vms(s, steps.FindVMs(), backend, record)
            return
        record.remember(replace(vm, deleting=True), self.clock())
        if vm.uid == s.claim.vm_uid and not s.claim.status.ready_at and not s.claim.finished:
            record.deletion = Failure(ClaimReason.ACTIVATION_FAILED, f"{vm.name} {reason}")
        self.metrics.vm_deleted(vm)
        message = f"{reason}: claim {s.claim.name}" + (f" of {s.claim.requester}" if s.claim.requester else "")
        reference = vm_reference(vm.name, vm.uid)
        logged = decision(format_time(self.now()), ClaimReason.SUCCESSFUL_DELETE, message, reference)
        self.allocator.count_deletion(vm, logged)
        self._emit(s.claim, steps.ClaimEvent(ClaimReason.SUCCESSFUL_DELETE, f"{vm.name}: {reason}"))

    def _emit(self, claim: Claim, event: steps.ClaimEvent) -> None:
        self.events.emit(view_reference(CLAIMS, claim), event.type, event.reason, event.message, action="Claim")


def _refused(error: ApiError, reason: str) -> Health:
    """The health of a VM that cannot be changed. An error of the API server or of a webhook is no fault of the VM."""
    of_server = isinstance(error, OutcomeUnknown | WebhookFailed)
    return Health("Unable" if of_server else "Failed", reason, error.message)


WRITES: Mapping[type[Any], Callable[[ClaimWriter, ClaimSnapshot, Any, Backend, ClaimRecord], Awaitable[None]]] = {
    steps.FindVMs: ClaimWriter._find_vms,
    steps.JoinWaitQueue: ClaimWriter._join_queue,
    steps.ReserveVM: ClaimWriter._reserve,
    steps.CreateVM: ClaimWriter._create,
    steps.UpdateStatus: ClaimWriter._update_status,
    steps.MarkActivated: ClaimWriter._mark_activated,
    steps.ActivateVM: ClaimWriter._activate,
    steps.CheckHealth: ClaimWriter._check_health,
    steps.ReadApplication: ClaimWriter._read_application,
    steps.CheckApplication: ClaimWriter._check_application,
    steps.TerminateApplication: ClaimWriter._terminate_application,
    steps.PersonalizeVM: ClaimWriter._personalize,
    steps.HandOverVM: ClaimWriter._hand_over,
    steps.DeleteVM: ClaimWriter._delete,
    steps.DeleteUnrecordedVM: ClaimWriter._delete_unrecorded,
    steps.DeleteClaim: ClaimWriter._delete_claim,
}
"""by type of step; a Requeue writes nothing"""
