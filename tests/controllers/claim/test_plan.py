"""The next step of a claim, from what is known of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from apimachinery.timestamps import format_micro_time
from controllers.claim.plan import plan, vm_name
from controllers.claim.snapshot import ClaimSnapshot, Failure, Timeline
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
from controllers.warmpool.warm_vm import PAUSED_BY_USER
from kinds.warm_states import WarmState
from tests.controllers.claim.builders import CLAIM_UID, a_claim, bound_status, claimed_vm, snapshot
from tests.controllers.warmpool.builders import NOW, a_pool, a_vm, a_vmi, ago

READY = a_vm("m")
SICK = Health("Failed", "NotReady", "it is not")
BLIND = Health("Unable", "NodeNotReady", "nobody answers")
PAUSED = a_vmi(name="web-m", owner_uid="m", paused=PAUSED_BY_USER)
QUEUE = a_pool(claimPolicy={"onEmpty": "Queue"})
FAIL = a_pool(claimPolicy={"onEmpty": "Fail"})
STILL = a_pool(paused=True)
WISH = {"labels": {"team": "blue"}}
SERVED = bound_status("m", phase="Ready", readyAt=ago(1))
SERVED["conditions"] = [{"type": "Bound", "status": "True", "reason": "VMBound", "message": ""}]
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
        pytest.param(snapshot(candidate=READY), (ReserveVM, "m"), id="a machine is ready"),
        pytest.param(snapshot(candidate=READY, vms_known=False), FindVMs, id="another may be its own already"),
        pytest.param(snapshot(), (CreateVM, "PoolEmpty"), id="none is ready"),
        pytest.param(snapshot(pool=FAIL), ("Failed", "NoCapacity"), id="none is ready, and it is not to wait"),
        pytest.param(snapshot(pool=QUEUE), JoinWaitQueue, id="none is ready, and it is to wait"),
        pytest.param(snapshot(a_claim(onEmpty="Fail"), pool=QUEUE), ("Failed", "NoCapacity"), id="a claim's wish wins"),
        pytest.param(snapshot(pool=QUEUE, position=3), ("Queued", "Queued"), id="its place in line is said"),
        pytest.param(snapshot(pool_full=True), ("Pending", "MaxTotalReached"), id="the pool may have no more"),
        pytest.param(snapshot(pool_full=True, candidate=READY), (ReserveVM, "m"), id="a full pool has ready machines"),
        pytest.param(snapshot(pool=FAIL, pool_full=True), ("Failed", "NoCapacity"), id="and no time to wait for less"),
        pytest.param(snapshot(pool=STILL), ("Pending", "PoolPaused"), id="a paused pool makes none"),
        pytest.param(snapshot(pool=STILL, candidate=READY), (ReserveVM, "m"), id="and gives what is there"),
        pytest.param(
            snapshot(a_claim(overrides={"instancetype": "large"}), pool=STILL, candidate=READY),
            ("Pending", "PoolPaused"),
            id="nor one that is otherwise",
        ),
        pytest.param(
            snapshot(a_claim(overrides={"instancetype": "large"}, onEmpty="Fail"), pool=STILL),
            ("Failed", "PoolPaused"),
            id="and who is not to wait is told so",
        ),
        pytest.param(snapshot(a_claim(onEmpty="Queue"), pool=STILL), JoinWaitQueue, id="who waits in line waits there"),
        pytest.param(
            snapshot(candidate=READY, over_quota=Failure("QuotaExceeded", "")),
            ("Pending", "QuotaExceeded"),
            id="enough is enough, whatever is ready",
        ),
        pytest.param(
            snapshot(pool=FAIL, over_quota=Failure("QuotaExceeded", "")),
            ("Failed", "QuotaExceeded"),
            id="and not to wait",
        ),
        pytest.param(
            snapshot(failure=Failure("FailedCreate", "")), ("Allocating", "FailedCreate"), id="none could be made now"
        ),
        pytest.param(
            snapshot(failure=Failure("FailedCreate", "", True)), ("Failed", "FailedCreate"), id="none ever can be made"
        ),
        pytest.param(
            snapshot(failure=Failure("FailedCreate", ""), candidate=READY),
            (ReserveVM, "m"),
            id="but one has become ready",
        ),
        pytest.param(
            snapshot(failure=Failure("FailedReserve", ""), candidate=READY),
            ("Pending", "FailedReserve"),
            id="one was refused",
        ),
        # No pool
        pytest.param(
            snapshot(no_pool=Failure("PoolNotFound", "")), ("Pending", "PoolNotFound"), id="its pool may come"
        ),
        pytest.param(
            snapshot(a_claim(creationTimestamp=ago(11)), no_pool=Failure("PoolNotFound", "")),
            ("Failed", "PoolNotFound"),
            id="its pool did not come",
        ),
        pytest.param(
            snapshot(
                a_claim(creationTimestamp=ago(11), bindTimeoutSeconds=60),
                no_pool=Failure("NoDefaultPool", ""),
            ),
            ("Pending", "NoDefaultPool"),
            id="who says how long waits so long",
        ),
        # Overrides
        pytest.param(
            snapshot(a_claim(overrides={"instancetype": "large"}), candidate=READY),
            (CreateVM, "OverrideMismatch"),
            id="a ready machine that is otherwise is not handed out",
        ),
        pytest.param(
            snapshot(a_claim(annotations={"poolhouse.dev/instance-type": "large"}), candidate=READY, pool=QUEUE),
            (CreateVM, "OverrideMismatch"),
            id="nor by annotation, nor where it could wait",
        ),
        pytest.param(
            snapshot(
                a_claim(overrides={"instancetype": "large"}), pool=a_pool(claimPolicy={"allowedOverrides": ["image"]})
            ),
            ("Failed", "OverrideNotAllowed"),
            id="an override that is not allowed",
        ),
        pytest.param(
            snapshot(a_claim(overrides={"placement": "east"}), pool=a_pool(placements=[{"name": "east"}])),
            (CreateVM, "OverrideMismatch"),
            id="no machine is ready in the placement",
        ),
        pytest.param(
            snapshot(
                a_claim(overrides={"placement": "east"}), pool=a_pool(placements=[{"name": "east"}]), candidate=READY
            ),
            (ReserveVM, "m"),
            id="one is ready in the placement",
        ),
        # Too late
        pytest.param(
            snapshot(a_claim(creationTimestamp=ago(320)), candidate=READY),
            (ReserveVM, "m"),
            id="late, and one is ready all the same",
        ),
        pytest.param(
            snapshot(a_claim(creationTimestamp=ago(331)), candidate=READY), ("Failed", "BindTimeout"), id="far too late"
        ),
        pytest.param(snapshot(a_claim(creationTimestamp=ago(301))), ("Failed", "BindTimeout"), id="late: none is made"),
        pytest.param(
            snapshot(a_claim(creationTimestamp=ago(301), overrides={"instancetype": "large"}), candidate=READY),
            ("Failed", "BindTimeout"),
            id="late, and what is ready is not what is wanted",
        ),
        pytest.param(
            snapshot(a_claim(creationTimestamp=ago(20), bindTimeoutSeconds=10), pool=QUEUE, position=2),
            ("Failed", "BindTimeout"),
            id="late by its own measure",
        ),
        pytest.param(
            snapshot(a_claim(creationTimestamp=ago(301)), over_quota=Failure("QuotaExceeded", "")),
            ("Failed", "QuotaExceeded"),
            id="late, and why",
        ),
        pytest.param(
            snapshot(a_claim(creationTimestamp=ago(301), onEmpty="Queue"), pool=STILL, position=1),
            ("Failed", "PoolPaused"),
            id="late, since the pool is paused",
        ),
        # The first compare-and-swap was won
        pytest.param(
            snapshot(None, claimed_vm()), (CheckHealth, "m"), id="it runs: it is checked before anything is said"
        ),
        pytest.param(
            snapshot(None, claimed_vm(), health=HEALTHY), ("Ready", "VMBound"), id="well: bound and Ready in one"
        ),
        pytest.param(
            snapshot(None, claimed_vm(), vms_known=False, health=HEALTHY), ("Ready", "VMBound"), id="after a crash too"
        ),
        pytest.param(snapshot(None, claimed_vm(), health=SICK), ("Bound", "VMBound"), id="not well yet: it is its own"),
        pytest.param(snapshot(None, claimed_vm(), health=BLIND), ("Bound", "VMBound"), id="nor seen to be well"),
        pytest.param(
            snapshot(None, claimed_vm(vmi=PAUSED, standby="Paused")),
            ("Bound", "VMBound"),
            id="what must be woken is written down before",
        ),
        pytest.param(
            snapshot(None, claimed_vm(standby="Running", activated=True)),
            ("Bound", "VMBound"),
            id="what was made for it too",
        ),
        pytest.param(
            snapshot(a_claim(personalization={"labels": {"team": "blue"}}), claimed_vm()),
            ("Bound", "VMBound"),
            id="what is made its claimant's own too",
        ),
        pytest.param(
            snapshot(None, claimed_vm(), pool=a_pool(template=None, ec2={"imageID": "ami-1"})),
            ("Bound", "VMBound"),
            id="and an instance, of which the check launches something",
        ),
        pytest.param(
            snapshot(
                None, claimed_vm("young", created_at=ago(1)), claimed_vm("old", created_at=ago(9)), health=HEALTHY
            ),
            ("Ready", "VMBound"),
            id="two: one is written down before the other goes",
        ),
        pytest.param(
            snapshot(None, claimed_vm("m", WarmState.IN_USE), claimed_vm("other")),
            ("Bound", "VMBound"),
            id="what is in use is its own, though its status was lost",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("gone")), claimed_vm("m", WarmState.IN_USE)),
            ("Bound", "VMBound"),
            id="or somebody has written another one into it",
        ),
        pytest.param(
            snapshot(None, claimed_vm("m", WarmState.READY)), (DeleteVM, "m"), id="ready with a claim: nobody's"
        ),
        pytest.param(
            snapshot(None, claimed_vm(deleting=True), candidate=READY), (ReserveVM, "m"), id="one that goes is none"
        ),
        # The second one too
        pytest.param(
            snapshot(a_claim(status=bound_status("m")), claimed_vm()), (CheckHealth, "m"), id="it runs: it is checked"
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m")), claimed_vm(), health=HEALTHY),
            (HandOverVM, "m"),
            id="it is well",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m"), personalization=WISH), claimed_vm(), health=HEALTHY),
            (PersonalizeVM, "m"),
            id="well, and to be made its claimant's own before it is handed over",
        ),
        pytest.param(
            snapshot(
                a_claim(status=bound_status("m"), personalization=WISH),
                claimed_vm(),
                health=HEALTHY,
                not_personalized=(),
            ),
            (HandOverVM, "m"),
            id="which was done",
        ),
        pytest.param(
            snapshot(
                a_claim(status=bound_status("m"), personalization=WISH),
                claimed_vm(),
                health=HEALTHY,
                not_personalized=(Failure("AccessCredentialsNotSynchronized", "it has no agent"),),
            ),
            (HandOverVM, "m"),
            id="or could not be done",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m"), personalization=WISH), claimed_vm("m", WarmState.IN_USE)),
            (PersonalizeVM, "m"),
            id="killed between the hand-over and the word of it: granted again, to know what to say",
        ),
        pytest.param(
            snapshot(
                a_claim(status=bound_status("m"), personalization=WISH),
                claimed_vm("m", WarmState.IN_USE),
                not_personalized=(),
            ),
            ("Ready", ""),
            id="and said",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m")), claimed_vm(), health=SICK), Requeue, id="not well yet"
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", seconds=20)), claimed_vm(), health=SICK),
            (DeleteVM, "m"),
            id="not well in time",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", seconds=20)), claimed_vm(), health=BLIND),
            ("Bound", ""),
            id="it may be well",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", seconds=1000)), claimed_vm(), health=BLIND),
            (DeleteVM, "m"),
            id="but not for ever",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", "Resumed")), claimed_vm(vmi=PAUSED, standby="Paused")),
            (MarkActivated, "m"),
            id="before it is woken it is marked",
        ),
        pytest.param(
            snapshot(
                a_claim(status=bound_status("m", "Resumed")), claimed_vm(vmi=PAUSED, standby="Paused", activated=True)
            ),
            (ActivateVM, "m"),
            id="then woken",
        ),
        pytest.param(
            snapshot(
                a_claim(status=bound_status("m", "Resumed")),
                claimed_vm(vmi=PAUSED, standby="Paused", activated=True),
                timeline=Timeline(activated=NOW),
            ),
            (CheckHealth, "m"),
            id="and not woken twice at once",
        ),
        pytest.param(
            snapshot(
                a_claim(status=bound_status("m", "Started")),
                claimed_vm(vmi=None, run_strategy="Halted", standby="Stopped", activated=True),
                timeline=Timeline(activated=NOW - timedelta(seconds=2)),
            ),
            (ActivateVM, "m"),
            id="but once more if it did not hear",
        ),
        pytest.param(
            snapshot(
                a_claim(status=bound_status("m", "Started")),
                claimed_vm(vmi=None, run_strategy="Halted", standby="Stopped", activated=True),
                timeline=Timeline(activated=NOW + timedelta(hours=1)),
            ),
            (ActivateVM, "m"),
            id="also where the clock was set back since",
        ),
        pytest.param(
            snapshot(
                a_claim(status=bound_status("m", "Started", seconds=100)), claimed_vm(activated=True), health=SICK
            ),
            ("Bound", ""),
            id="one that boots has as long as the pool gives it, and says what it waits for",
        ),
        pytest.param(
            snapshot(a_claim(status=SERVED), claimed_vm("m", WarmState.IN_USE, owner=a_pool().owner)),
            (HandOverVM, "m"),
            id="somebody wrote its owner references",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m")), claimed_vm("m"), claimed_vm("other")),
            (DeleteVM, "other"),
            id="one too many is ended",
        ),
        # It is Ready, and its machine does not say so yet: killed between the two writes
        pytest.param(snapshot(a_claim(status=SERVED), claimed_vm()), (HandOverVM, "m"), id="served: the label follows"),
        pytest.param(
            snapshot(a_claim(status=SERVED), claimed_vm(vmi=None), health=SICK, vms_known=False),
            (HandOverVM, "m"),
            id="also where it fails now: its user may be in it",
        ),
        pytest.param(
            snapshot(a_claim(status=SERVED), claimed_vm("m"), claimed_vm("other")),
            (DeleteVM, "other"),
            id="served with one of two",
        ),
        pytest.param(
            snapshot(a_claim(status=SERVED), vms_known=True), ("Failed", "VMLost"), id="served, and it is gone"
        ),
        pytest.param(
            snapshot(a_claim(status=SERVED, release=True), claimed_vm()),
            ("Releasing", "VMBound"),
            id="served, and over",
        ),
        # Its machine is lost before it is handed over
        pytest.param(
            snapshot(a_claim(status=bound_status("m")), vms_known=False), FindVMs, id="not seen: it is looked for"
        ),
        pytest.param(snapshot(a_claim(status=bound_status("m"))), ("Pending", "ActivationFailed"), id="one more try"),
        pytest.param(
            snapshot(a_claim(status=bound_status("m")), claimed_vm(deleting=True)),
            ("Pending", "ActivationFailed"),
            id="going",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", attempts=2))), ("Failed", "ActivationFailed"), id="no third try"
        ),
        pytest.param(
            snapshot(a_claim(status={"phase": "Pending", "attempts": 2}), candidate=READY),
            ("Failed", "ActivationFailed"),
            id="nor after a crash",
        ),
        # In use
        pytest.param(
            snapshot(a_claim(status=bound_status("m")), claimed_vm("m", WarmState.IN_USE, activated=True)),
            ("Ready", ""),
            id="handed over",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", phase="Ready", readyAt=ago(5)))),
            ("Failed", "VMLost"),
            id="its machine is gone: it gets no other behind its user's back",
        ),
        # It ends
        pytest.param(
            snapshot(a_claim(status=bound_status("m"), release=True), claimed_vm("m", WarmState.IN_USE)),
            ("Releasing", ""),
            id="released",
        ),
        pytest.param(
            snapshot(
                a_claim(status=bound_status("m", phase="Releasing"), release=True), claimed_vm("m", WarmState.IN_USE)
            ),
            (DeleteVM, "m"),
            id="its machine is deleted",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", phase="Releasing"), release=True), claimed_vm(deleting=True)),
            Requeue,
            id="until it is gone",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", phase="Releasing"), release=True)),
            ("Released", "Released"),
            id="gone",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", seconds=61), ttlSeconds=60), claimed_vm("m", WarmState.IN_USE)),
            ("Expired", "Expired"),
            id="its time is over",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", "Resumed", seconds=61), ttlSeconds=60), claimed_vm(vmi=PAUSED)),
            ("Expired", "Expired"),
            id="also while it wakes up",
        ),
        *(
            pytest.param(
                snapshot(a_claim(status=bound_status("m", phase=phase)), claimed_vm()),
                (DeleteVM, "m"),
                id=f"{phase}: nothing",
            )
            for phase in ("Failed", "Expired", "Released")
        ),
        pytest.param(snapshot(a_claim(status=bound_status("m", phase="Failed"))), Requeue, id="over is over"),
        pytest.param(
            snapshot(a_claim(status=bound_status("m"), deletionTimestamp=ago(1)), claimed_vm()),
            (DeleteVM, "m"),
            id="its claim is deleted",
        ),
        pytest.param(
            snapshot(a_claim(deletionTimestamp=ago(1)), candidate=READY), Requeue, id="a claim that goes gets nothing"
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
    c = a_claim(status=bound_status("m", "Started", seconds=seconds, conditions=[activating]))
    step = plan(snapshot(c, claimed_vm(activated=True), health=health), NOW)
    if ready is None:
        assert isinstance(step, Requeue)
        return
    assert isinstance(step, UpdateStatus)
    assert step.event is None
    [told] = [c for c in step.status.conditions if c.type == "Ready"]
    assert (told.status, f"{told.reason}: {told.message}") == ("False", ready)
    again = snapshot(
        replace(c, status=step.status), claimed_vm(activated=True), health=replace(health, message="still not")
    )
    assert isinstance(plan(again, NOW), Requeue)
    other = snapshot(
        replace(c, status=step.status), claimed_vm(activated=True), health=Health("Failed", "NoAnswer", "none")
    )
    assert isinstance(plan(other, NOW), UpdateStatus)


def test_a_place_in_line_is_not_written_with_every_machine() -> None:
    """Or a line of a thousand would write a thousand statuses for each that is served."""
    before = plan(snapshot(pool=QUEUE, position=30), NOW)
    assert isinstance(before, UpdateStatus)
    c = replace(a_claim(), status=before.status)
    moved = snapshot(c, pool=QUEUE, position=29, timeline=Timeline(position_written=NOW - timedelta(seconds=3)))
    assert plan(moved, NOW) == Requeue(26)
    assert isinstance(plan(moved, NOW + timedelta(seconds=27)), UpdateStatus)
    later = replace(moved, timeline=Timeline(position_written=NOW + timedelta(hours=1)))
    assert isinstance(plan(later, NOW), UpdateStatus), "the clock was set back since"
    still = snapshot(c, pool=QUEUE, position=30, timeline=Timeline(position_written=NOW - timedelta(seconds=60)))
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
    found = snapshot(a_claim(bindTimeoutSeconds=292), pool=QUEUE, position=place, queue_length=waiting)
    said = plan(found, NOW)
    assert isinstance(said, UpdateStatus)
    assert plan(replace(found, claim=replace(found.claim, status=said.status)), NOW) == Requeue(seconds)


def test_a_running_machine_is_handed_over_with_two_writes_before_it_is_ready_and_one_after() -> None:
    """And whoever is killed between any two of them leaves what the next one goes on from: each step is decided from
    what is written down, and nothing else."""
    found = snapshot(candidate=READY)
    assert kind(plan(found, NOW)) == (ReserveVM, "m")
    found = replace(found, candidate=None, vms=(claimed_vm(),))
    assert kind(plan(found, NOW)) == (CheckHealth, "m")
    step = plan(replace(found, health=HEALTHY), NOW)
    assert kind(step) == ("Ready", "VMBound")
    assert isinstance(step, UpdateStatus)
    assert step.status.vm_ref is not None
    assert {c.type: c.status for c in step.status.conditions} == {"Bound": "True", "Ready": "True"}
    assert (step.status.addresses, step.status.attempts, step.status.launch_type) == (("10.0.0.1",), 1, "Warm")
    found = replace(found, claim=replace(found.claim, status=step.status))
    assert kind(plan(found, NOW)) == (HandOverVM, "m")
    found = replace(found, vms=(claimed_vm("m", WarmState.IN_USE),))
    assert plan(found, NOW + timedelta(seconds=1)) == Requeue(None), "nothing more is written"


def test_timings_add_up() -> None:
    timeline = Timeline(
        observed=NOW,
        dequeued=NOW + timedelta(milliseconds=2),
        reserved=NOW + timedelta(milliseconds=9),
        bound=None,
        activated=None,
    )
    step = plan(snapshot(None, claimed_vm(), health=HEALTHY, timeline=timeline), NOW + timedelta(milliseconds=10))
    assert isinstance(step, UpdateStatus)
    timings = step.status.timings
    assert timings is not None
    said = (timings.queued_ms, timings.bind_ms, timings.activate_ms, timings.check_ms)
    assert said == (2, 7, 0, 1)
    assert timings.total_ms == 10


def test_what_is_said_twice_is_written_once() -> None:
    for found in (
        snapshot(pool_full=True),
        snapshot(no_pool=Failure("PoolNotFound", "no")),
        snapshot(a_claim(status=bound_status("m")), claimed_vm("m", WarmState.IN_USE, activated=True)),
    ):
        step = plan(found, NOW)
        assert isinstance(step, UpdateStatus)
        again = replace(found, claim=replace(found.claim, status=step.status))
        assert isinstance(plan(again, NOW + timedelta(seconds=1)), Requeue)


def test_the_name_of_a_machine_follows_from_the_claim() -> None:
    assert vm_name("mine", "u", 0) == vm_name("mine", "u", 0)
    assert vm_name("mine", "u", 0) != vm_name("mine", "u", 1)
    assert vm_name("mine", "u", 0) != vm_name("mine", "v", 0)
    assert len(vm_name("x" * 63, CLAIM_UID, 1)) <= 63


@pytest.mark.parametrize(
    ("uid", "refers"),
    [pytest.param("i-0a1b", "instanceRef", id="an instance"), pytest.param("0a1b-22", "vmRef", id="a VM")],
)
def test_a_machine_whose_pool_is_gone_is_referred_to_as_what_it_is(uid: str, refers: str) -> None:
    """The pool can be deleted between the two compare-and-swaps."""
    step = plan(snapshot(None, claimed_vm(uid), no_pool=None), NOW)
    assert isinstance(step, UpdateStatus)
    assert {"instanceRef", "vmRef"} & step.status.json().keys() == {refers}


def test_a_second_attempt_has_as_long_as_the_first() -> None:
    """A machine that took its 15 minutes to fail does not make its claim late."""
    condition = {
        "type": "Bound",
        "status": "False",
        "reason": "ActivationFailed",
        "lastTransitionTime": format_micro_time(NOW),
    }
    c = a_claim(creationTimestamp=ago(3600), status={"phase": "Pending", "attempts": 1, "conditions": [condition]})
    assert kind(plan(snapshot(c, candidate=READY), NOW)) == (ReserveVM, "m")
