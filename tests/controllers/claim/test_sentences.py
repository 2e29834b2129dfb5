"""What users read about the steps of a claim, and how long a claim waits for the next one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controllers.claim.obtain import vm_name
from controllers.claim.plan import plan
from controllers.claim.snapshot import ClaimSnapshot, Failure, Timeline
from controllers.claim.steps import ClaimEvent, CreateVM, DeleteVM, Requeue, UpdateStatus
from controllers.warmpool.agent import AgentReason
from controllers.warmpool.backends import HEALTHY, Health
from controllers.warmpool.warm_vm import PAUSED_BY_USER, Owner
from poolhouse.api.kinds.warm_states import WarmState
from tests.controllers.claim.builders import CLAIM_UID, a_claim, bound_status, claimed_vm, snapshot
from tests.controllers.warmpool.builders import NOW, a_pool, a_vm, a_vmi, ago

QUEUE = a_pool(claimPolicy={"onEmpty": "Queue"})
FAIL = a_pool(claimPolicy={"onEmpty": "Fail"})
EAST = a_pool(placements=[{"name": "east"}])
PAUSED_POOL = a_pool(paused=True)
FULL = a_pool(maxTotal=2)
PAUSED = a_vmi(name="web-m", owner_uid="m", paused=PAUSED_BY_USER)
UNHEALTHY = Health("Failed", "NotReady", "it is not")
UNKNOWN = Health("Unable", "NodeNotReady", "nobody answers")
QUOTA = Failure("QuotaExceeded", "ann has 1 VM")
REFUSED = Failure("FailedCreate", "no permission")
NO_POOL = Failure("PoolNotFound", "there is no warm pool web")
LARGE = {"overrides": {"instancetype": "large"}}
LATE = {"creationTimestamp": ago(301)}
"""its bind deadline was a second ago"""
POD = Owner("Pod", "web-0", "u", "v1")
APPLICATION = {"containers": [{"name": "build", "image": "builder:1"}]}
WITH_AGENTS = a_pool(agent={}, claimPolicy={"allowApplication": True})


def bound(uid: str = "m", launch: str = "Warm", **given: Any) -> Any:
    return a_claim(status=bound_status(uid, launch, **given))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        # The claim waits
        pytest.param(
            snapshot(pool=QUEUE, position=3), ("ClaimQueued", "position 3 in the queue", "Normal"), id="it is queued"
        ),
        pytest.param(
            snapshot(pool=FULL, pool_full=True),
            ("MaxTotalReached", "no VM of the pool is ready, and the pool has its maxTotal of 2 VMs", "Warning"),
            id="the pool is full",
        ),
        pytest.param(
            snapshot(pool=PAUSED_POOL, position=2),
            (
                "PoolPaused",
                "the ready VMs of the pool go to claims that waited, and warm pool web is paused, so no VM is created",
                "Warning",
            ),
            id="other claims come first",
        ),
        pytest.param(
            snapshot(a_claim(**LARGE), pool=PAUSED_POOL),
            (
                "PoolPaused",
                "the claim needs instancetype large, the pool's is none, and warm pool web is paused, so no VM is "
                "created",
                "Warning",
            ),
            id="a paused pool creates no VM",
        ),
        pytest.param(
            snapshot(a_claim(overrides={"placement": "east"}), pool=replace(EAST, spec=EAST.spec), pool_full=True),
            (
                "MaxTotalReached",
                "no VM is ready in placement east, and the pool has its maxTotal of 0 VMs",
                "Warning",
            ),
            id="no VM is ready in the placement",
        ),
        pytest.param(snapshot(over_quota=QUOTA), ("QuotaExceeded", "ann has 1 VM", "Warning"), id="over quota"),
        pytest.param(
            snapshot(failure=REFUSED),
            ("FailedCreate", "no permission", "Warning"),
            id="the creation of the VM is refused",
        ),
        pytest.param(snapshot(no_pool=NO_POOL), ("PoolNotFound", "there is no warm pool web", "Warning"), id="no pool"),
        pytest.param(
            snapshot(None, claimed_vm("forged", WarmState.IN_USE), unrecorded=frozenset({"forged"})),
            (
                "VMNotRecorded",
                "VM web-forged has the claim's UID, and no status says that a controller gave it to the claim",
                "Warning",
            ),
            id="a VM that no controller gave to it",
        ),
        # The claim fails
        pytest.param(
            snapshot(pool=FAIL), ("NoCapacity", "no VM of the pool is ready", "Warning"), id="onEmpty is Fail"
        ),
        pytest.param(
            snapshot(pool=FAIL, position=2),
            ("NoCapacity", "the ready VMs of the pool go to claims that waited", "Warning"),
            id="onEmpty is Fail, and other claims come first",
        ),
        pytest.param(
            snapshot(a_claim(onEmpty="Fail", **LARGE), pool=PAUSED_POOL),
            (
                "PoolPaused",
                "the claim needs instancetype large, the pool's is none, and warm pool web is paused, so no VM is "
                "created",
                "Warning",
            ),
            id="a paused pool, and onEmpty is Fail",
        ),
        pytest.param(
            snapshot(replace(a_claim(), invalid_spec="spec.ttlSeconds: must be at least 1")),
            ("InvalidSpec", "spec.ttlSeconds: must be at least 1", "Warning"),
            id="its spec is not valid",
        ),
        pytest.param(
            snapshot(a_claim(**LARGE), pool=a_pool(claimPolicy={"allowedOverrides": ["image"]})),
            (
                "OverrideNotAllowed",
                "overrides.instancetype is not one of the pool's claimPolicy.allowedOverrides, which are: image",
                "Warning",
            ),
            id="an override that is not allowed",
        ),
        pytest.param(
            snapshot(
                a_claim(personalization={"hostname": "mine"}),
                pool=a_pool(claimPolicy={"allowedPersonalization": ["labels"]}),
            ),
            (
                "PersonalizationNotAllowed",
                "personalization.hostname is not one of the pool's claimPolicy.allowedPersonalization, which are: "
                "labels",
                "Warning",
            ),
            id="personalization that is not allowed",
        ),
        pytest.param(
            snapshot(a_claim(application=APPLICATION)),
            (
                "ApplicationNotAllowed",
                "application: claimPolicy.allowApplication of the pool is not true",
                "Warning",
            ),
            id="an application that is not allowed",
        ),
        pytest.param(
            snapshot(replace(a_claim(), pod=POD)),
            ("PodsNotAllowed", "claimPolicy.allowPods of the pool is not true", "Warning"),
            id="a Pod whose claim the pool does not serve",
        ),
        pytest.param(
            snapshot(a_claim(**LATE)),
            ("BindTimeout", "no VM was bound before 11:59:59 UTC", "Warning"),
            id="its time is over",
        ),
        pytest.param(
            snapshot(a_claim(**LATE), pool=QUEUE, position=2),
            (
                "BindTimeout",
                "no VM was bound before 11:59:59 UTC; the claim was at position 2 in the queue",
                "Warning",
            ),
            id="its time in the queue is over",
        ),
        pytest.param(
            snapshot(a_claim(**LATE), pool=FULL, pool_full=True),
            (
                "BindTimeout",
                "no VM was bound before 11:59:59 UTC: the pool has its maxTotal of 2 VMs",
                "Warning",
            ),
            id="its time is over while the pool is full",
        ),
        pytest.param(
            snapshot(a_claim(**LATE), over_quota=QUOTA),
            ("QuotaExceeded", "no VM was bound before 11:59:59 UTC: ann has 1 VM", "Warning"),
            id="its time is over while the quota is exceeded",
        ),
        pytest.param(
            snapshot(a_claim(**LATE), failure=REFUSED),
            ("FailedCreate", "no VM was bound before 11:59:59 UTC: no permission", "Warning"),
            id="its time is over while creations are refused",
        ),
        pytest.param(
            snapshot(a_claim(creationTimestamp=ago(11)), no_pool=NO_POOL),
            ("PoolNotFound", "no VM was bound before 11:59:59 UTC: there is no warm pool web", "Warning"),
            id="its time is over, and there is no pool",
        ),
        pytest.param(
            snapshot(a_claim(status={"phase": "Pending", "attempts": 2})),
            ("ActivationFailed", "2 VMs were tried; the last: ", "Warning"),
            id="two VMs have failed",
        ),
        # The claim has a VM
        pytest.param(
            snapshot(None, claimed_vm(vmi=PAUSED, standby="Paused")),
            ("ClaimBound", "web-m (Resumed)", "Normal"),
            id="a paused VM is resumed for it",
        ),
        pytest.param(
            snapshot(None, claimed_vm(activated=True)), ("ColdStart", "web-m (Cold)", "Normal"), id="a VM boots for it"
        ),
        pytest.param(
            snapshot(bound(), claimed_vm("m", WarmState.IN_USE)),
            ("ClaimReady", "web-m (Warm) was handed over after 0 ms", "Normal"),
            id="it is Ready",
        ),
        # The claim has lost its VM
        pytest.param(
            snapshot(bound()),
            ("ActivationFailed", "the VM was deleted before it was handed over; trying once more", "Warning"),
            id="the VM is gone before it is Ready",
        ),
        pytest.param(
            snapshot(bound(), deletion=Failure("NotHealthy", "the VM was not healthy in time")),
            ("NotHealthy", "the VM was not healthy in time; trying once more", "Warning"),
            id="the controller has deleted the VM",
        ),
        pytest.param(
            snapshot(bound(attempts=2)),
            ("ActivationFailed", "the VM was deleted before it was handed over", "Warning"),
            id="the second VM is gone",
        ),
        pytest.param(
            snapshot(bound(phase="Ready", readyAt=ago(5))),
            ("VMLost", "the VM was deleted, and not by the controllers", "Warning"),
            id="the VM of a Ready claim is gone",
        ),
        # The claim ends
        pytest.param(
            snapshot(a_claim(status=bound_status("m", phase="Releasing"), release=True)),
            ("ClaimReleased", "the VM was deleted", "Normal"),
            id="it is released",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", seconds=61), ttlSeconds=60), claimed_vm("m", WarmState.IN_USE)),
            ("ClaimExpired", "the claim expired at 11:59:59 UTC", "Normal"),
            id="it expires",
        ),
    ],
)
def test_the_event_of_a_step(found: ClaimSnapshot, expected: tuple[str, str, str]) -> None:
    step = plan(found, NOW)
    assert isinstance(step, UpdateStatus)
    assert step.event == ClaimEvent(*expected)


def test_a_warm_vm_that_is_bound_before_it_is_personalized_has_no_event_yet() -> None:
    """The claim has one when it is Ready, a moment later."""
    step = plan(snapshot(a_claim(personalization={"labels": {"team": "blue"}}), claimed_vm()), NOW)
    assert isinstance(step, UpdateStatus)
    assert (step.status.phase, step.event) == ("Bound", None)


@pytest.mark.parametrize(
    ("found", "uid", "reason"),
    [
        pytest.param(
            snapshot(None, claimed_vm("m", WarmState.READY)),
            "m",
            "it has a claim, in a state in which a VM has none",
            id="a Ready VM with a claim",
        ),
        pytest.param(
            snapshot(bound(), claimed_vm("m", WarmState.READY)),
            "m",
            "its claim is bound to it, and it is Ready",
            id="a bound VM in another state",
        ),
        pytest.param(
            snapshot(bound(), claimed_vm("m", None)),
            "m",
            "its claim is bound to it, and it is in no state",
            id="a bound VM without a state",
        ),
        pytest.param(
            snapshot(bound(), claimed_vm("m"), claimed_vm("other")),
            "other",
            "its claim has another VM",
            id="another VM",
        ),
        pytest.param(
            snapshot(bound(seconds=15), claimed_vm(), health=UNHEALTHY),
            "m",
            "after 15 s: NotReady: it is not",
            id="a warm VM is unhealthy for too long",
        ),
        pytest.param(
            snapshot(bound("m", "Resumed", seconds=60), claimed_vm(activated=True), health=UNHEALTHY),
            "m",
            "after 60 s: NotReady: it is not",
            id="a resumed VM is unhealthy for too long",
        ),
        pytest.param(
            snapshot(bound(seconds=900), claimed_vm(), health=UNKNOWN),
            "m",
            "after 900 s: NodeNotReady: nobody answers",
            id="nobody knows for too long whether it is healthy",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", phase="Releasing"), release=True), claimed_vm()),
            "m",
            "its claim was released",
            id="the claim is released",
        ),
        pytest.param(
            snapshot(bound(phase="Failed"), claimed_vm()), "m", "its claim is Failed", id="the claim has failed"
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m"), deletionTimestamp=ago(1)), claimed_vm()),
            "m",
            "its claim is being deleted",
            id="the claim is deleted",
        ),
    ],
)
def test_why_a_vm_is_deleted(found: ClaimSnapshot, uid: str, reason: str) -> None:
    step = plan(found, NOW)
    assert isinstance(step, DeleteVM)
    assert (step.vm.uid, step.reason) == (uid, reason)


@pytest.mark.parametrize(
    ("found", "reason", "message"),
    [
        pytest.param(snapshot(), "PoolEmpty", "no VM of the pool is ready", id="no VM is ready"),
        pytest.param(
            snapshot(position=1), "PoolEmpty", "no VM of the pool is ready", id="the first claim of the queue"
        ),
        pytest.param(
            snapshot(position=2), "PoolEmpty", "the ready VMs of the pool go to claims that waited", id="it waits"
        ),
        pytest.param(
            snapshot(a_claim(**LARGE), candidate=a_vm("m")),
            "OverrideMismatch",
            "the claim needs instancetype large, the pool's is none",
            id="another instance type",
        ),
        pytest.param(
            snapshot(a_claim(overrides={"placement": "east"}), pool=EAST),
            "OverrideMismatch",
            "no VM is ready in placement east",
            id="a placement",
        ),
    ],
)
def test_why_a_vm_is_created(found: ClaimSnapshot, reason: str, message: str) -> None:
    assert found.pool is not None
    assert plan(found, NOW) == CreateVM(found.pool, vm_name("mine", CLAIM_UID, 0), reason, message)


def test_each_attempt_has_a_name_of_its_own() -> None:
    assert vm_name("mine", "u", 0) == "mine-620b78df", "another release has to give it the same name"
    assert vm_name("a" * 53 + "-b", "u", 0) == f"{'a' * 53}-620b78df", "the name is cut before a separator"
    assert vm_name("a" * 55, "u", 0) == f"{'a' * 54}-620b78df"
    second = snapshot(a_claim(status={"phase": "Pending", "attempts": 1}))
    step = plan(second, NOW)
    assert isinstance(step, CreateVM)
    assert step.name == vm_name("mine", CLAIM_UID, 1)


def test_a_pod_learns_that_its_vm_is_being_deleted() -> None:
    ready = bound_status("m", phase="Ready", readyAt=ago(5))
    claim = replace(a_claim(application=APPLICATION, status=ready), pod=POD)
    found = snapshot(claim, claimed_vm(deleting=True), pool=WITH_AGENTS, has_agent=True)
    step = plan(found, NOW)
    assert isinstance(step, UpdateStatus)
    assert step.event is None
    (condition,) = (each for each in step.status.conditions if each.type == "Ready")
    message = "the VM is being deleted, and not by the controllers"
    assert (condition.status, condition.reason, condition.message) == ("False", "VMLost", message)
    assert plan(pending(found), NOW) == Requeue(5)


def pending(found: ClaimSnapshot) -> ClaimSnapshot:
    """After the status says what the claim waits for."""
    step = plan(found, NOW)
    assert isinstance(step, UpdateStatus)
    return replace(found, claim=replace(found.claim, status=step.status))


TAKEN = replace(claimed_vm(deleting=True), name=vm_name("mine", CLAIM_UID, 0))
RUNS_APPLICATION = a_claim(application=APPLICATION, status=bound_status("m"))


@pytest.mark.parametrize(
    ("found", "seconds"),
    [
        pytest.param(pending(snapshot(pool=FULL, pool_full=True)), 5, id="an obstacle may pass without an event"),
        pytest.param(
            pending(snapshot(a_claim(creationTimestamp=ago(298)), pool=FULL, pool_full=True)),
            2,
            id="an obstacle, until the bind deadline",
        ),
        pytest.param(snapshot(None, TAKEN), 5, id="the name of its VM is not free yet"),
        pytest.param(
            snapshot(a_claim(creationTimestamp=ago(298)), TAKEN), 2, id="the name is not free before the bind deadline"
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", phase="Releasing"), release=True), claimed_vm(deleting=True)),
            5,
            id="its VM is being deleted",
        ),
        pytest.param(snapshot(bound(seconds=0.2), claimed_vm(), health=UNHEALTHY), 0.1, id="its VM just woke up"),
        pytest.param(snapshot(bound(seconds=2), claimed_vm(), health=UNHEALTHY), 0.5, id="its VM is not healthy yet"),
        pytest.param(
            snapshot(bound(seconds=-3600), claimed_vm(), health=UNHEALTHY),
            2,
            id="its VM was bound before the clock was set back",
        ),
        pytest.param(
            pending(snapshot(bound("m", "Resumed", seconds=40), claimed_vm(activated=True), health=UNHEALTHY)),
            2,
            id="its VM is not healthy for long",
        ),
        pytest.param(
            pending(snapshot(bound(seconds=14), claimed_vm(), health=UNHEALTHY)), 1, id="unhealthy until its limit"
        ),
        pytest.param(
            pending(snapshot(bound(seconds=899), claimed_vm(), health=UNKNOWN)), 1, id="unknown until the check's limit"
        ),
        pytest.param(
            pending(snapshot(bound(seconds=899), claimed_vm(), no_pool=None, health=UNKNOWN)),
            1,
            id="its VM is unknown until the limit of a check, after its pool was deleted",
        ),
        pytest.param(
            snapshot(RUNS_APPLICATION, has_agent=True, pool=WITH_AGENTS),
            5,
            id="the agent of its VM may still run the application",
        ),
        pytest.param(
            snapshot(
                a_claim(application=APPLICATION, status=bound_status("m"), creationTimestamp=ago(298)),
                has_agent=True,
                pool=WITH_AGENTS,
            ),
            2,
            id="the agent may still run it, until the bind deadline",
        ),
    ],
)
def test_how_long_a_claim_waits(found: ClaimSnapshot, seconds: float) -> None:
    assert plan(found, NOW) == Requeue(pytest.approx(seconds))


def test_a_claim_whose_pod_does_not_name_it_launches_nothing() -> None:
    found = snapshot(
        a_claim(application=APPLICATION, status=bound_status("m", seconds=6)),
        claimed_vm(),
        pool=WITH_AGENTS,
        application={},
        may_launch=False,
    )
    step = plan(found, NOW)
    assert isinstance(step, UpdateStatus)
    (ready,) = (each for each in step.status.conditions if each.type == "Ready")
    message = "web-m: the Pod does not name the claim yet, so its application is not launched"
    assert (ready.status, ready.reason, ready.message) == ("False", AgentReason.POD_NOT_UPDATED, message)
    late = a_claim(application=APPLICATION, status=bound_status("m", seconds=900))
    assert plan(replace(found, claim=late), NOW) == DeleteVM(
        claimed_vm(),
        "after 900 s: PodNotUpdated: the Pod does not name the claim yet, so its application is not launched",
    )


@pytest.mark.parametrize(
    ("seconds", "starts"),
    [
        pytest.param(0.9, False, id="a moment ago"),
        pytest.param(1.0, True, id="a second ago"),
        pytest.param(-1.0, True, id="in the future: the clock was set back"),
    ],
)
def test_a_vm_is_started_again_after_a_second(seconds: float, starts: bool) -> None:
    asleep = claimed_vm(vmi=PAUSED, standby="Paused", activated=True)
    timeline = Timeline(activated=NOW - timedelta(seconds=seconds))
    step = plan(snapshot(bound("m", "Resumed"), asleep, timeline=timeline), NOW)
    assert type(step).__name__ == ("ActivateVM" if starts else "CheckHealth")


def test_of_two_vms_the_older_one_is_bound() -> None:
    """Every process chooses the same one."""
    vms = [claimed_vm(uid, created_at=ago(age)) for uid, age in (("b", 9), ("a", 9), ("c", 1))]
    step = plan(snapshot(None, *vms, health=HEALTHY), NOW)
    assert isinstance(step, UpdateStatus)
    assert step.status.vm_ref.uid == "a"
    used = [replace(each, state=WarmState.IN_USE) for each in vms]
    step = plan(snapshot(None, *used), NOW)
    assert isinstance(step, UpdateStatus)
    assert step.status.vm_ref.uid == "a"
