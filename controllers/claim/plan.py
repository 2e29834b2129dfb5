"""Decides the next step of a claim.

    created
       |
       v            JoinWaitQueue
    Pending -------------------------> Queued    ReadApplication comes before a VM is taken.
       |  \\                              |
       |   \\  CreateVM is refused        |
       |    +----------> Allocating      |
       |                     |           |      ReserveVM or CreateVM writes the claim's UID on a VM,
       +---------------------+-----------+      then UpdateStatus writes the VM into the claim.
       v
     Bound --- DeleteVM: it is not usable in time ----> Pending; the second time: Failed
       |      ReserveVM: a VM of the pool is ready before the claim's own VM has booted; then Bound to that VM
       |
       |   MarkActivated, ActivateVM, CheckHealth, PersonalizeVM, HandOverVM
       v
     Ready --- its VM is lost -----------------------> Failed
       |
       +------ spec.release -----> Releasing --- DeleteVM, the VM is gone ---> Released
       |       or its Pod is lost                              DeleteClaim, if its Pod is lost
       +------ expiresAt --------> Expired ----- DeleteVM

    Pending, Queued, Allocating --- bindTimeoutSeconds, or a refusal that will not pass ---> Failed

One UpdateStatus binds a running, healthy VM and makes the claim Ready. HandOverVM follows.

Two compare-and-swaps ensure that a claim gets exactly one VM. ReserveVM writes the claim's UID with the VM's
resourceVersion. UpdateStatus writes the VM with the claim's resourceVersion. The plan reads both from the objects, so
another process can continue at any step.
"""

from datetime import datetime, timedelta

from controllers.claim import status, steps
from controllers.claim.expiry import expires_at
from controllers.claim.hand_over import bind, plan_bound
from controllers.claim.memory import ENDING_CHECK_SECONDS
from controllers.claim.obtain import plan_unbound
from controllers.claim.reasons import ClaimReason
from controllers.claim.snapshot import ClaimSnapshot, time_or_min
from controllers.claim.waiting import RECHECK_SECONDS, seconds_until
from controllers.warmpool.agent import ApplicationHealth
from controllers.warmpool.backends import Health
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.kinds.warm_states import WarmState

TERMINATION_MARGIN_SECONDS = 2.0
"""time after the grace period in which an agent may kill its application"""


def plan(s: ClaimSnapshot, now: datetime) -> steps.Step:
    claim = s.claim
    if claim.deleting:
        return _end_vm(s, "its claim is being deleted") or steps.Requeue()
    if claim.finished:
        return _end_vm(s, f"its claim is {claim.status.phase}") or _clean_up(s, now)
    if claim.spec.release or claim.lost_pod or claim.status.phase == "Releasing":
        return _release(s, now)
    if (end := expires_at(s)) is not None and now >= end:
        event = steps.ClaimEvent(ClaimReason.CLAIM_EXPIRED, f"the claim expired at {end:%H:%M:%S} UTC")
        return steps.UpdateStatus(status.expired(s, now), event)
    if s.bound_vm is None and (vm := _vm_in_use(s)):
        # A VM in use cannot be replaced. A restored backup or another release may have removed the VM from the status.
        return bind(s, vm, now)
    return plan_bound(s, now) if claim.vm_uid else plan_unbound(s, now)


# End of a claim


def _release(s: ClaimSnapshot, now: datetime) -> steps.Step:
    if s.claim.status.phase != "Releasing":
        return steps.UpdateStatus(status.releasing(s, now))
    if step := _end_vm(s, "its claim was released"):
        return step
    if not s.vms_known:
        return steps.FindVMs()
    if s.vms:  # the VMs are being deleted
        return steps.Requeue(RECHECK_SECONDS)
    event = steps.ClaimEvent(ClaimReason.CLAIM_RELEASED, "the VM was deleted")
    return steps.UpdateStatus(status.released(s, now), event)


def _clean_up(s: ClaimSnapshot, now: datetime) -> steps.Step:
    """Deletes a finished claim after its time, once its VM is gone. A claim that has lost its Pod has no time left: the
    garbage collector, which deletes the claim of a Pod that is gone, does not know it."""
    seconds = 0 if s.claim.lost_pod else s.claim.spec.ttl_seconds_after_finished
    if seconds is None and s.pool is not None:
        seconds = s.pool.spec.claim_policy.ttl_seconds_after_finished
    if s.claim.status.observed_generation != s.claim.generation:
        return steps.UpdateStatus(status.observed(s, now))
    if seconds is None or s.vms:
        return steps.Requeue()
    if not s.vms_known:
        return steps.FindVMs()
    finished = s.claim.status.finished_at or s.claim.created_at
    end = time_or_min(finished) + timedelta(seconds=seconds)
    return steps.DeleteClaim() if now >= end else steps.Requeue(seconds_until(end, now))


def _end_vm(s: ClaimSnapshot, reason: str) -> steps.Step | None:
    """Deletes the VM after its agent has stopped the application, or after the grace period of the application."""
    vm = s.bound_vm
    if vm is None or s.claim.spec.application is None or not s.has_agent:
        return _delete_vm(s, reason)
    if s.ending_seconds is None:
        return steps.TerminateApplication(vm)
    left = s.grace_seconds + TERMINATION_MARGIN_SECONDS - s.ending_seconds
    if left <= 0 or _has_ended(s.application_health):
        return _delete_vm(s, reason)
    return (
        steps.CheckApplication(vm) if s.application_health is None else steps.Requeue(min(ENDING_CHECK_SECONDS, left))
    )


def _has_ended(health: Health | None) -> bool:
    """Whether the application has ended, or the agent that could stop it does not answer."""
    if not isinstance(health, ApplicationHealth):
        return health is not None
    return health.status.get("phase") not in ("Pending", "Running", "Unknown")


def _delete_vm(s: ClaimSnapshot, reason: str) -> steps.Step | None:
    return next((steps.DeleteVM(vm, reason) for vm in s.vms if not vm.deleting), None)


def _vm_in_use(s: ClaimSnapshot) -> WarmVM | None:
    """A VM that was handed over to the claim. An earlier status of the claim had this VM."""
    in_use = [vm for vm in s.vms if vm.state is WarmState.IN_USE and not vm.deleting and vm.uid not in s.unrecorded]
    return min(in_use, key=lambda vm: (vm.created_at, vm.uid), default=None)
