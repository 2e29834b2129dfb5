"""The next step of a claim without a VM in its status: reserve a ready VM, create one, wait in the queue, or fail."""

import hashlib
from datetime import datetime, timedelta

from controllers.claim import application, overrides, personalization, status, steps
from controllers.claim.hand_over import bind_if_healthy
from controllers.claim.reasons import ClaimReason
from controllers.claim.snapshot import ClaimSnapshot, Failure
from controllers.claim.waiting import (
    MAX_ATTEMPTS,
    RECHECK_SECONDS,
    fail,
    needs_agent,
    pend,
    seconds_since_act,
    seconds_until,
)
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.kinds.warm_states import WarmState

QUEUE_CHECKS_PER_SECOND = 50.0
"""limit on the reconciles of the claims in a long queue without ready VMs"""
GRACE = timedelta(seconds=30)
"""After the bind deadline, a claim can still get a ready VM for this time, because no controller may have been the
leader. A change of leaders takes half of this time. In this time, the controller creates no VM."""


def _not_recorded(vm: WarmVM) -> Failure:
    message = f"VM {vm.name} has the claim's UID, and no status says that a controller gave it to the claim"
    return Failure(ClaimReason.VM_NOT_RECORDED, message)


def plan_unbound(s: ClaimSnapshot, now: datetime) -> steps.Step:
    if step := _plan_own(s, now):
        return step
    if s.claim.status.attempts >= MAX_ATTEMPTS:
        return fail(s, Failure(ClaimReason.ACTIVATION_FAILED, status.last_failure(s)), now)
    if not s.vms_known:
        return steps.FindVMs()
    step = _obtain_vm(s, now)
    if now < s.bind_deadline or (isinstance(step, steps.ReserveVM) and now < s.bind_deadline + GRACE):
        return step
    return fail(s, _timeout(s), now)


def _plan_own(s: ClaimSnapshot, now: datetime) -> steps.Step | None:
    """The step for VMs with the claim's UID."""
    own = [vm for vm in s.vms if not vm.deleting]
    if foreign := [vm for vm in own if vm.state is WarmState.IN_USE and vm.uid in s.unrecorded]:
        # It may be forged, or the VM of a claim whose status somebody has restored: it is not deleted.
        return pend(s, _not_recorded(foreign[0]), now)
    usable = [vm for vm in own if vm.state is WarmState.ALLOCATING and vm.owned_by(s.claim.uid)]
    if usable := [vm for vm in usable if vm.uid not in s.unrecorded]:
        # A race may leave several VMs. Every process binds the same VM and deletes the others later: a process with a
        # stale claim does not know which VM is bound.
        return bind_if_healthy(s, min(usable, key=lambda vm: (vm.created_at, vm.uid)), now)
    if not own:
        return None
    if own[0].uid in s.unrecorded:
        return steps.DeleteUnrecordedVM(own[0])
    return steps.DeleteVM(own[0], "it has a claim, in a state in which a VM has none")


def _obtain_vm(s: ClaimSnapshot, now: datetime) -> steps.Step:
    if s.claim.invalid_spec:
        return fail(s, Failure(ClaimReason.INVALID_SPEC, s.claim.invalid_spec), now)
    if s.no_pool is not None:
        return pend(s, s.no_pool, now)
    assert s.pool is not None
    if refusal := _refusal(s):
        return fail(s, refusal, now)
    if s.over_quota is not None:
        return pend(s, s.over_quota, now)
    if needs_agent(s) and s.application is None:
        return steps.ReadApplication()
    if isinstance(s.application, Failure):
        return pend(s, s.application, now)
    if why := status.mismatch_of(s.claim, s.pool):
        return _create(s, Failure(ClaimReason.OVERRIDE_MISMATCH, why), now)
    if s.failure is not None and s.failure.reason == ClaimReason.FAILED_RESERVE:
        return pend(s, s.failure, now)
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
            return fail(s, Failure(ClaimReason.NO_CAPACITY, empty), now)
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
    elapsed = seconds_since_act(s.timeline.position_written, now)
    if first or (fresh != s.claim.status and elapsed >= pause):
        event = steps.ClaimEvent(ClaimReason.CLAIM_QUEUED, f"position {s.position} in the queue") if first else None
        return steps.UpdateStatus(fresh, event)
    left = pause - elapsed if fresh != s.claim.status else pause
    return steps.Requeue(min(max(0.05, left), seconds_until(s.bind_deadline, now)))


def _create(s: ClaimSnapshot, why: Failure, now: datetime) -> steps.Step:
    assert s.pool is not None
    if (obstacle := status.creation_obstacle(s)) is not None:
        obstacle = Failure(obstacle.reason, f"{why.message}, and {obstacle.message}")
        return fail(s, obstacle, now) if s.on_empty == "Fail" else pend(s, obstacle, now)
    if s.failure is not None:
        return pend(s, s.failure, now, phase="Allocating")
    name = vm_name(s.claim.name, s.claim.uid, s.claim.status.attempts)
    if any(vm.name == name for vm in s.vms):
        # Somebody deletes the VM that was created for this attempt, and the next one would have the same name.
        return steps.Requeue(min(RECHECK_SECONDS, seconds_until(s.bind_deadline, now)))
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
