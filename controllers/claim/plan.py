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

import hashlib
from datetime import datetime, timedelta
from math import inf

from controllers.claim import application, overrides, personalization, status, steps
from controllers.claim.reasons import ClaimReason
from controllers.claim.snapshot import ENDING_CHECK_SECONDS, ClaimSnapshot, Failure, time_or_min
from controllers.claim.status import expires_at, seconds_until_change
from controllers.warmpool.agent import ApplicationHealth
from controllers.warmpool.agent_reasons import AgentReason
from controllers.warmpool.backends import Health
from controllers.warmpool.warm_vm import PAUSED_BY_USER, WarmVM
from poolhouse.api.kinds.claim import Phase
from poolhouse.api.kinds.warm_states import WarmState

MAX_ATTEMPTS = 2
RECHECK_SECONDS = 5.0
"""interval of reconciles while the obstacle of a claim may pass without an event"""
QUEUE_CHECKS_PER_SECOND = 50.0
"""limit on the reconciles of the claims in a long queue without ready VMs"""
GRACE = timedelta(seconds=30)
"""After the bind deadline, a claim can still get a ready VM for this time, because no controller may have been the
leader. A change of leaders takes half of this time. In this time, the controller creates no VM."""
REACTIVATE_SECONDS = 1.0
"""interval of repeated requests to start or unpause a VM"""
ACTIVATION_SECONDS = {"Warm": 15.0, "Resumed": 60.0}
"""time limits for a bound VM to become healthy, by launch type; the default is `readiness.timeoutSeconds`"""
TERMINATION_MARGIN_SECONDS = 2.0
"""time after the grace period in which an agent may kill its application"""
QUIET_SECONDS = 5.0
"""The status reports an unhealthy VM only after this time, because most bound VMs become healthy sooner."""


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
        return _bind(s, vm, now)
    return _plan_bound(s, now) if claim.vm_uid else _plan_unbound(s, now)


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
    return steps.DeleteClaim() if now >= end else steps.Requeue(_seconds_until(end, now))


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


def _not_recorded(vm: WarmVM) -> Failure:
    message = f"VM {vm.name} has the claim's UID, and no status says that a controller gave it to the claim"
    return Failure(ClaimReason.VM_NOT_RECORDED, message)


# Claims without a VM in their status


def _plan_unbound(s: ClaimSnapshot, now: datetime) -> steps.Step:
    if step := _plan_own(s, now):
        return step
    if s.claim.status.attempts >= MAX_ATTEMPTS:
        return _fail(s, Failure(ClaimReason.ACTIVATION_FAILED, status.last_failure(s)), now)
    if not s.vms_known:
        return steps.FindVMs()
    step = _obtain_vm(s, now)
    if now < s.bind_deadline or (isinstance(step, steps.ReserveVM) and now < s.bind_deadline + GRACE):
        return step
    return _fail(s, _timeout(s), now)


def _plan_own(s: ClaimSnapshot, now: datetime) -> steps.Step | None:
    """The step for VMs with the claim's UID."""
    own = [vm for vm in s.vms if not vm.deleting]
    if foreign := [vm for vm in own if vm.state is WarmState.IN_USE and vm.uid in s.unrecorded]:
        # It may be forged, or the VM of a claim whose status somebody has restored: it is not deleted.
        return _pend(s, _not_recorded(foreign[0]), now)
    usable = [vm for vm in own if vm.state is WarmState.ALLOCATING and vm.owned_by(s.claim.uid)]
    if usable := [vm for vm in usable if vm.uid not in s.unrecorded]:
        # A race may leave several VMs. Every process binds the same VM and deletes the others later: a process with a
        # stale claim does not know which VM is bound.
        return _bind_if_healthy(s, min(usable, key=lambda vm: (vm.created_at, vm.uid)), now)
    if not own:
        return None
    if own[0].uid in s.unrecorded:
        return steps.DeleteUnrecordedVM(own[0])
    return steps.DeleteVM(own[0], "it has a claim, in a state in which a VM has none")


def _obtain_vm(s: ClaimSnapshot, now: datetime) -> steps.Step:
    if s.claim.invalid_spec:
        return _fail(s, Failure(ClaimReason.INVALID_SPEC, s.claim.invalid_spec), now)
    if s.no_pool is not None:
        return _pend(s, s.no_pool, now)
    assert s.pool is not None
    if refusal := _refusal(s):
        return _fail(s, refusal, now)
    if s.over_quota is not None:
        return _pend(s, s.over_quota, now)
    if _needs_agent(s) and s.application is None:
        return steps.ReadApplication()
    if isinstance(s.application, Failure):
        return _pend(s, s.application, now)
    if why := status.mismatch_of(s.claim, s.pool):
        return _create(s, Failure(ClaimReason.OVERRIDE_MISMATCH, why), now)
    if s.failure is not None and s.failure.reason == ClaimReason.FAILED_RESERVE:
        return _pend(s, s.failure, now)
    if s.candidate is not None:
        return steps.ReserveVM(s.candidate)
    return _without_ready_vm(s, now)


def _refusal(s: ClaimSnapshot) -> Failure | None:
    """Why the claim fails at once, or None. A wait does not help, or `onEmpty` forbids it."""
    assert s.pool is not None
    policy = s.pool.spec.claim_policy
    if why := overrides.forbidden(s.claim.overrides, s.pool.template, policy.allowed_overrides, s.pool.placements):
        return Failure(ClaimReason.OVERRIDE_NOT_ALLOWED, why)
    if why := personalization.forbidden(s.claim.spec.personalization, policy.allowed_personalization):
        return Failure(ClaimReason.PERSONALIZATION_NOT_ALLOWED, why)
    # Only the controllers make claims that a Pod controls: admission refuses those of others.
    if s.claim.pod is not None and not policy.allow_pods:
        return Failure(ClaimReason.PODS_NOT_ALLOWED, "claimPolicy.allowPods of the pool is not true")
    allowed = policy.allow_application or s.claim.pod is not None
    if (refusal := application.refusal(s.claim.spec.application, s.pool.template, allowed=allowed)) is not None:
        return refusal
    if s.failure is not None and s.failure.final:
        return s.failure
    return s.over_quota if s.on_empty == "Fail" else None


def _without_ready_vm(s: ClaimSnapshot, now: datetime) -> steps.Step:
    if placement := s.claim.overrides.placement:
        why = f"no VM is ready in placement {placement}"
        return _create(s, Failure(ClaimReason.OVERRIDE_MISMATCH, why), now)
    empty = "no VM of the pool is ready" if s.position <= 1 else "the ready VMs of the pool go to claims that waited"
    match s.on_empty:
        case "Fail":
            return _fail(s, Failure(ClaimReason.NO_CAPACITY, empty), now)
        case "Queue":
            return _wait(s, now)
        case _:
            return _create(s, Failure(ClaimReason.POOL_EMPTY, empty), now)


def _wait(s: ClaimSnapshot, now: datetime) -> steps.Step:
    if not s.position:
        return steps.JoinWaitQueue()
    first, fresh = s.claim.status.phase != "Queued", status.queued(s, now)
    # Positions at the end of the queue are written less often, because each served claim changes all positions.
    pause = min(max(2.0, float(s.position)), max(60.0, s.queue_length / QUEUE_CHECKS_PER_SECOND))
    elapsed = _seconds_since(s.timeline.position_written, now)
    if first or (fresh != s.claim.status and elapsed >= pause):
        event = steps.ClaimEvent(ClaimReason.CLAIM_QUEUED, f"position {s.position} in the queue") if first else None
        return steps.UpdateStatus(fresh, event)
    left = pause - elapsed if fresh != s.claim.status else pause
    return steps.Requeue(min(max(0.05, left), _seconds_until(s.bind_deadline, now)))


def _create(s: ClaimSnapshot, why: Failure, now: datetime) -> steps.Step:
    assert s.pool is not None
    if (obstacle := status.creation_obstacle(s)) is not None:
        obstacle = Failure(obstacle.reason, f"{why.message}, and {obstacle.message}")
        return _fail(s, obstacle, now) if s.on_empty == "Fail" else _pend(s, obstacle, now)
    if s.failure is not None:
        return _pend(s, s.failure, now, phase="Allocating")
    name = vm_name(s.claim.name, s.claim.uid, s.claim.status.attempts)
    if any(vm.name == name for vm in s.vms):
        # Somebody deletes the VM that was created for this attempt, and the next one would have the same name.
        return steps.Requeue(min(RECHECK_SECONDS, _seconds_until(s.bind_deadline, now)))
    return steps.CreateVM(s.pool, name, why.reason, why.message)


def vm_name(claim: str, uid: str, attempt: int) -> str:
    """A name from the claim's UID and the attempt, so that a repeated request does not create a second VM."""
    digest = hashlib.sha256(f"{uid}/{attempt}".encode()).hexdigest()[:8]
    return f"{claim[:54].rstrip('-.')}-{digest}"


def _timeout(s: ClaimSnapshot) -> Failure:
    waited = f"no VM was bound before {s.bind_deadline:%H:%M:%S} UTC"
    obstacle = s.no_pool or s.over_quota or s.failure or status.creation_obstacle(s)
    if obstacle is not None and obstacle.reason != ClaimReason.MAX_TOTAL_REACHED:
        return Failure(obstacle.reason, f"{waited}: {obstacle.message}")
    why = f": {obstacle.message}" if obstacle is not None else ""
    position = f"; the claim was at position {s.position} in the queue" if s.position else ""
    return Failure(ClaimReason.BIND_TIMEOUT, waited + why + position)


def _pend(s: ClaimSnapshot, why: Failure, now: datetime, phase: Phase = "Pending") -> steps.Step:
    fresh = status.pending(s, why, now, phase)
    if fresh != s.claim.status:
        return steps.UpdateStatus(fresh, steps.ClaimEvent(why.reason, why.message, "Warning"))
    return steps.Requeue(min(RECHECK_SECONDS, _seconds_until(s.bind_deadline, now)))


def _fail(s: ClaimSnapshot, why: Failure, now: datetime) -> steps.Step:
    return steps.UpdateStatus(status.failed(s, why, now), steps.ClaimEvent(why.reason, why.message, "Warning"))


# Claims whose UID is on a VM


def _bind_if_healthy(s: ClaimSnapshot, vm: WarmVM, now: datetime) -> steps.Step:
    """Binds a running, healthy VM and makes the claim Ready in one write. Only a health check may come before the
    write, because it does not change the VM or its guest."""
    if not _is_unchanged(s, vm):
        return _bind(s, vm, now)
    if s.health is None:
        return steps.CheckHealth(vm)
    if s.health.verdict != "Healthy":  # the check may take a while, so the VM is written into the claim first
        return _bind(s, vm, now)
    fresh = status.bound_and_ready(s, vm, now)
    return steps.UpdateStatus(fresh, status.ready_event(s, fresh, vm, now))


def _is_unchanged(s: ClaimSnapshot, vm: WarmVM) -> bool:
    """Whether the hand-over leaves the VM unchanged. The check by an agent launches the application."""
    warm = status.launch(s, vm)[0] == "Warm"
    return (
        warm
        and s.pool is not None
        and s.pool.spec.ec2 is None
        and not _needs_agent(s)
        and not personalization.is_personalized(s.claim.spec.personalization)
    )


def _bind(s: ClaimSnapshot, vm: WarmVM, now: datetime) -> steps.Step:
    """Second compare-and-swap."""
    launch, reason = status.launch(s, vm)
    fresh, message = status.bound(s, vm, launch, reason, now), f"{vm.name} ({launch})"
    if launch == "Warm":  # the claim is Ready in a moment, with its own event
        return steps.UpdateStatus(fresh)
    event = ClaimReason.COLD_START if launch == "Cold" else ClaimReason.CLAIM_BOUND
    return steps.UpdateStatus(fresh, steps.ClaimEvent(event, message))


def _plan_bound(s: ClaimSnapshot, now: datetime) -> steps.Step:
    if s.extra_vms:
        if (reserved := _reserved_meanwhile(s)) is not None:
            return _bind_if_healthy(s, reserved, now)
        # A user may have changed this VM, so it must not become Ready again.
        return steps.DeleteVM(s.extra_vms[0], "its claim has another VM")
    vm = s.bound_vm
    if vm is None:
        return _lost(s, now)
    if vm.state is WarmState.IN_USE and vm.owned_by(s.claim.uid):
        return _in_use(s, vm, now)
    if vm.state is WarmState.IN_USE:  # a user changed the owner references
        return steps.HandOverVM(vm)
    if vm.state is not WarmState.ALLOCATING:
        state = vm.state.value if vm.state else "in no state"
        return steps.DeleteVM(vm, f"its claim is bound to it, and it is {state}")
    if s.claim.status.ready_at:
        return steps.HandOverVM(vm)  # the claimant may use the VM already, even if it is unhealthy
    if s.candidate is not None and _boots(s, vm):
        return steps.ReserveVM(s.candidate)
    return _activate(s, vm, now)


def _boots(s: ClaimSnapshot, vm: WarmVM) -> bool:
    """Whether the claim waits for the boot of a VM that was created because the pool was empty. It takes a VM of the
    pool that is ready sooner; the booting VM is deleted then, because it may be personalized."""
    reason = (s.claim.status.launch_reason or "").partition(":")[0]
    return reason == ClaimReason.POOL_EMPTY and not (vm.vmi is not None and vm.vmi.ready)


def _reserved_meanwhile(s: ClaimSnapshot) -> WarmVM | None:
    """The VM of the pool that was reserved while the claim's own VM boots. Both carry the claim's UID, and only the
    write of the claim's status decides which one the claim has."""
    vm = s.bound_vm
    if vm is None or vm.state is not WarmState.ALLOCATING or s.claim.status.ready_at or not _boots(s, vm):
        return None
    waiting = (each for each in s.extra_vms if each.state is WarmState.ALLOCATING and not each.activated)
    return next((each for each in waiting if each.owned_by(s.claim.uid) and each.uid not in s.unrecorded), None)


def _activate(s: ClaimSnapshot, vm: WarmVM, now: datetime) -> steps.Step:
    if s.health is not None and s.health.verdict != "Healthy":
        return _unhealthy(s, vm, s.health, now)
    asleep = (vm.vmi is not None and vm.vmi.paused == PAUSED_BY_USER) or vm.run_strategy == "Halted"
    if not vm.activated and s.claim.status.launch_type != "Warm":
        return steps.MarkActivated(vm)
    if asleep and _seconds_since(s.timeline.activated, now) >= REACTIVATE_SECONDS:
        return steps.ActivateVM(vm)
    if s.health is None:
        return _check(s, vm, now)
    return steps.PersonalizeVM(vm) if _needs_personalization(s) else steps.HandOverVM(vm)


def _check(s: ClaimSnapshot, vm: WarmVM, now: datetime) -> steps.Step:
    """Checks the health of the VM, with which its agent launches the application. For a Pod, the check waits until the
    Pod names the claim."""
    if _needs_agent(s) and s.application is None:
        return steps.ReadApplication()
    if isinstance(s.application, Failure):
        return _unhealthy(s, vm, Health("Unable", s.application.reason, s.application.message), now)
    if not s.may_launch:
        message = "the Pod does not name the claim yet, so its application is not launched"
        return _unhealthy(s, vm, Health("Unable", AgentReason.POD_NOT_UPDATED, message), now)
    return steps.CheckHealth(vm)


def _unhealthy(s: ClaimSnapshot, vm: WarmVM, health: Health, now: datetime) -> steps.Step:
    waited = (now - time_or_min(s.claim.status.bound_at)).total_seconds()
    limit = float(s.pool.spec.readiness.timeout_seconds) if s.pool else 900.0
    if health.verdict == "Failed":  # a check that could not run keeps the longer limit
        limit = min(ACTIVATION_SECONDS.get(s.claim.status.launch_type or "", limit), limit)
    if waited >= limit:
        return steps.DeleteVM(vm, f"after {waited:.0f} s: {health.reason}: {health.message}")
    if waited >= QUIET_SECONDS and (fresh := status.unhealthy(s, vm, health, now)) != s.claim.status:
        return steps.UpdateStatus(fresh)
    return steps.Requeue(min(2.0, max(0.1, waited / 4), limit - waited))


def _lost(s: ClaimSnapshot, now: datetime) -> steps.Step:
    if not s.vms_known:
        return steps.FindVMs()
    if s.claim.status.ready_at:
        if s.claim.pod is not None and _may_still_run(s):
            return _wait_for_end(s, now)
        return _fail(s, Failure(ClaimReason.VM_LOST, "the VM was deleted, and not by the controllers"), now)
    why = s.deletion or Failure(ClaimReason.ACTIVATION_FAILED, "the VM was deleted before it was handed over")
    ends = _may_still_run(s)
    if s.claim.status.attempts >= MAX_ATTEMPTS or (ends and now >= s.bind_deadline):
        return _fail(s, why, now)
    if ends:
        return steps.Requeue(min(RECHECK_SECONDS, _seconds_until(s.bind_deadline, now)))
    event = steps.ClaimEvent(why.reason, f"{why.message}; trying once more", "Warning")
    return steps.UpdateStatus(status.retrying(s, why, now), event)


def _may_still_run(s: ClaimSnapshot) -> bool:
    """Whether the claim's VM is being deleted and its agent may run the application until then. No other VM, and no
    Pod in the place of the claim's Pod, may run it meanwhile. An agent may have launched it and not have answered."""
    return s.has_agent and s.claim.spec.application is not None


def _wait_for_end(s: ClaimSnapshot, now: datetime) -> steps.Step:
    """The Pod fails when its VM is gone, because its controller may replace it then. Until then it is not Ready."""
    lost = Failure(ClaimReason.VM_LOST, "the VM is being deleted, and not by the controllers")
    fresh = status.losing(s, lost, now)
    return steps.UpdateStatus(fresh) if fresh != s.claim.status else steps.Requeue(RECHECK_SECONDS)


def _needs_agent(s: ClaimSnapshot) -> bool:
    """Whether an agent starts the application of the claim. In a VM without an agent, cloud-init does."""
    if s.claim.spec.application is None:
        return False
    return s.has_agent if s.pool is None else application.has_agent(s.pool.template)


def _needs_personalization(s: ClaimSnapshot) -> bool:
    return personalization.is_personalized(s.claim.spec.personalization) and s.not_personalized is None


def _in_use(s: ClaimSnapshot, vm: WarmVM, now: datetime) -> steps.Step:
    if not s.claim.status.ready_at and _needs_personalization(s):
        return steps.PersonalizeVM(vm)  # an earlier process stopped before it wrote the result
    if s.has_agent and s.application_health is None:
        return steps.CheckApplication(vm)
    fresh = status.ready(s, vm, now)
    if fresh != s.claim.status:
        return steps.UpdateStatus(fresh, status.ready_event(s, fresh, vm, now))
    pauses = [seconds_until_change(s, now), s.health_period_seconds if s.has_agent else None]
    return steps.Requeue(min((each for each in pauses if each is not None), default=None))


def _seconds_since(moment: datetime | None, now: datetime) -> float:
    """Infinite for None, and for a time in the future, which a clock that was set back can cause."""
    return (now - moment).total_seconds() if moment is not None and moment <= now else inf


def _seconds_until(moment: datetime, now: datetime) -> float:
    return max(0.05, (moment - now) / timedelta(seconds=1))
