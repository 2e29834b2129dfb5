"""Computes the status of a claim for each step."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Literal

from controllers.claim.application import needs_boot
from controllers.claim.application_report import Accepted, application_status, judged
from controllers.claim.evictions import evicting_condition, evicting_event
from controllers.claim.expiry import expires_at, expiry_at_binding, warns_at
from controllers.claim.overrides import mismatch
from controllers.claim.personalization import hostname_needs_boot, personalized_condition
from controllers.claim.reasons import ClaimReason
from controllers.claim.snapshot import Claim, ClaimSnapshot, Failure, time_or_min
from controllers.claim.steps import ClaimEvent
from controllers.shared.conditions import condition, find_condition, set_time
from controllers.shared.readiness import Readiness, State
from controllers.warmpool.agent_reasons import AgentReason
from controllers.warmpool.backends import Health
from controllers.warmpool.ec2.tags import is_instance
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.timestamps import format_micro_time, parse_time
from poolhouse.api.kinds.application_status import ApplicationStatus
from poolhouse.api.kinds.claim import ClaimStatus, EC2InstanceRef, LaunchType, Phase, Timings, VMRef
from poolhouse.api.kinds.conditions import WHILE_TRUE
from poolhouse.api.kinds.metav1 import MAX_MESSAGE, Condition

LAUNCH_TYPES: dict[str, LaunchType] = {"Running": "Warm", "Paused": "Resumed", "Stopped": "Started"}
"""the key is the standby mode"""


VERDICTS: dict[str, Literal["True", "False", "Unknown"]] = {"Healthy": "True", "Failed": "False", "Unable": "Unknown"}
"""status of the condition ApplicationHealthy, by the verdict of a check"""


def pending(s: ClaimSnapshot, why: Failure, now: datetime, phase: Phase = "Pending") -> ClaimStatus:
    """The status of a claim with an obstacle that may pass."""
    return _status(s, now, [_false("Bound", why)], phase=phase, queue_position=None)


def queued(s: ClaimSnapshot, now: datetime) -> ClaimStatus:
    empty = "no VM of the pool is ready for this claim yet"
    why = Failure(ClaimReason.QUEUED, empty)
    if (obstacle := creation_obstacle(s)) is not None:
        why = Failure(obstacle.reason, f"{empty}, and {obstacle.message}")
    name = s.pool.name if s.pool else ""
    return _status(s, now, [_false("Bound", why)], phase="Queued", queue_position=s.position, pool_name=name)


def creation_obstacle(s: ClaimSnapshot) -> Failure | None:
    """Why the pool gets no further VM now, by its own spec."""
    if s.pool is not None and s.pool.spec.paused:
        return Failure(ClaimReason.POOL_PAUSED, f"warm pool {s.pool.name} is paused, so no VM is created")
    if s.pool is not None and s.pool_full:
        total = count_noun(s.pool.spec.max_total or 0, "VM")
        return Failure(ClaimReason.MAX_TOTAL_REACHED, f"the pool has its maxTotal of {total}")
    return None


def bound(s: ClaimSnapshot, vm: WarmVM, launch_type: LaunchType, reason: str, now: datetime) -> ClaimStatus:
    """The write of this status carries the resourceVersion of a claim without a VM, so only one write succeeds."""
    ready = _false("Ready", Failure(ClaimReason.ACTIVATING, f"{vm.name} is not handed over yet"))
    fields = _binding(s, vm, launch_type, reason, now)
    return _status(s, now, [_bound(vm), ready], phase="Bound", timings=_timings(s, now, ready=False), **fields)


def _bound(vm: WarmVM) -> Condition:
    return condition("Bound", True, ClaimReason.VM_BOUND, f"{vm.name} belongs to this claim alone")


def _binding(s: ClaimSnapshot, vm: WarmVM, launch_type: LaunchType, reason: str, now: datetime) -> dict[str, Any]:
    """The fields of the status that say which VM the claim has."""
    ref: dict[str, Any] = {"vm_ref": VMRef(name=vm.name, uid=vm.uid)}
    if is_instance(vm):  # the pool may be deleted
        ref = {"instance_ref": EC2InstanceRef(id=vm.uid)}
    end = expiry_at_binding(s, now)
    return {
        "queue_position": None,
        "pool_name": vm.pool,
        "launch_type": launch_type,
        "launch_reason": reason,
        "attempts": s.claim.status.attempts + (0 if s.claim.vm_uid else 1),
        "bound_at": format_micro_time(now),
        "expires_at": format_micro_time(end) if end else None,
        **ref,
    }


def unhealthy(s: ClaimSnapshot, vm: WarmVM, health: Health, now: datetime) -> ClaimStatus:
    """Changes the status only for a new reason, because each check may have a different message."""
    written = find_condition(s.claim.status.conditions, "Ready")
    if written is not None and written.reason == health.reason:
        return s.claim.status
    return _status(s, now, [_false("Ready", Failure(health.reason, f"{vm.name}: {health.message}"))])


def bound_and_ready(s: ClaimSnapshot, vm: WarmVM, now: datetime) -> ClaimStatus:
    """Binds the VM and makes the claim Ready in one write. The VM must be healthy and need no other step."""
    binding = {**_binding(s, vm, *launch(s, vm), now), "observed_generation": s.claim.generation}
    after = s.claim.status.model_copy(update=binding)
    return ready(replace(s, claim=replace(s.claim, status=after)), vm, now, [_bound(vm)])


def launch(s: ClaimSnapshot, vm: WarmVM) -> tuple[LaunchType, str]:
    """The launch type and its cause. A VM that was activated before the binding was created for the claim."""
    if not vm.activated:
        return LAUNCH_TYPES[vm.standby], f"a VM was {'waiting' if vm.standby == 'Running' else vm.standby.lower()}"
    if s.pool is not None and (why := mismatch_of(s.claim, s.pool)):
        return "Cold", f"{ClaimReason.OVERRIDE_MISMATCH}: {why}"
    if placement := s.claim.overrides.placement:
        return "Cold", f"{ClaimReason.OVERRIDE_MISMATCH}: no VM was ready in placement {placement}"
    return "Cold", f"{ClaimReason.POOL_EMPTY}: no VM of the pool was ready"


def mismatch_of(claim: Claim, pool: WarmPool) -> str:
    """Why no waiting VM of the pool can serve the claim, or an empty string."""
    spec, template = claim.spec, pool.template
    return (
        mismatch(claim.overrides, template)
        or hostname_needs_boot(spec.personalization, template)
        or needs_boot(spec.application, template)
    )


def application_conditions(s: ClaimSnapshot, now: datetime) -> list[Condition]:
    """The condition ApplicationHealthy. It changes only with its reason, because each check may have a different
    message. Nothing for a claim without an application."""
    kind, health = "ApplicationHealthy", judged(s.application_health, _accepted(s, now))
    written = find_condition(s.claim.status.conditions, kind)
    if health is None:
        if s.claim.spec.application is None or s.has_agent or written is not None:
            return []
        message = "cloud-init starts the application when the VM boots; look for its state in the guest"
        return [Condition(type=kind, status="Unknown", reason=ClaimReason.APPLICATION_AT_BOOT, message=message)]
    if written is not None and written.reason == health.reason:
        return []
    message = health.message[:MAX_MESSAGE]
    return [Condition(type=kind, status=VERDICTS[health.verdict], reason=health.reason, message=message)]


def ready(s: ClaimSnapshot, vm: WarmVM, now: datetime, others: Iterable[Condition] = ()) -> ClaimStatus:
    """The status of a Ready claim, with other conditions. The condition Ready shows whether the VM still runs."""
    before, vmi = s.claim.status, vm.vmi
    if (s.health is not None and s.health.verdict == "Healthy") or (vmi is not None and vmi.ready):
        now_ready = condition("Ready", True, ClaimReason.HANDED_OVER, f"{vm.name} is running and in use")
    else:
        state = "it does not run" if vmi is None else vmi.message or f"it is {vmi.phase or 'starting'}"
        now_ready = _false("Ready", Failure(ClaimReason.VM_NOT_READY, f"{vm.name}: {state}"))
    first = not before.ready_at
    personalized = personalized_condition(s.claim.spec.personalization, s.not_personalized) if first else []
    return _status(
        s,
        now,
        [
            *others,
            now_ready,
            *personalized,
            *application_conditions(s, now),
            *evicting_condition(s, vm, now),
            *_expiring(s, now),
        ],
        phase="Ready",
        ready_at=format_micro_time(now) if first else before.ready_at,
        timings=_timings(s, now, ready=True) if first else before.timings,
        addresses=vmi.addresses if vmi is not None and vmi.addresses else before.addresses,
    )


def ready_event(s: ClaimSnapshot, fresh: ClaimStatus, vm: WarmVM) -> ClaimEvent | None:
    """The event for a new status of a Ready claim, or None. A running warm VM that is handed over at once has none: the
    claim's status says the same, and the Event would be a fourth write for each claim."""
    if not s.claim.status.ready_at:
        if fresh.launch_type == "Warm" and s.claim.status.phase == "Pending":
            return None
        total = fresh.timings.total_ms if fresh.timings is not None else None
        took = f" after {total} ms" if total is not None else ""
        return ClaimEvent(ClaimReason.CLAIM_READY, f"{vm.name} ({fresh.launch_type}) was handed over{took}")
    before, after = s.claim.status.conditions, fresh.conditions
    if (failing := _became("False", "ApplicationHealthy", before, after)) is not None:
        return ClaimEvent(failing.reason, failing.message, "Warning")
    if (evicting := evicting_event(before, after)) is not None:
        return evicting
    if (expiring := _became("True", "Expiring", before, after)) is not None:
        return ClaimEvent(ClaimReason.CLAIM_EXPIRING, expiring.message, "Warning")
    return None


def _became(status: str, kind: str, before: Iterable[Condition], after: Iterable[Condition]) -> Condition | None:
    """The condition, if it has this status now and had another before."""
    return find_condition(after, kind, status) if find_condition(before, kind, status) is None else None


def losing(s: ClaimSnapshot, why: Failure, now: datetime) -> ClaimStatus:
    """The status of a claim whose VM still exists and does not come back."""
    return _status(s, now, [_false("Ready", why)])


def retrying(s: ClaimSnapshot, why: Failure, now: datetime) -> ClaimStatus:
    """The status after a VM did not become usable, before another attempt."""
    conditions = [_false("Bound", why), _false("Ready", why)]
    cleared = {"vm_ref": None, "instance_ref": None, "bound_at": None, "expires_at": None, "launch_type": None}
    return _status(s, now, conditions, phase="Pending", **cleared, launch_reason="")


def releasing(s: ClaimSnapshot, now: datetime) -> ClaimStatus:
    pod, message = s.claim.pod, "the claim is being released"
    if pod is not None and s.claim.lost_pod:
        message = f"Pod {pod.name} is not the controller of its claim any more"
    why = Failure(ClaimReason.RELEASED, message)
    return _status(s, now, [_false("Ready", why)], phase="Releasing")


def released(s: ClaimSnapshot, now: datetime) -> ClaimStatus:
    vm = "and its VM is gone" if s.claim.vm_uid else "before it had a VM"
    return _finished(s, "Released", Failure(ClaimReason.RELEASED, f"the claim was released {vm}"), now)


def expired(s: ClaimSnapshot, now: datetime) -> ClaimStatus:
    return _finished(s, "Expired", Failure(ClaimReason.EXPIRED, "the claim's time is over"), now)


def observed(s: ClaimSnapshot, now: datetime) -> ClaimStatus:
    """The status of a finished claim whose spec has changed."""
    return _status(s, now, [])


def failed(s: ClaimSnapshot, why: Failure, now: datetime) -> ClaimStatus:
    return _finished(s, "Failed", why, now)


def last_failure(s: ClaimSnapshot) -> str:
    bound = find_condition(s.claim.status.conditions, "Bound")
    message = bound.message if bound is not None else ""
    return f"{count_noun(s.claim.status.attempts, 'VM', 'was', 'were')} tried; the last: {message}"


def _expiring(s: ClaimSnapshot, now: datetime) -> list[Condition]:
    """The condition Expiring: True once a tenth of the time is left, False after an extension."""
    end, warning = expires_at(s), warns_at(s)
    if end is not None and warning is not None and now >= warning:
        return [condition("Expiring", True, ClaimReason.TTL_EXPIRING, f"the VM is deleted at {end:%H:%M:%S} UTC")]
    if find_condition(s.claim.status.conditions, "Expiring", "True") is not None:
        return [_false("Expiring", Failure(ClaimReason.TTL_EXTENDED, "the claim was extended"))]
    return []


def _finished(s: ClaimSnapshot, phase: Phase, why: Failure, now: datetime) -> ClaimStatus:
    conditions = [_false("Bound", why), _false("Ready", why)]
    return _status(s, now, conditions, phase=phase, queue_position=None, finished_at=format_micro_time(now))


def _status(s: ClaimSnapshot, now: datetime, conditions: Iterable[Condition], **change: Any) -> ClaimStatus:
    before = s.claim.status
    old = {c.type: c for c in before.conditions}
    timed = partial(set_time, generation=s.claim.generation, now=format_micro_time(now))
    given = {c.type: timed(c, old.get(c.type)) for c in conditions}
    fresh = {kind: c for kind, c in old.items() if kind not in WHILE_TRUE} | given
    decided = readiness(change.get("phase", before.phase), fresh)
    known = {kind: c for kind, c in fresh.items() if kind != "Ready"}
    for c in decided.conditions if decided else ():
        known[c.type] = timed(c, old.get(c.type))
    # The expiry depends on the observed generation, so one write updates both.
    observed: dict[str, Any] = {
        "observed_generation": s.claim.generation,
        "expires_at": _same_or(before.expires_at, expires_at(s)),
    }
    if (application := application_status(s.application_health, _accepted(s, now))) is not None:
        observed["application"] = application
    return before.model_copy(update={**observed, "conditions": tuple(known.values()), **change})


def _accepted(s: ClaimSnapshot, now: datetime) -> Accepted | None:
    """The application, if the VM was handed over and the controllers do not stop it."""
    before = s.claim.status
    if not before.ready_at or s.ending_seconds is not None:
        return None
    seconds = (now - time_or_min(before.ready_at)).total_seconds()
    return Accepted(s.claim.spec.application, before.application or ApplicationStatus(), seconds)


ENDED = (AgentReason.APPLICATION_FAILED, AgentReason.APPLICATION_LOST)
"""Reasons of ApplicationHealthy with which an application has ended for good."""


def readiness(phase: Phase, conditions: Mapping[str, Condition]) -> Readiness | None:
    """The readiness of a claim, by its phase and the conditions Bound, Ready and ApplicationHealthy. None for a claim
    that was released or has expired: it asks for no VM any more, so kstatus calls it Current, and no VM is Ready."""
    if phase in ("Released", "Expired"):
        return None
    found = conditions.get("Bound" if phase in ("Pending", "Queued", "Allocating") else "Ready")
    reason, message = (found.reason, found.message) if found else (phase, "")
    if phase == "Failed":
        return Readiness("Stalled", reason, message)
    if phase != "Ready" or found is None or found.status != "True":
        return Readiness("Reconciling", reason, message)
    application = conditions.get("ApplicationHealthy")
    if application is not None and application.status == "False":
        state: State = "Stalled" if application.reason in ENDED else "Reconciling"
        return Readiness(state, application.reason, application.message)
    return Readiness("Ready", reason, message)


def _timings(s: ClaimSnapshot, now: datetime, *, ready: bool) -> Timings:
    """Uses the clock of this process. Without an observed time, a claim counts from its creationTimestamp, which has
    whole seconds."""
    t = s.timeline
    observed = t.observed or time_or_min(s.claim.created_at)
    if not ready:
        return Timings(queued_ms=_ms(observed, t.dequeued))
    bound = t.bound or t.reserved
    activated = t.activated or bound
    return Timings(
        queued_ms=_ms(observed, t.dequeued),
        bind_ms=_ms(t.dequeued, bound),
        activate_ms=_ms(bound, activated),
        check_ms=_ms(activated, now),
        total_ms=_ms(observed, now),
    )


def _ms(begin: datetime | None, end: datetime | None) -> int | None:
    return max(0, round((end - begin).total_seconds() * 1000)) if begin and end else None


def _same_or(written: str | None, end: datetime | None) -> str | None:
    """The time as text: `written`, if it is the same time, so that the status does not change."""
    if end is None:
        return None
    return written if written and parse_time(written) == end else format_micro_time(end)


def _false(kind: str, why: Failure) -> Condition:
    return condition(kind, False, why.reason, why.message)
