"""The next step of a claim. One at a time: each is decided from what the one before has made true.

Nothing here depends on which process has taken the steps before, or whether it was killed on the way: a machine with
the claim's UID says that the first compare-and-swap was won, the claim's status that the second was. A claim that says
that it is Ready has been served, whatever its machine's label says yet.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from math import inf

from controllers.claim import status
from controllers.claim.expiry import expires_at, next_moment
from controllers.claim.overrides import mismatch, refused
from controllers.claim.personalization import wished
from controllers.claim.snapshot import ClaimSnapshot, Failure, moment
from controllers.claim.steps import (
    ActivateVM,
    CheckHealth,
    ClaimEvent,
    CreateVM,
    DeleteVM,
    FindVMs,
    HandOverVM,
    JoinWaitQueue,
    MarkActivated,
    PersonalizeVM,
    Requeue,
    ReserveVM,
    Step,
    UpdateStatus,
)
from controllers.warmpool.vmi import PAUSED_BY_USER
from controllers.warmpool.warm_vm import WarmVM
from kinds.warm_states import WarmState

MOST_ATTEMPTS = 2
HELD_SECONDS = 5.0
"""how often it is looked whether what holds a claim up has passed, where no event says so"""
LOOKS_PER_SECOND = 50.0
"""At so many claims of a line that does not move, however long it is. One that moves writes hardly more places."""
LENIENCE = timedelta(seconds=30)
"""That nobody led when its time ended is not the claimant's fault, and who has lost interest deletes the claim: what is
ready is given so much later too, but nothing is made and nothing waited for. A change of leaders takes half of it."""
AGAIN_SECONDS = 1.0
"""A machine that was told to wake up is told again when it has not by then."""
PATIENCE = {"Warm": 15.0, "Resumed": 60.0}
"""Seconds for a machine to be found well after it was bound. Those that boot have as long as the pool gives them."""

UNTOLD_SECONDS = 5.0
"""For so long after it was bound, that a machine is not well yet is no news: most are a moment later."""


def plan(s: ClaimSnapshot, now: datetime) -> Step:
    c = s.claim
    if c.deleting:
        return _ended(s, "its claim is being deleted") or Requeue()
    if c.over:
        return _ended(s, f"its claim is {c.status.phase}") or Requeue()
    if c.spec.release or c.status.phase == "Releasing":
        return _release(s, now)
    if (end := expires_at(s)) is not None and now >= end:
        return UpdateStatus(status.expired(s, now), ClaimEvent("ClaimExpired", f"its time ended at {end:%H:%M:%S} UTC"))
    if s.mine is None and (used := _in_use_for(s)):
        # What somebody uses can't be made again. A status can be lost with a backup, or be another release's.
        return _bind(s, used, now)
    return _bound(s, now) if c.vm_uid else _unbound(s, now)


# It ends


def _release(s: ClaimSnapshot, now: datetime) -> Step:
    if s.claim.status.phase != "Releasing":
        return UpdateStatus(status.releasing(s, now))
    if ending := _ended(s, "its claim was released"):
        return ending
    if not s.certain:
        return FindVMs()
    if s.machines:  # being deleted, and not gone
        return Requeue(HELD_SECONDS)
    return UpdateStatus(status.released(s, now), ClaimEvent("ClaimReleased", "its machine is gone"))


def _ended(s: ClaimSnapshot, reason: str) -> Step | None:
    return next((DeleteVM(m, reason) for m in s.machines if not m.deleting), None)


def _in_use_for(s: ClaimSnapshot) -> WarmVM | None:
    """A machine that says that it was handed over to the claim: it was written down as the claim's before."""
    used = [m for m in s.machines if m.state is WarmState.IN_USE and not m.deleting]
    return min(used, key=lambda m: (m.created_at, m.uid), default=None)


# It has no machine yet


def _unbound(s: ClaimSnapshot, now: datetime) -> Step:
    taken = [m for m in s.machines if not m.deleting]
    if usable := [m for m in taken if m.state is WarmState.ALLOCATING and m.owned_by(s.claim.uid)]:
        # Of several, of which a race has left all but one behind, whoever looks takes the same one. The others go when
        # that is written down: who reads the claim late does not know that it has one of them already.
        return _serve(s, min(usable, key=lambda m: (m.created_at, m.uid)), now)
    if taken:
        return DeleteVM(taken[0], "it carries a claim in a state in which no machine has one")
    if s.claim.status.attempts >= MOST_ATTEMPTS:
        return _fail(s, Failure("ActivationFailed", status.last_failure(s)), now)
    if not s.certain:
        return FindVMs()
    step = _wanted(s, now)
    if now < s.bind_by or (isinstance(step, ReserveVM) and now < s.bind_by + LENIENCE):
        return step
    return _fail(s, _late(s), now)


def _wanted(s: ClaimSnapshot, now: datetime) -> Step:
    if s.claim.problem:
        return _fail(s, Failure("InvalidSpec", s.claim.problem), now)
    if s.absent is not None:
        return _hold(s, s.absent, now)
    return _get(s, now)


def _get(s: ClaimSnapshot, now: datetime) -> Step:
    assert s.pool is not None
    want, policy = s.claim.wanted, s.pool.spec.claim_policy
    if why := refused(want, s.pool.template, policy.allowed_overrides, s.pool.placements):
        return _fail(s, Failure("OverrideNotAllowed", why), now)
    if s.trouble is not None and s.trouble.final:
        return _fail(s, s.trouble, now)
    if s.over_limit is not None:
        return _fail(s, s.over_limit, now) if s.on_empty == "Fail" else _hold(s, s.over_limit, now)
    if why := mismatch(want, s.pool.template):
        return _make(s, Failure("OverrideMismatch", why), now)
    if s.trouble is not None and s.trouble.reason == "TakeRefused":
        return _hold(s, s.trouble, now)
    if s.candidate is not None:
        return ReserveVM(s.candidate)
    if want.placement:
        return _make(s, Failure("OverrideMismatch", f"no machine is ready in placement {want.placement}"), now)
    empty = "no machine of the pool is ready" if s.place <= 1 else "machines that are ready go to claims that wait"
    match s.on_empty:
        case "Fail":
            return _fail(s, Failure("NoCapacity", empty), now)
        case "Queue":
            return _queue(s, now)
        case _:
            return _make(s, Failure("PoolEmpty", empty), now)


def _queue(s: ClaimSnapshot, now: datetime) -> Step:
    if not s.place:
        return JoinWaitQueue()
    first, fresh = s.claim.status.phase != "Queued", status.queued(s, now)
    # The further back, the less often its place is written: a line of a thousand moves on with every machine.
    pause = min(max(2.0, float(s.place)), max(60.0, s.waiting / LOOKS_PER_SECOND))
    placed = _since(s.marks.placed, now)
    if first or (fresh != s.claim.status and placed >= pause):
        return UpdateStatus(fresh, ClaimEvent("ClaimQueued", f"number {s.place} in line") if first else None)
    left = pause - placed if fresh != s.claim.status else pause
    return Requeue(min(max(0.05, left), _seconds(s.bind_by, now)))


def _make(s: ClaimSnapshot, why: Failure, now: datetime) -> Step:
    assert s.pool is not None
    if (kept := _paused(s)) is None and s.full:
        kept = Failure("PoolFull", f"the pool has its maxTotal of {s.pool.spec.max_total} machines")
    if kept is not None:
        kept = Failure(kept.reason, f"{why.message}, and {kept.message}")
        return _fail(s, kept, now) if s.on_empty == "Fail" else _hold(s, kept, now)
    if s.trouble is not None:
        return _hold(s, s.trouble, now, phase="Allocating")
    return CreateVM(s.pool, machine_name(s.claim.name, s.claim.uid, s.claim.status.attempts), why.reason, why.message)


def _paused(s: ClaimSnapshot) -> Failure | None:
    """Why no machine is made, neither for the claim nor by the pool."""
    if s.pool is None or not s.pool.spec.paused:
        return None
    return Failure("PoolPaused", f"warm pool {s.pool.name} is paused, so that none is made")


def machine_name(claim: str, uid: str, attempt: int) -> str:
    """Follows from the claim's UID, so that to ask twice makes one; another attempt is another machine."""
    digest = hashlib.sha256(f"{uid}/{attempt}".encode()).hexdigest()[:8]
    return f"{claim[:54].rstrip('-.')}-{digest}"


def _late(s: ClaimSnapshot) -> Failure:
    waited = f"no machine was bound before {s.bind_by:%H:%M:%S} UTC"
    held = s.absent or s.over_limit or s.trouble or _paused(s)
    if held is not None:
        return Failure(held.reason, f"{waited}: {held.message}")
    return Failure("BindTimeout", f"{waited}, it was number {s.place} in line" if s.place else waited)


def _hold(s: ClaimSnapshot, why: Failure, now: datetime, phase: str = "Pending") -> Step:
    fresh = status.held(s, why, now, phase)
    if fresh != s.claim.status:
        return UpdateStatus(fresh, ClaimEvent(why.reason, why.message, "Warning"))
    return Requeue(min(HELD_SECONDS, _seconds(s.bind_by, now)))


def _fail(s: ClaimSnapshot, why: Failure, now: datetime) -> Step:
    return UpdateStatus(status.failed(s, why, now), ClaimEvent(why.reason, why.message, "Warning"))


# It has one


def _serve(s: ClaimSnapshot, m: WarmVM, now: datetime) -> Step:
    """What runs and is well is the claim's and Ready in one write. To be asked how it is changes nothing in a machine,
    so it may happen before; whatever is done to one, or inside it, has to wait until it is bound."""
    if not _at_hand(s, m):
        return _bind(s, m, now)
    if s.health is None:
        return CheckHealth(m)
    if s.health.verdict != "Healthy":  # it may take a while: whose it is, is said before
        return _bind(s, m, now)
    fresh = status.served(s, m, now)
    return UpdateStatus(fresh, status.news(s, fresh, m, now))


def _at_hand(s: ClaimSnapshot, m: WarmVM) -> bool:
    """Whether there is nothing to be done to it. To check an instance of EC2 launches its claim's application."""
    warm = status.launch(s, m)[0] == "Warm"
    return warm and s.pool is not None and s.pool.spec.ec2 is None and not wished(s.claim.spec.personalization)


def _bind(s: ClaimSnapshot, m: WarmVM, now: datetime) -> Step:
    """The second compare-and-swap."""
    launch, reason = status.launch(s, m)
    fresh, said = status.bound(s, m, launch, reason, now), f"{m.name} ({launch})"
    if launch == "Warm":  # that it is Ready is said in a moment: an Event costs as much as all the claim's own writes
        return UpdateStatus(fresh)
    return UpdateStatus(fresh, ClaimEvent("ColdStart", said) if launch == "Cold" else ClaimEvent("ClaimBound", said))


def _bound(s: ClaimSnapshot, now: datetime) -> Step:
    if s.others:
        return _step_back(s.others[0])
    m = s.mine
    if m is None:
        return _lost(s, now)
    if m.state is WarmState.IN_USE and m.owned_by(s.claim.uid):
        return _in_use(s, m, now)
    if m.state is WarmState.IN_USE:  # somebody has written its owner references
        return HandOverVM(m)
    if m.state is WarmState.ALLOCATING and s.claim.status.ready_at:
        return HandOverVM(m)  # its user may be in it already: how it is, is theirs to judge
    if m.state is not WarmState.ALLOCATING:
        return DeleteVM(m, f"its claim is bound to it, and it is {m.state.value if m.state else 'in no state'}")
    if s.health is not None and s.health.verdict != "Healthy":
        return _unwell(s, m, now)
    asleep = (m.vmi is not None and m.vmi.paused == PAUSED_BY_USER) or m.run_strategy == "Halted"
    if not m.activated and s.claim.status.launch_type != "Warm":
        return MarkActivated(m)
    if asleep and _since(s.marks.awake, now) >= AGAIN_SECONDS:
        return ActivateVM(m)
    if s.health is None:
        return CheckHealth(m)
    return PersonalizeVM(m) if _to_grant(s) else HandOverVM(m)


def _unwell(s: ClaimSnapshot, m: WarmVM, now: datetime) -> Step:
    assert s.health is not None
    waited = (now - moment(s.claim.status.bound_at)).total_seconds()
    most = float(s.pool.spec.readiness.timeout_seconds) if s.pool else 900.0
    # A check that could not be made says nothing of the machine: that may take as long as a start.
    patience = min(PATIENCE.get(s.claim.status.launch_type or "", most), most) if s.health.verdict == "Failed" else most
    if waited < patience:
        if waited >= UNTOLD_SECONDS and (fresh := status.unwell(s, m, now)) != s.claim.status:
            return UpdateStatus(fresh)
        return Requeue(min(2.0, max(0.1, waited / 4), patience - waited))
    return DeleteVM(m, f"after {waited:.0f} s: {s.health.reason}: {s.health.message}")


def _step_back(m: WarmVM) -> Step:
    """A machine that a race has left behind: another one is the claim's. It would do no harm to have it Ready again if
    nobody has touched it, and what is lost is one warm machine in a race of two leaders; but "a machine never has two
    claims" can be seen from outside, "nobody has touched it" can not."""
    return DeleteVM(m, "its claim has another machine")


def _lost(s: ClaimSnapshot, now: datetime) -> Step:
    if not s.certain:
        return FindVMs()
    if s.claim.status.ready_at:
        return _fail(s, Failure("MachineLost", "its machine was deleted, and not by us"), now)
    why = s.ended or Failure("ActivationFailed", "its machine was deleted before it was handed over")
    if s.claim.status.attempts >= MOST_ATTEMPTS:
        return _fail(s, why, now)
    return UpdateStatus(status.again(s, why, now), ClaimEvent(why.reason, f"{why.message}; one more try", "Warning"))


def _to_grant(s: ClaimSnapshot) -> bool:
    return wished(s.claim.spec.personalization) and s.refused is None


def _in_use(s: ClaimSnapshot, m: WarmVM, now: datetime) -> Step:
    if not s.claim.status.ready_at and _to_grant(s):  # who did it was killed before it could be said
        return PersonalizeVM(m)
    fresh = status.in_use(s, m, now)
    if fresh != s.claim.status:
        return UpdateStatus(fresh, status.news(s, fresh, m, now))
    return Requeue(next_moment(s, now))


def _since(mark: datetime | None, now: datetime) -> float:
    """For ever where there is none, or where the clock was set back since: nobody waits for that hour to come again."""
    return (now - mark).total_seconds() if mark is not None and mark <= now else inf


def _seconds(then: datetime, now: datetime) -> float:
    return max(0.05, (then - now) / timedelta(seconds=1))
