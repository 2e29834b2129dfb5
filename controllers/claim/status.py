"""What a claim's status says at each of its steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from controllers.claim.expiry import expires_at, granted, warn_at
from controllers.claim.overrides import mismatch
from controllers.claim.personalization import personalized
from controllers.claim.snapshot import ClaimSnapshot, Failure, moment, text
from controllers.claim.steps import ClaimEvent
from controllers.warmpool.ec2.tags import is_instance
from controllers.warmpool.warm_vm import WarmVM
from kinds.claim import ClaimStatus, EC2InstanceRef, LaunchType, Phase, Timings, VMRef
from kinds.metav1 import Condition

LAUNCHES: dict[str, LaunchType] = {"Running": "Warm", "Paused": "Resumed", "Stopped": "Started"}
"""by how the machine has waited"""


def held(s: ClaimSnapshot, why: Failure, now: datetime, phase: str = "Pending") -> ClaimStatus:
    """Nothing is done for it, and the reason may pass."""
    return _with(s, now, [_no("Bound", why)], phase=phase, queue_position=None)


def queued(s: ClaimSnapshot, now: datetime) -> ClaimStatus:
    why = Failure("Queued", "no machine of the pool is ready for it yet")
    name = s.pool.name if s.pool else ""
    return _with(s, now, [_no("Bound", why)], phase="Queued", queue_position=s.place, pool_name=name)


def bound(s: ClaimSnapshot, m: WarmVM, launch: LaunchType, reason: str, now: datetime) -> ClaimStatus:
    """Written with the resourceVersion of a claim that had no machine: it can be won once."""
    ref: dict[str, Any] = {"vm_ref": VMRef(name=m.name, uid=m.uid)}
    if is_instance(m):  # its pool may be gone by now
        ref = {"instance_ref": EC2InstanceRef(id=m.uid)}
    conditions = [
        _yes("Bound", "MachineBound", f"{m.name} is this claim's and nobody else's"),
        _no("Ready", Failure("Activating", f"{m.name} is not handed over yet")),
    ]
    ends = granted(s, now)
    return _with(
        s,
        now,
        conditions,
        phase="Bound",
        queue_position=None,
        pool_name=m.pool,
        launch_type=launch,
        launch_reason=reason,
        attempts=s.claim.status.attempts + 1,
        bound_at=text(now),
        expires_at=text(ends) if ends else None,
        timings=_timings(s, now, ready=False),
        **ref,
    )


def unwell(s: ClaimSnapshot, m: WarmVM, now: datetime) -> ClaimStatus:
    """What its last check has found. The same reason is not said again: what the check says of it may change with every
    try, and each would be a write."""
    assert s.health is not None
    said = next((c.reason for c in s.claim.status.conditions if c.type == "Ready"), "")
    if said == s.health.reason:
        return s.claim.status
    return _with(s, now, [_no("Ready", Failure(s.health.reason, f"{m.name}: {s.health.message}"))])


def served(s: ClaimSnapshot, m: WarmVM, now: datetime) -> ClaimStatus:
    """Bound and Ready in one: the second compare-and-swap of a machine that is well and needs nothing."""
    said = bound(s, m, *launch(s, m), now)
    return in_use(_said(s, said), m, now)


def launch(s: ClaimSnapshot, m: WarmVM) -> tuple[LaunchType, str]:
    """How the claim comes to its machine, and why so. One that nobody had before its claim was made for it."""
    if not m.activated:
        return LAUNCHES[m.standby], f"a machine was {'waiting' if m.standby == 'Running' else m.standby.lower()}"
    if s.pool is not None and (why := mismatch(s.claim.wanted, s.pool.template)):
        return "Cold", f"OverrideMismatch: {why}"
    if s.claim.wanted.placement:
        return "Cold", f"OverrideMismatch: no machine was ready in placement {s.claim.wanted.placement}"
    return "Cold", "PoolEmpty: no machine of the pool was ready"


def in_use(s: ClaimSnapshot, m: WarmVM, now: datetime) -> ClaimStatus:
    """Ready, and from then on what is true of its machine."""
    said = s.claim.status
    guest = m.vmi
    well = (s.health is not None and s.health.verdict == "Healthy") or (guest is not None and guest.ready)
    if well:
        ready = _yes("Ready", "HandedOver", f"{m.name} is running and in use")
    else:
        state = "it does not run" if guest is None else guest.message or f"it is {guest.phase or 'starting'}"
        ready = _no("Ready", Failure("MachineNotReady", f"{m.name}: {state}"))
    expiring = _expiring(s, now)
    personal = personalized(s.claim.spec.personalization, s.refused) if not said.ready_at else []
    first = not said.ready_at
    return _with(
        s,
        now,
        [ready, *personal, *expiring],
        phase="Ready",
        ready_at=text(now) if first else said.ready_at,
        timings=_timings(s, now, ready=True) if first else said.timings,
        addresses=guest.addresses if guest is not None and guest.addresses else said.addresses,
    )


def news(s: ClaimSnapshot, fresh: ClaimStatus, m: WarmVM, now: datetime) -> ClaimEvent | None:
    """What is worth an event of what has changed in a claim that is in use."""
    if not s.claim.status.ready_at:
        total = fresh.timings.total_ms if fresh.timings is not None else None
        took = f" after {total} ms" if total is not None else ""
        return ClaimEvent("ClaimReady", f"{m.name} ({fresh.launch_type}) was handed over{took}")
    before = {c.type: c.status for c in s.claim.status.conditions}
    warned = next((c for c in fresh.conditions if c.type == "Expiring"), None)
    if warned is not None and warned.status == "True" and before.get("Expiring") != "True":
        return ClaimEvent("ClaimExpiring", warned.message, "Warning")
    return None


def again(s: ClaimSnapshot, why: Failure, now: datetime) -> ClaimStatus:
    """Its machine was not to be used: another one is tried."""
    conditions = [_no("Bound", why), _no("Ready", why)]
    gone = {"vm_ref": None, "instance_ref": None, "bound_at": None, "expires_at": None, "launch_type": None}
    return _with(s, now, conditions, phase="Pending", **gone, launch_reason="")


def releasing(s: ClaimSnapshot, now: datetime) -> ClaimStatus:
    return _with(s, now, [_no("Ready", Failure("Released", "it is being given back"))], phase="Releasing")


def released(s: ClaimSnapshot, now: datetime) -> ClaimStatus:
    why = Failure("Released", "it was given back, and its machine is gone")
    return _over(s, "Released", why, now)


def expired(s: ClaimSnapshot, now: datetime) -> ClaimStatus:
    return _over(s, "Expired", Failure("Expired", "its time is over"), now)


def failed(s: ClaimSnapshot, why: Failure, now: datetime) -> ClaimStatus:
    return _over(s, "Failed", why, now)


def last_failure(s: ClaimSnapshot) -> str:
    """Of the attempts that were made."""
    said = next((c.message for c in s.claim.status.conditions if c.type == "Bound"), "")
    return f"{s.claim.status.attempts} machines were tried; the last: {said}"


def _expiring(s: ClaimSnapshot, now: datetime) -> list[Condition]:
    """Said once when a tenth of the time is left, and taken back when it is extended."""
    ends, warns = expires_at(s), warn_at(s)
    if ends is not None and warns is not None and now >= warns:
        return [_yes("Expiring", "TimeAlmostOver", f"the machine is taken back at {ends:%H:%M:%S} UTC")]
    if any(c.type == "Expiring" and c.status == "True" for c in s.claim.status.conditions):
        return [_no("Expiring", Failure("Extended", "there is more time again"))]
    return []


def _over(s: ClaimSnapshot, phase: Phase, why: Failure, now: datetime) -> ClaimStatus:
    return _with(s, now, [_no("Bound", why), _no("Ready", why)], phase=phase, queue_position=None)


def _with(s: ClaimSnapshot, now: datetime, conditions: Iterable[Condition], **change: Any) -> ClaimStatus:
    before = s.claim.status
    known = {c.type: c for c in before.conditions}
    for c in conditions:
        old = known.get(c.type)
        since = old.last_transition_time if old and old.status == c.status else text(now)
        known[c.type] = c.model_copy(update={"last_transition_time": since, "observed_generation": s.claim.generation})
    # With the generation that is answered goes what it says of the end.
    answered = {"observed_generation": s.claim.generation, "expires_at": _same_or(before.expires_at, expires_at(s))}
    return before.model_copy(update={**answered, "conditions": tuple(known.values()), **change})


def _timings(s: ClaimSnapshot, now: datetime, *, ready: bool) -> Timings:
    """Of what this process has seen with its own clock, until the write that says it. A claim that it found half done
    is measured from its creation, of which the API server writes whole seconds only."""
    marks = s.marks
    seen = marks.seen or moment(s.claim.created_at)
    if not ready:
        return Timings(queued_ms=_ms(seen, marks.popped))
    bound = marks.bound or marks.taken
    awake = marks.awake or bound
    return Timings(
        queued_ms=_ms(seen, marks.popped),
        bind_ms=_ms(marks.popped, bound),
        activate_ms=_ms(bound, awake),
        check_ms=_ms(awake, now),
        total_ms=_ms(seen, now),
    )


def _ms(begin: datetime | None, end: datetime | None) -> int | None:
    return max(0, round((end - begin).total_seconds() * 1000)) if begin and end else None


def _same_or(said: str | None, ends: datetime | None) -> str | None:
    """Times are compared as times: the API server may write them otherwise."""
    if ends is None:
        return None
    return said if said and moment(said) == ends else text(ends)


def _said(s: ClaimSnapshot, status: ClaimStatus) -> ClaimSnapshot:
    return replace(s, claim=replace(s.claim, status=status))


def _yes(kind: str, reason: str, message: str) -> Condition:
    return Condition(type=kind, status="True", reason=reason, message=message)


def _no(kind: str, why: Failure) -> Condition:
    return Condition(type=kind, status="False", reason=why.reason, message=why.message)
