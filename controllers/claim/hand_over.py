"""The next step of a claim whose UID is on a VM: bind it, activate, check and personalize it, and hand it over."""

from collections.abc import Mapping
from datetime import datetime

from controllers.claim import personalization, status, steps
from controllers.claim.evictions import seconds_until_allowed
from controllers.claim.expiry import expires_at, warns_at
from controllers.claim.reasons import ClaimReason
from controllers.claim.snapshot import ClaimSnapshot, Failure, time_or_min
from controllers.claim.waiting import MAX_ATTEMPTS, RECHECK_SECONDS, fail, needs_agent, seconds_since_act, seconds_until
from controllers.warmpool.agent_reasons import AgentReason
from controllers.warmpool.backends import Health
from controllers.warmpool.warm_vm import PAUSED_BY_USER, WarmVM
from poolhouse.api.apimachinery.timestamps import seconds_until_next
from poolhouse.api.kinds.claim import LaunchType
from poolhouse.api.kinds.warm_states import WarmState

REACTIVATE_SECONDS = 1.0
"""interval of repeated requests to start or unpause a VM"""
ACTIVATION_SECONDS: Mapping[LaunchType | None, float] = {"Warm": 15.0, "Resumed": 60.0}
"""time limits for a bound VM to become healthy, by launch type; the default is `readiness.timeoutSeconds`"""
QUIET_SECONDS = 5.0
"""The status reports an unhealthy VM only after this time, because most bound VMs become healthy sooner."""


def bind_if_healthy(s: ClaimSnapshot, vm: WarmVM, now: datetime) -> steps.Step:
    """Binds a running, healthy VM and makes the claim Ready in one write. Only a health check may come before the
    write, because it does not change the VM or its guest."""
    if not _is_unchanged(s, vm):
        return bind(s, vm, now)
    if s.health is None:
        return steps.CheckHealth(vm)
    if s.health.verdict != "Healthy":  # the check may take a while, so the VM is written into the claim first
        return bind(s, vm, now)
    fresh = status.bound_and_ready(s, vm, now)
    return steps.UpdateStatus(fresh, status.ready_event(s, fresh, vm))


def _is_unchanged(s: ClaimSnapshot, vm: WarmVM) -> bool:
    """Whether the hand-over leaves the VM unchanged. A hand-over by an agent changes it, because the agent starts the
    application."""
    warm = status.launch(s, vm)[0] == "Warm"
    return (
        warm
        and s.pool is not None
        and s.pool.spec.ec2 is None
        and not needs_agent(s)
        and not personalization.is_personalized(s.claim.spec.personalization)
    )


def bind(s: ClaimSnapshot, vm: WarmVM, now: datetime) -> steps.Step:
    """Second compare-and-swap."""
    launch, reason = status.launch(s, vm)
    fresh, message = status.bound(s, vm, launch, reason, now), f"{vm.name} ({launch})"
    if launch == "Warm":  # the claim is Ready in a moment, with its own event
        return steps.UpdateStatus(fresh)
    event = ClaimReason.COLD_START if launch == "Cold" else ClaimReason.CLAIM_BOUND
    return steps.UpdateStatus(fresh, steps.ClaimEvent(event, message))


def plan_bound(s: ClaimSnapshot, now: datetime) -> steps.Step:
    if s.extra_vms:
        if (reserved := _reserved_meanwhile(s)) is not None:
            return bind_if_healthy(s, reserved, now)
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
    if s.candidate is not None and s.failure is None and _boots(s, vm):
        return steps.ReserveVM(s.candidate)
    return _activate(s, vm, now)


def _boots(s: ClaimSnapshot, vm: WarmVM) -> bool:
    """Whether the claim waits for the boot of a VM that was created because the pool was empty. It takes a VM of the
    pool that is ready sooner; the booting VM is deleted then, because it may be personalized."""
    found_none = (s.claim.status.launch_reason or "").startswith(f"{ClaimReason.POOL_EMPTY}:")
    return found_none and not (vm.vmi is not None and vm.vmi.ready)


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
    if asleep and seconds_since_act(s.timeline.activated, now) >= REACTIVATE_SECONDS:
        return steps.ActivateVM(vm)
    if s.health is None:
        return _check(s, vm, now)
    return steps.PersonalizeVM(vm) if _needs_personalization(s) else steps.HandOverVM(vm)


def _check(s: ClaimSnapshot, vm: WarmVM, now: datetime) -> steps.Step:
    """Checks the health of the VM, with which its agent launches the application. For a Pod, the check waits until the
    Pod names the claim."""
    if needs_agent(s) and s.application is None:
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
        limit = min(ACTIVATION_SECONDS.get(s.claim.status.launch_type, limit), limit)
    if waited >= limit:
        return steps.DeleteVM(vm, f"after {waited:.0f} s: {health.reason}: {health.message}")
    if waited >= QUIET_SECONDS and (fresh := status.unhealthy(s, vm, health, now)) != s.claim.status:
        return steps.UpdateStatus(fresh)
    # The time is negative if the VM was bound before the clock was set back.
    return steps.Requeue(min(2.0, max(0.1, abs(waited) / 4), limit - waited))


def _lost(s: ClaimSnapshot, now: datetime) -> steps.Step:
    if not s.vms_known:
        return steps.FindVMs()
    if s.claim.status.ready_at:
        if s.claim.pod is not None and _may_still_run(s):
            return _wait_for_end(s, now)
        return fail(s, Failure(ClaimReason.VM_LOST, "the VM was deleted, and not by the controllers"), now)
    why = s.deletion or Failure(ClaimReason.ACTIVATION_FAILED, "the VM was deleted before it was handed over")
    ends = _may_still_run(s)
    if s.claim.status.attempts >= MAX_ATTEMPTS or (ends and now >= s.bind_deadline):
        return fail(s, why, now)
    if ends:
        return steps.Requeue(min(RECHECK_SECONDS, seconds_until(s.bind_deadline, now)))
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


def _needs_personalization(s: ClaimSnapshot) -> bool:
    return personalization.is_personalized(s.claim.spec.personalization) and s.not_personalized is None


def _in_use(s: ClaimSnapshot, vm: WarmVM, now: datetime) -> steps.Step:
    if not s.claim.status.ready_at and _needs_personalization(s):
        return steps.PersonalizeVM(vm)  # an earlier process stopped before it wrote the result
    if s.has_agent and s.application_health is None:
        return steps.CheckApplication(vm)
    fresh = status.ready(s, vm, now)
    if fresh != s.claim.status:
        return steps.UpdateStatus(fresh, status.ready_event(s, fresh, vm))
    pauses = [
        seconds_until_next((warns_at(s), expires_at(s)), now),
        seconds_until_allowed(s, now),
        s.health_period_seconds if s.has_agent else None,
    ]
    return steps.Requeue(min((each for each in pauses if each is not None), default=None))
