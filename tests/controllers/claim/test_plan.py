"""The next step of a claim, from what is known of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controllers.claim.plan import machine_name, plan
from controllers.claim.snapshot import ClaimSnapshot, Failure, Timeline, text
from controllers.claim.steps import (
    ActivateVM,
    CheckHealth,
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
from controllers.warmpool.backends import HEALTHY, Health
from controllers.warmpool.vmi import PAUSED_BY_USER
from kinds.warm_states import WarmState
from tests.controllers.claim.builders import CLAIM_UID, a_claim, bound, state, taken
from tests.controllers.warmpool.builders import NOW, a_pool, a_vm, a_vmi, ago

READY = a_vm("m")
SICK = Health("Failed", "NotReady", "it is not")
BLIND = Health("Unable", "NodeNotReady", "nobody answers")
PAUSED = a_vmi(name="web-m", owner="m", paused=PAUSED_BY_USER)
QUEUE = a_pool(claimPolicy={"onEmpty": "Queue"})
FAIL = a_pool(claimPolicy={"onEmpty": "Fail"})
STILL = a_pool(paused=True)
WISH = {"labels": {"team": "blue"}}
SERVED = bound("m", phase="Ready", readyAt=ago(1))
SERVED["conditions"] = [{"type": "Bound", "status": "True", "reason": "MachineBound", "message": ""}]
"""the status of a claim that was handed its machine in one write"""


def said(step: Step) -> tuple[str, str]:
    """The phase that is written, and the reason in its condition Bound."""
    assert isinstance(step, UpdateStatus), step
    return step.status.phase, next((c.reason for c in step.status.conditions if c.type == "Bound"), "")


def kind(step: Step) -> Any:
    match step:
        case UpdateStatus():
            return said(step)
        case ReserveVM(m) | MarkActivated(m) | ActivateVM(m) | CheckHealth(m) | PersonalizeVM(m) | HandOverVM(m):
            return type(step), m.uid
        case DeleteVM(m, _):
            return DeleteVM, m.uid
        case CreateVM():
            return CreateVM, step.reason
    return type(step)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        # No machine yet
        pytest.param(state(candidate=READY), (ReserveVM, "m"), id="a machine is ready"),
        pytest.param(state(candidate=READY, certain=False), FindVMs, id="another may be its own already"),
        pytest.param(state(), (CreateVM, "PoolEmpty"), id="none is ready"),
        pytest.param(state(pool=FAIL), ("Failed", "NoCapacity"), id="none is ready, and it is not to wait"),
        pytest.param(state(pool=QUEUE), JoinWaitQueue, id="none is ready, and it is to wait"),
        pytest.param(state(a_claim(onEmpty="Fail"), pool=QUEUE), ("Failed", "NoCapacity"), id="a claim's wish wins"),
        pytest.param(state(pool=QUEUE, place=3), ("Queued", "Queued"), id="its place in line is said"),
        pytest.param(state(full=True), ("Pending", "PoolFull"), id="the pool may have no more"),
        pytest.param(state(full=True, candidate=READY), (ReserveVM, "m"), id="a full pool has ready machines"),
        pytest.param(state(pool=FAIL, full=True), ("Failed", "NoCapacity"), id="and no time to wait for less"),
        pytest.param(state(pool=STILL), ("Pending", "PoolPaused"), id="a paused pool makes none"),
        pytest.param(state(pool=STILL, candidate=READY), (ReserveVM, "m"), id="and gives what is there"),
        pytest.param(
            state(a_claim(overrides={"instancetype": "large"}), pool=STILL, candidate=READY),
            ("Pending", "PoolPaused"),
            id="nor one that is otherwise",
        ),
        pytest.param(
            state(a_claim(overrides={"instancetype": "large"}, onEmpty="Fail"), pool=STILL),
            ("Failed", "PoolPaused"),
            id="and who is not to wait is told so",
        ),
        pytest.param(state(a_claim(onEmpty="Queue"), pool=STILL), JoinWaitQueue, id="who waits in line waits there"),
        pytest.param(
            state(candidate=READY, over_limit=Failure("QuotaExceeded", "")),
            ("Pending", "QuotaExceeded"),
            id="enough is enough, whatever is ready",
        ),
        pytest.param(
            state(pool=FAIL, over_limit=Failure("QuotaExceeded", "")), ("Failed", "QuotaExceeded"), id="and not to wait"
        ),
        pytest.param(
            state(trouble=Failure("CreateRefused", "")), ("Allocating", "CreateRefused"), id="none could be made now"
        ),
        pytest.param(
            state(trouble=Failure("CreateRefused", "", True)), ("Failed", "CreateRefused"), id="none ever can be made"
        ),
        pytest.param(
            state(trouble=Failure("CreateRefused", ""), candidate=READY),
            (ReserveVM, "m"),
            id="but one has become ready",
        ),
        pytest.param(
            state(trouble=Failure("TakeRefused", ""), candidate=READY), ("Pending", "TakeRefused"), id="one was refused"
        ),
        # No pool
        pytest.param(state(absent=Failure("PoolNotFound", "")), ("Pending", "PoolNotFound"), id="its pool may come"),
        pytest.param(
            state(a_claim(creationTimestamp=ago(11)), absent=Failure("PoolNotFound", "")),
            ("Failed", "PoolNotFound"),
            id="its pool did not come",
        ),
        pytest.param(
            state(
                a_claim(creationTimestamp=ago(11), bindTimeoutSeconds=60),
                absent=Failure("NoDefaultPool", ""),
            ),
            ("Pending", "NoDefaultPool"),
            id="who says how long waits so long",
        ),
        # Overrides
        pytest.param(
            state(a_claim(overrides={"instancetype": "large"}), candidate=READY),
            (CreateVM, "OverrideMismatch"),
            id="a ready machine that is otherwise is not handed out",
        ),
        pytest.param(
            state(a_claim(annotations={"poolhouse.dev/instance-type": "large"}), candidate=READY, pool=QUEUE),
            (CreateVM, "OverrideMismatch"),
            id="nor by annotation, nor where it could wait",
        ),
        pytest.param(
            state(
                a_claim(overrides={"instancetype": "large"}), pool=a_pool(claimPolicy={"allowedOverrides": ["image"]})
            ),
            ("Failed", "OverrideNotAllowed"),
            id="an override that is not allowed",
        ),
        pytest.param(
            state(a_claim(overrides={"placement": "east"}), pool=a_pool(placements=[{"name": "east"}])),
            (CreateVM, "OverrideMismatch"),
            id="no machine is ready in the placement",
        ),
        pytest.param(
            state(
                a_claim(overrides={"placement": "east"}), pool=a_pool(placements=[{"name": "east"}]), candidate=READY
            ),
            (ReserveVM, "m"),
            id="one is ready in the placement",
        ),
        # Too late
        pytest.param(
            state(a_claim(creationTimestamp=ago(320)), candidate=READY),
            (ReserveVM, "m"),
            id="late, and one is ready all the same",
        ),
        pytest.param(
            state(a_claim(creationTimestamp=ago(331)), candidate=READY), ("Failed", "BindTimeout"), id="far too late"
        ),
        pytest.param(state(a_claim(creationTimestamp=ago(301))), ("Failed", "BindTimeout"), id="late: none is made"),
        pytest.param(
            state(a_claim(creationTimestamp=ago(301), overrides={"instancetype": "large"}), candidate=READY),
            ("Failed", "BindTimeout"),
            id="late, and what is ready is not what is wanted",
        ),
        pytest.param(
            state(a_claim(creationTimestamp=ago(20), bindTimeoutSeconds=10), pool=QUEUE, place=2),
            ("Failed", "BindTimeout"),
            id="late by its own measure",
        ),
        pytest.param(
            state(a_claim(creationTimestamp=ago(301)), over_limit=Failure("QuotaExceeded", "")),
            ("Failed", "QuotaExceeded"),
            id="late, and why",
        ),
        pytest.param(
            state(a_claim(creationTimestamp=ago(301), onEmpty="Queue"), pool=STILL, place=1),
            ("Failed", "PoolPaused"),
            id="late, since the pool is paused",
        ),
        # The first compare-and-swap was won
        pytest.param(state(None, taken()), (CheckHealth, "m"), id="it runs: it is checked before anything is said"),
        pytest.param(
            state(None, taken(), health=HEALTHY), ("Ready", "MachineBound"), id="well: bound and Ready in one"
        ),
        pytest.param(
            state(None, taken(), certain=False, health=HEALTHY), ("Ready", "MachineBound"), id="after a crash too"
        ),
        pytest.param(state(None, taken(), health=SICK), ("Bound", "MachineBound"), id="not well yet: it is its own"),
        pytest.param(state(None, taken(), health=BLIND), ("Bound", "MachineBound"), id="nor seen to be well"),
        pytest.param(
            state(None, taken(vmi=PAUSED, standby="Paused")),
            ("Bound", "MachineBound"),
            id="what must be woken is written down before",
        ),
        pytest.param(
            state(None, taken(standby="Running", activated=True)),
            ("Bound", "MachineBound"),
            id="what was made for it too",
        ),
        pytest.param(
            state(a_claim(personalization={"labels": {"team": "blue"}}), taken()),
            ("Bound", "MachineBound"),
            id="what is made its claimant's own too",
        ),
        pytest.param(
            state(None, taken(), pool=a_pool(template=None, ec2={"imageID": "ami-1"})),
            ("Bound", "MachineBound"),
            id="and an instance, of which the check launches something",
        ),
        pytest.param(
            state(None, taken("young", created_at=ago(1)), taken("old", created_at=ago(9)), health=HEALTHY),
            ("Ready", "MachineBound"),
            id="two: one is written down before the other goes",
        ),
        pytest.param(
            state(None, taken("m", WarmState.IN_USE), taken("other")),
            ("Bound", "MachineBound"),
            id="what is in use is its own, though its status was lost",
        ),
        pytest.param(
            state(a_claim(status=bound("gone")), taken("m", WarmState.IN_USE)),
            ("Bound", "MachineBound"),
            id="or somebody has written another one into it",
        ),
        pytest.param(state(None, taken("m", WarmState.READY)), (DeleteVM, "m"), id="ready with a claim: nobody's"),
        pytest.param(state(None, taken(deleting=True), candidate=READY), (ReserveVM, "m"), id="one that goes is none"),
        # The second one too
        pytest.param(state(a_claim(status=bound("m")), taken()), (CheckHealth, "m"), id="it runs: it is checked"),
        pytest.param(state(a_claim(status=bound("m")), taken(), health=HEALTHY), (HandOverVM, "m"), id="it is well"),
        pytest.param(
            state(a_claim(status=bound("m"), personalization=WISH), taken(), health=HEALTHY),
            (PersonalizeVM, "m"),
            id="well, and to be made its claimant's own before it is handed over",
        ),
        pytest.param(
            state(a_claim(status=bound("m"), personalization=WISH), taken(), health=HEALTHY, refused=()),
            (HandOverVM, "m"),
            id="which was done",
        ),
        pytest.param(
            state(
                a_claim(status=bound("m"), personalization=WISH),
                taken(),
                health=HEALTHY,
                refused=(Failure("GuestNotTold", "it has no agent"),),
            ),
            (HandOverVM, "m"),
            id="or could not be done",
        ),
        pytest.param(
            state(a_claim(status=bound("m"), personalization=WISH), taken("m", WarmState.IN_USE)),
            (PersonalizeVM, "m"),
            id="killed between the hand-over and the word of it: granted again, to know what to say",
        ),
        pytest.param(
            state(a_claim(status=bound("m"), personalization=WISH), taken("m", WarmState.IN_USE), refused=()),
            ("Ready", ""),
            id="and said",
        ),
        pytest.param(state(a_claim(status=bound("m")), taken(), health=SICK), Requeue, id="not well yet"),
        pytest.param(
            state(a_claim(status=bound("m", seconds=20)), taken(), health=SICK), (DeleteVM, "m"), id="not well in time"
        ),
        pytest.param(
            state(a_claim(status=bound("m", seconds=20)), taken(), health=BLIND),
            ("Bound", ""),
            id="it may be well",
        ),
        pytest.param(
            state(a_claim(status=bound("m", seconds=1000)), taken(), health=BLIND),
            (DeleteVM, "m"),
            id="but not for ever",
        ),
        pytest.param(
            state(a_claim(status=bound("m", "Resumed")), taken(vmi=PAUSED, standby="Paused")),
            (MarkActivated, "m"),
            id="before it is woken it is marked",
        ),
        pytest.param(
            state(a_claim(status=bound("m", "Resumed")), taken(vmi=PAUSED, standby="Paused", activated=True)),
            (ActivateVM, "m"),
            id="then woken",
        ),
        pytest.param(
            state(
                a_claim(status=bound("m", "Resumed")),
                taken(vmi=PAUSED, standby="Paused", activated=True),
                marks=Timeline(awake=NOW),
            ),
            (CheckHealth, "m"),
            id="and not woken twice at once",
        ),
        pytest.param(
            state(
                a_claim(status=bound("m", "Started")),
                taken(vmi=None, run_strategy="Halted", standby="Stopped", activated=True),
                marks=Timeline(awake=NOW - timedelta(seconds=2)),
            ),
            (ActivateVM, "m"),
            id="but once more if it did not hear",
        ),
        pytest.param(
            state(
                a_claim(status=bound("m", "Started")),
                taken(vmi=None, run_strategy="Halted", standby="Stopped", activated=True),
                marks=Timeline(awake=NOW + timedelta(hours=1)),
            ),
            (ActivateVM, "m"),
            id="also where the clock was set back since",
        ),
        pytest.param(
            state(a_claim(status=bound("m", "Started", seconds=100)), taken(activated=True), health=SICK),
            ("Bound", ""),
            id="one that boots has as long as the pool gives it, and says what it waits for",
        ),
        pytest.param(
            state(a_claim(status=SERVED), taken("m", WarmState.IN_USE, owner=a_pool().owner)),
            (HandOverVM, "m"),
            id="somebody wrote its owner references",
        ),
        pytest.param(
            state(a_claim(status=bound("m")), taken("m"), taken("other")),
            (DeleteVM, "other"),
            id="one too many is ended",
        ),
        # It is Ready, and its machine does not say so yet: killed between the two writes
        pytest.param(state(a_claim(status=SERVED), taken()), (HandOverVM, "m"), id="served: the label follows"),
        pytest.param(
            state(a_claim(status=SERVED), taken(vmi=None), health=SICK, certain=False),
            (HandOverVM, "m"),
            id="also where it fails now: its user may be in it",
        ),
        pytest.param(
            state(a_claim(status=SERVED), taken("m"), taken("other")), (DeleteVM, "other"), id="served with one of two"
        ),
        pytest.param(
            state(a_claim(status=SERVED), certain=True), ("Failed", "MachineLost"), id="served, and it is gone"
        ),
        pytest.param(
            state(a_claim(status=SERVED, release=True), taken()), ("Releasing", "MachineBound"), id="served, and over"
        ),
        # Its machine is lost before it is handed over
        pytest.param(state(a_claim(status=bound("m")), certain=False), FindVMs, id="not seen: it is looked for"),
        pytest.param(state(a_claim(status=bound("m"))), ("Pending", "ActivationFailed"), id="one more try"),
        pytest.param(
            state(a_claim(status=bound("m")), taken(deleting=True)), ("Pending", "ActivationFailed"), id="going"
        ),
        pytest.param(state(a_claim(status=bound("m", attempts=2))), ("Failed", "ActivationFailed"), id="no third try"),
        pytest.param(
            state(a_claim(status={"phase": "Pending", "attempts": 2}), candidate=READY),
            ("Failed", "ActivationFailed"),
            id="nor after a crash",
        ),
        # In use
        pytest.param(
            state(a_claim(status=bound("m")), taken("m", WarmState.IN_USE, activated=True)),
            ("Ready", ""),
            id="handed over",
        ),
        pytest.param(
            state(a_claim(status=bound("m", phase="Ready", readyAt=ago(5)))),
            ("Failed", "MachineLost"),
            id="its machine is gone: it gets no other behind its user's back",
        ),
        # It ends
        pytest.param(
            state(a_claim(status=bound("m"), release=True), taken("m", WarmState.IN_USE)),
            ("Releasing", ""),
            id="released",
        ),
        pytest.param(
            state(a_claim(status=bound("m", phase="Releasing"), release=True), taken("m", WarmState.IN_USE)),
            (DeleteVM, "m"),
            id="its machine is deleted",
        ),
        pytest.param(
            state(a_claim(status=bound("m", phase="Releasing"), release=True), taken(deleting=True)),
            Requeue,
            id="until it is gone",
        ),
        pytest.param(
            state(a_claim(status=bound("m", phase="Releasing"), release=True)),
            ("Released", "Released"),
            id="gone",
        ),
        pytest.param(
            state(a_claim(status=bound("m", seconds=61), ttlSeconds=60), taken("m", WarmState.IN_USE)),
            ("Expired", "Expired"),
            id="its time is over",
        ),
        pytest.param(
            state(a_claim(status=bound("m", "Resumed", seconds=61), ttlSeconds=60), taken(vmi=PAUSED)),
            ("Expired", "Expired"),
            id="also while it wakes up",
        ),
        *(
            pytest.param(
                state(a_claim(status=bound("m", phase=phase)), taken()), (DeleteVM, "m"), id=f"{phase}: nothing"
            )
            for phase in ("Failed", "Expired", "Released")
        ),
        pytest.param(state(a_claim(status=bound("m", phase="Failed"))), Requeue, id="over is over"),
        pytest.param(
            state(a_claim(status=bound("m"), deletionTimestamp=ago(1)), taken()),
            (DeleteVM, "m"),
            id="its claim is deleted",
        ),
        pytest.param(
            state(a_claim(deletionTimestamp=ago(1)), candidate=READY), Requeue, id="a claim that goes gets nothing"
        ),
    ],
)
def test_next_step(found: ClaimSnapshot, expected: Any) -> None:
    assert kind(plan(found, NOW)) == expected


@pytest.mark.parametrize(
    ("seconds", "health", "ready"),
    [
        pytest.param(4, SICK, None, id="most are well a moment later"),
        pytest.param(6, SICK, "NotReady: web-m: it is not", id="what is not is told"),
        pytest.param(6, BLIND, "NodeNotReady: web-m: nobody answers", id="also what can't be checked"),
    ],
)
def test_while_it_is_waited_for_it_is_said_why(seconds: float, health: Health, ready: str | None) -> None:
    """Once for each reason: what a check says of it may be different with every try."""
    activating = {"type": "Ready", "status": "False", "reason": "Activating", "message": "web-m is not handed over yet"}
    c = a_claim(status=bound("m", "Started", seconds=seconds, conditions=[activating]))
    step = plan(state(c, taken(activated=True), health=health), NOW)
    if ready is None:
        assert isinstance(step, Requeue)
        return
    assert isinstance(step, UpdateStatus)
    assert step.news is None
    [told] = [c for c in step.status.conditions if c.type == "Ready"]
    assert (told.status, f"{told.reason}: {told.message}") == ("False", ready)
    again = state(replace(c, status=step.status), taken(activated=True), health=replace(health, message="still not"))
    assert isinstance(plan(again, NOW), Requeue)
    other = state(replace(c, status=step.status), taken(activated=True), health=Health("Failed", "NoAnswer", "none"))
    assert isinstance(plan(other, NOW), UpdateStatus)


def test_a_place_in_line_is_not_written_with_every_machine() -> None:
    """Or a line of a thousand would write a thousand statuses for each that is served."""
    before = plan(state(pool=QUEUE, place=30), NOW)
    assert isinstance(before, UpdateStatus)
    c = replace(a_claim(), status=before.status)
    moved = state(c, pool=QUEUE, place=29, marks=Timeline(placed=NOW - timedelta(seconds=3)))
    assert plan(moved, NOW) == Requeue(26)
    assert isinstance(plan(moved, NOW + timedelta(seconds=27)), UpdateStatus)
    later = replace(moved, marks=Timeline(placed=NOW + timedelta(hours=1)))
    assert isinstance(plan(later, NOW), UpdateStatus), "the clock was set back since"
    still = state(c, pool=QUEUE, place=30, marks=Timeline(placed=NOW - timedelta(seconds=60)))
    assert plan(still, NOW) == Requeue(30), "and nothing at rest, nor is it looked at all the time"


@pytest.mark.parametrize(
    ("place", "waiting", "seconds"),
    [
        pytest.param(1, 10_000, 2, id="the next one is told at once"),
        pytest.param(50, 100, 50, id="the further back, the later"),
        pytest.param(2_000, 2_000, 60, id="at most a minute"),
        pytest.param(10_000, 10_000, 200, id="but a long line is not looked at more often than a shorter one"),
        pytest.param(100, 10_000, 100, id="those in front of it are"),
        pytest.param(100_000, 100_000, 290, id="and nobody is looked at only when it is too late"),
    ],
)
def test_what_a_line_costs_does_not_grow_with_it(place: int, waiting: int, seconds: float) -> None:
    found = state(a_claim(bindTimeoutSeconds=292), pool=QUEUE, place=place, waiting=waiting)
    said = plan(found, NOW)
    assert isinstance(said, UpdateStatus)
    assert plan(replace(found, claim=replace(found.claim, status=said.status)), NOW) == Requeue(seconds)


def test_a_running_machine_is_handed_over_with_two_writes_before_it_is_ready_and_one_after() -> None:
    """And whoever is killed between any two of them leaves what the next one goes on from: each step is decided from
    what is written down, and nothing else."""
    found = state(candidate=READY)
    assert kind(plan(found, NOW)) == (ReserveVM, "m")
    found = replace(found, candidate=None, machines=(taken(),))
    assert kind(plan(found, NOW)) == (CheckHealth, "m")
    step = plan(replace(found, health=HEALTHY), NOW)
    assert kind(step) == ("Ready", "MachineBound")
    assert isinstance(step, UpdateStatus)
    assert step.status.vm_ref is not None
    assert {c.type: c.status for c in step.status.conditions} == {"Bound": "True", "Ready": "True"}
    assert (step.status.addresses, step.status.attempts, step.status.launch_type) == (("10.0.0.1",), 1, "Warm")
    found = replace(found, claim=replace(found.claim, status=step.status))
    assert kind(plan(found, NOW)) == (HandOverVM, "m")
    found = replace(found, machines=(taken("m", WarmState.IN_USE),))
    assert plan(found, NOW + timedelta(seconds=1)) == Requeue(None), "nothing more is written"


def test_timings_add_up() -> None:
    marks = Timeline(
        seen=NOW, popped=NOW + timedelta(milliseconds=2), taken=NOW + timedelta(milliseconds=9), bound=None, awake=None
    )
    step = plan(state(None, taken(), health=HEALTHY, marks=marks), NOW + timedelta(milliseconds=10))
    assert isinstance(step, UpdateStatus)
    timings = step.status.timings
    assert timings is not None
    said = (timings.queued_ms, timings.bind_ms, timings.activate_ms, timings.check_ms)
    assert said == (2, 7, 0, 1)
    assert timings.total_ms == 10


def test_what_is_said_twice_is_written_once() -> None:
    for found in (
        state(full=True),
        state(absent=Failure("PoolNotFound", "no")),
        state(a_claim(status=bound("m")), taken("m", WarmState.IN_USE, activated=True)),
    ):
        step = plan(found, NOW)
        assert isinstance(step, UpdateStatus)
        again = replace(found, claim=replace(found.claim, status=step.status))
        assert isinstance(plan(again, NOW + timedelta(seconds=1)), Requeue)


def test_the_name_of_a_machine_follows_from_the_claim() -> None:
    assert machine_name("mine", "u", 0) == machine_name("mine", "u", 0)
    assert machine_name("mine", "u", 0) != machine_name("mine", "u", 1)
    assert machine_name("mine", "u", 0) != machine_name("mine", "v", 0)
    assert len(machine_name("x" * 63, CLAIM_UID, 1)) <= 63


@pytest.mark.parametrize(
    ("uid", "refers"),
    [pytest.param("i-0a1b", "instanceRef", id="an instance"), pytest.param("0a1b-22", "vmRef", id="a VM")],
)
def test_a_machine_whose_pool_is_gone_is_referred_to_as_what_it_is(uid: str, refers: str) -> None:
    """The pool can be deleted between the two compare-and-swaps."""
    step = plan(state(None, taken(uid), absent=None), NOW)
    assert isinstance(step, UpdateStatus)
    assert {"instanceRef", "vmRef"} & step.status.json().keys() == {refers}


def test_a_second_attempt_has_as_long_as_the_first() -> None:
    """A machine that took its 15 minutes to fail does not make its claim late."""
    condition = {"type": "Bound", "status": "False", "reason": "ActivationFailed", "lastTransitionTime": text(NOW)}
    c = a_claim(creationTimestamp=ago(3600), status={"phase": "Pending", "attempts": 1, "conditions": [condition]})
    assert kind(plan(state(c, candidate=READY), NOW)) == (ReserveVM, "m")
