"""Which step of a claim comes next."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controllers.claim.obtain import vm_name
from controllers.claim.plan import plan
from controllers.claim.snapshot import ClaimSnapshot, Failure, Timeline
from controllers.claim.steps import (
    ActivateVM,
    CheckApplication,
    CheckHealth,
    CreateVM,
    DeleteClaim,
    DeleteUnrecordedVM,
    DeleteVM,
    FindVMs,
    HandOverVM,
    JoinWaitQueue,
    MarkActivated,
    PersonalizeVM,
    ReadApplication,
    Requeue,
    ReserveVM,
    Step,
    TerminateApplication,
    UpdateStatus,
)
from controllers.warmpool.agent import application_health
from controllers.warmpool.backends import HEALTHY, Health
from controllers.warmpool.warm_vm import PAUSED_BY_USER
from poolhouse.api.apimachinery.timestamps import format_micro_time
from poolhouse.api.kinds.warm_states import WarmState
from tests.controllers.claim.builders import CLAIM_UID, a_claim, bound_status, claimed_vm, snapshot
from tests.controllers.warmpool.builders import NOW, a_pool, a_vm, a_vmi, ago

READY = a_vm("m")
UNHEALTHY = Health("Failed", "NotReady", "it is not")
UNKNOWN = Health("Unable", "NodeNotReady", "nobody answers")
PAUSED = a_vmi(name="web-m", owner_uid="m", paused=PAUSED_BY_USER)
QUEUE = a_pool(claimPolicy={"onEmpty": "Queue"})
FAIL = a_pool(claimPolicy={"onEmpty": "Fail"})
PAUSED_POOL = a_pool(paused=True)
LABELS = {"labels": {"team": "blue"}}
COLD_STATUS = bound_status("m", "Cold", seconds=100, launchReason="PoolEmpty: no VM of the pool was ready")
READY_STATUS = bound_status("m", phase="Ready", readyAt=ago(1))
READY_STATUS["conditions"] = [{"type": "Bound", "status": "True", "reason": "VMBound", "message": ""}]
"""the status of a claim that was bound and Ready in one write"""


def said(step: Step) -> tuple[str, str]:
    """The written phase, and the reason of the condition Bound."""
    assert isinstance(step, UpdateStatus), step
    return step.status.phase, next((c.reason for c in step.status.conditions if c.type == "Bound"), "")


def kind(step: Step) -> Any:
    match step:
        case UpdateStatus():
            return said(step)
        case ReserveVM(vm) | MarkActivated(vm) | ActivateVM(vm) | CheckHealth(vm) | PersonalizeVM(vm) | HandOverVM(vm):
            return type(step), vm.uid
        case DeleteVM(vm, _):
            return DeleteVM, vm.uid
        case CreateVM():
            return CreateVM, step.reason
    return type(step)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        # The claim has no VM
        pytest.param(snapshot(candidate=READY), (ReserveVM, "m"), id="a VM is ready"),
        pytest.param(snapshot(candidate=READY, vms_known=False), FindVMs, id="the claim may have a VM already"),
        pytest.param(snapshot(), (CreateVM, "PoolEmpty"), id="no VM is ready"),
        pytest.param(
            snapshot(None, replace(claimed_vm(deleting=True), name=vm_name("mine", CLAIM_UID, 0))),
            Requeue,
            id="somebody deletes the VM that was created, and its name is not free yet",
        ),
        pytest.param(snapshot(pool=FAIL), ("Failed", "NoCapacity"), id="no VM is ready: onEmpty Fail"),
        pytest.param(snapshot(pool=QUEUE), JoinWaitQueue, id="no VM is ready: onEmpty Queue"),
        pytest.param(
            snapshot(a_claim(onEmpty="Fail"), pool=QUEUE),
            ("Failed", "NoCapacity"),
            id="the claim's onEmpty takes precedence",
        ),
        pytest.param(snapshot(pool=QUEUE, position=3), ("Queued", "Queued"), id="the position in the queue is written"),
        pytest.param(
            snapshot(pool=QUEUE, position=3, pool_full=True),
            ("Queued", "MaxTotalReached"),
            id="the reason of a wait is that no further VM is created",
        ),
        pytest.param(snapshot(pool_full=True), ("Pending", "MaxTotalReached"), id="maxTotal is reached"),
        pytest.param(snapshot(pool_full=True, candidate=READY), (ReserveVM, "m"), id="a full pool gives its ready VMs"),
        pytest.param(
            snapshot(pool=FAIL, pool_full=True), ("Failed", "NoCapacity"), id="a full pool, with onEmpty Fail"
        ),
        pytest.param(snapshot(pool=PAUSED_POOL), ("Pending", "PoolPaused"), id="a paused pool creates no VM"),
        pytest.param(
            snapshot(pool=PAUSED_POOL, candidate=READY), (ReserveVM, "m"), id="a paused pool gives its ready VMs"
        ),
        pytest.param(
            snapshot(a_claim(overrides={"instancetype": "large"}), pool=PAUSED_POOL, candidate=READY),
            ("Pending", "PoolPaused"),
            id="a paused pool creates no VM with overrides",
        ),
        pytest.param(
            snapshot(a_claim(overrides={"instancetype": "large"}, onEmpty="Fail"), pool=PAUSED_POOL),
            ("Failed", "PoolPaused"),
            id="a paused pool, with onEmpty Fail",
        ),
        pytest.param(
            snapshot(a_claim(onEmpty="Queue"), pool=PAUSED_POOL), JoinWaitQueue, id="a paused pool, with onEmpty Queue"
        ),
        pytest.param(
            snapshot(candidate=READY, over_quota=Failure("QuotaExceeded", "")),
            ("Pending", "QuotaExceeded"),
            id="the quota is exceeded, though a VM is ready",
        ),
        pytest.param(
            snapshot(pool=FAIL, over_quota=Failure("QuotaExceeded", "")),
            ("Failed", "QuotaExceeded"),
            id="the quota is exceeded, with onEmpty Fail",
        ),
        pytest.param(
            snapshot(failure=Failure("FailedCreate", "")), ("Allocating", "FailedCreate"), id="a creation was refused"
        ),
        pytest.param(
            snapshot(failure=Failure("FailedCreate", "", True)),
            ("Failed", "FailedCreate"),
            id="a creation will always be refused",
        ),
        pytest.param(
            snapshot(failure=Failure("FailedCreate", ""), candidate=READY),
            (ReserveVM, "m"),
            id="a creation was refused, and a VM became ready",
        ),
        pytest.param(
            snapshot(failure=Failure("FailedReserve", ""), candidate=READY),
            ("Pending", "FailedReserve"),
            id="a reservation was refused",
        ),
        # No pool
        pytest.param(
            snapshot(no_pool=Failure("PoolNotFound", "")),
            ("Pending", "PoolNotFound"),
            id="the pool does not exist yet",
        ),
        pytest.param(
            snapshot(a_claim(creationTimestamp=ago(11)), no_pool=Failure("PoolNotFound", "")),
            ("Failed", "PoolNotFound"),
            id="the pool did not appear in time",
        ),
        pytest.param(
            snapshot(
                a_claim(creationTimestamp=ago(11), bindTimeoutSeconds=60),
                no_pool=Failure("NoDefaultPool", ""),
            ),
            ("Pending", "NoDefaultPool"),
            id="bindTimeoutSeconds also applies without pool",
        ),
        # Overrides
        pytest.param(
            snapshot(a_claim(overrides={"instancetype": "large"}), candidate=READY),
            (CreateVM, "OverrideMismatch"),
            id="a ready VM of another instance type is not given",
        ),
        pytest.param(
            snapshot(a_claim(annotations={"poolhouse.dev/instance-type": "large"}), candidate=READY, pool=QUEUE),
            (CreateVM, "OverrideMismatch"),
            id="an override by annotation, with onEmpty Queue",
        ),
        pytest.param(
            snapshot(
                a_claim(overrides={"placement": "east"}, personalization={"hostname": "mine"}),
                pool=a_pool(placements=[{"name": "east"}]),
                candidate=READY,
            ),
            (CreateVM, "OverrideMismatch"),
            id="a claim with a hostname gets no VM that has booted",
        ),
        pytest.param(
            snapshot(
                a_claim(overrides={"instancetype": "large"}), pool=a_pool(claimPolicy={"allowedOverrides": ["image"]})
            ),
            ("Failed", "OverrideNotAllowed"),
            id="the override is not allowed",
        ),
        pytest.param(
            snapshot(
                a_claim(personalization={"hostname": "mine"}),
                pool=a_pool(claimPolicy={"allowedPersonalization": ["labels"]}),
                candidate=READY,
            ),
            ("Failed", "PersonalizationNotAllowed"),
            id="the personalization is not allowed",
        ),
        pytest.param(
            snapshot(a_claim(overrides={"placement": "east"}), pool=a_pool(placements=[{"name": "east"}])),
            (CreateVM, "OverrideMismatch"),
            id="no VM is ready in the placement",
        ),
        pytest.param(
            snapshot(
                a_claim(overrides={"placement": "east"}), pool=a_pool(placements=[{"name": "east"}]), candidate=READY
            ),
            (ReserveVM, "m"),
            id="a VM is ready in the placement",
        ),
        # After the bind deadline
        pytest.param(
            snapshot(a_claim(creationTimestamp=ago(320)), candidate=READY),
            (ReserveVM, "m"),
            id="within the grace period a ready VM is given",
        ),
        pytest.param(
            snapshot(a_claim(creationTimestamp=ago(330)), candidate=READY),
            ("Failed", "BindTimeout"),
            id="after the grace period",
        ),
        pytest.param(
            snapshot(a_claim(creationTimestamp=ago(300))),
            ("Failed", "BindTimeout"),
            id="within the grace period no VM is created",
        ),
        pytest.param(
            snapshot(a_claim(creationTimestamp=ago(301), overrides={"instancetype": "large"}), candidate=READY),
            ("Failed", "BindTimeout"),
            id="within the grace period, and the ready VM does not fit",
        ),
        pytest.param(
            snapshot(a_claim(creationTimestamp=ago(20), bindTimeoutSeconds=10), pool=QUEUE, position=2),
            ("Failed", "BindTimeout"),
            id="after the claim's own bindTimeoutSeconds",
        ),
        pytest.param(
            snapshot(a_claim(creationTimestamp=ago(301)), over_quota=Failure("QuotaExceeded", "")),
            ("Failed", "QuotaExceeded"),
            id="the reason of a timeout is the obstacle",
        ),
        pytest.param(
            snapshot(a_claim(creationTimestamp=ago(301), onEmpty="Queue"), pool=PAUSED_POOL, position=1),
            ("Failed", "PoolPaused"),
            id="the reason of a timeout in a paused pool",
        ),
        pytest.param(
            snapshot(a_claim(creationTimestamp=ago(301)), pool=QUEUE, position=1, pool_full=True),
            ("Failed", "BindTimeout"),
            id="a full pool is in the message of a timeout alone: it is the demand that was not served",
        ),
        # After the first compare-and-swap
        pytest.param(
            snapshot(None, claimed_vm()),
            (CheckHealth, "m"),
            id="a running VM is checked before it is bound",
            marks=pytest.mark.sentence("5.31"),
        ),
        pytest.param(
            snapshot(None, claimed_vm(), health=HEALTHY),
            ("Ready", "VMBound"),
            id="healthy: bound and Ready in one write",
        ),
        pytest.param(
            snapshot(None, claimed_vm(), vms_known=False, health=HEALTHY),
            ("Ready", "VMBound"),
            id="healthy, after a crash",
        ),
        pytest.param(snapshot(None, claimed_vm(), health=UNHEALTHY), ("Bound", "VMBound"), id="unhealthy: bound first"),
        pytest.param(
            snapshot(None, claimed_vm(), health=UNKNOWN), ("Bound", "VMBound"), id="health unknown: bound first"
        ),
        pytest.param(
            snapshot(None, claimed_vm(vmi=PAUSED, standby="Paused")),
            ("Bound", "VMBound"),
            id="a paused VM is bound before it is activated",
        ),
        pytest.param(
            snapshot(None, claimed_vm(standby="Running", activated=True)),
            ("Bound", "VMBound"),
            id="a VM that was created for the claim is bound first",
        ),
        pytest.param(
            snapshot(a_claim(personalization={"labels": {"team": "blue"}}), claimed_vm()),
            ("Bound", "VMBound"),
            id="a VM is bound before it is personalized",
        ),
        pytest.param(
            snapshot(None, claimed_vm(), pool=a_pool(template=None, ec2={"imageID": "ami-1"})),
            ("Bound", "VMBound"),
            id="an EC2 instance is bound before the check launches an application",
        ),
        pytest.param(
            snapshot(
                None, claimed_vm("young", created_at=ago(1)), claimed_vm("old", created_at=ago(9)), health=HEALTHY
            ),
            ("Ready", "VMBound"),
            id="of two VMs one is bound before the other is deleted",
        ),
        pytest.param(
            snapshot(None, claimed_vm("m", WarmState.IN_USE), claimed_vm("other")),
            ("Bound", "VMBound"),
            id="a VM in use is bound again after the status was lost",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("gone")), claimed_vm("m", WarmState.IN_USE)),
            ("Bound", "VMBound"),
            id="a VM in use replaces another VM in the status",
        ),
        pytest.param(
            snapshot(None, claimed_vm("m", WarmState.READY)), (DeleteVM, "m"), id="a Ready VM with a claim is deleted"
        ),
        pytest.param(
            snapshot(None, claimed_vm(deleting=True), candidate=READY),
            (ReserveVM, "m"),
            id="a VM that is being deleted does not count",
        ),
        # After the second compare-and-swap
        pytest.param(
            snapshot(a_claim(status=bound_status("m")), claimed_vm()), (CheckHealth, "m"), id="a bound VM is checked"
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m")), claimed_vm(), health=HEALTHY),
            (HandOverVM, "m"),
            id="a healthy VM is handed over",
            marks=pytest.mark.sentence("5.34"),
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m"), personalization=LABELS), claimed_vm(), health=HEALTHY),
            (PersonalizeVM, "m"),
            id="a healthy VM is personalized before the hand-over",
        ),
        pytest.param(
            snapshot(
                a_claim(status=bound_status("m"), personalization=LABELS),
                claimed_vm(),
                health=HEALTHY,
                not_personalized=(),
            ),
            (HandOverVM, "m"),
            id="handed over after personalization",
        ),
        pytest.param(
            snapshot(
                a_claim(status=bound_status("m"), personalization=LABELS),
                claimed_vm(),
                health=HEALTHY,
                not_personalized=(Failure("AccessCredentialsNotSynchronized", "it has no agent"),),
            ),
            (HandOverVM, "m"),
            id="handed over after personalization failed",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m"), personalization=LABELS), claimed_vm("m", WarmState.IN_USE)),
            (PersonalizeVM, "m"),
            id="killed after the hand-over: personalized again, because the status needs the result",
        ),
        pytest.param(
            snapshot(
                a_claim(status=bound_status("m"), personalization=LABELS),
                claimed_vm("m", WarmState.IN_USE),
                not_personalized=(),
            ),
            ("Ready", ""),
            id="the result of personalization is written",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m")), claimed_vm(), health=UNHEALTHY),
            Requeue,
            id="unhealthy for a moment",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", seconds=20)), claimed_vm(), health=UNHEALTHY),
            (DeleteVM, "m"),
            id="unhealthy for too long",
            marks=pytest.mark.sentence("5.35"),
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", seconds=20)), claimed_vm(), health=UNKNOWN),
            ("Bound", ""),
            id="health unknown: the VM stays",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", seconds=1000)), claimed_vm(), health=UNKNOWN),
            (DeleteVM, "m"),
            id="health unknown for too long",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", "Resumed")), claimed_vm(vmi=PAUSED, standby="Paused")),
            (MarkActivated, "m"),
            id="a paused VM is marked before it is activated",
        ),
        pytest.param(
            snapshot(
                a_claim(status=bound_status("m", "Resumed")), claimed_vm(vmi=PAUSED, standby="Paused", activated=True)
            ),
            (ActivateVM, "m"),
            id="a marked VM is activated",
        ),
        pytest.param(
            snapshot(
                a_claim(status=bound_status("m", "Resumed")),
                claimed_vm(vmi=PAUSED, standby="Paused", activated=True),
                timeline=Timeline(activated=NOW),
            ),
            (CheckHealth, "m"),
            id="a VM is not activated twice at once",
        ),
        pytest.param(
            snapshot(
                a_claim(status=bound_status("m", "Started")),
                claimed_vm(vmi=None, run_strategy="Halted", standby="Stopped", activated=True),
                timeline=Timeline(activated=NOW - timedelta(seconds=2)),
            ),
            (ActivateVM, "m"),
            id="a VM that does not start is activated again",
        ),
        pytest.param(
            snapshot(
                a_claim(status=bound_status("m", "Started")),
                claimed_vm(vmi=None, run_strategy="Halted", standby="Stopped", activated=True),
                timeline=Timeline(activated=NOW + timedelta(hours=1)),
            ),
            (ActivateVM, "m"),
            id="a VM that does not start is activated again after the clock was set back",
        ),
        pytest.param(
            snapshot(
                a_claim(status=bound_status("m", "Started", seconds=100)), claimed_vm(activated=True), health=UNHEALTHY
            ),
            ("Bound", ""),
            id="a booting VM has the pool's readiness timeout, and the status says what is missing",
        ),
        pytest.param(
            snapshot(
                a_claim(status=bound_status("m", "Started", seconds=100)),
                claimed_vm(activated=True),
                health=UNHEALTHY,
                pool=a_pool(readiness={"timeoutSeconds": 100}),
            ),
            (DeleteVM, "m"),
            id="a booting VM that is not healthy at the end of this timeout",
        ),
        pytest.param(
            snapshot(a_claim(status=READY_STATUS), claimed_vm("m", WarmState.IN_USE, owner=a_pool().owner)),
            (HandOverVM, "m"),
            id="changed owner references are restored",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m")), claimed_vm("m"), claimed_vm("other")),
            (DeleteVM, "other"),
            id="an extra VM is deleted",
        ),
        # The claim boots a VM of its own, and a VM of the pool is ready sooner
        pytest.param(
            snapshot(a_claim(status=COLD_STATUS), claimed_vm("m", vmi=None, activated=True), candidate=a_vm("sooner")),
            (ReserveVM, "sooner"),
            id="a VM of the pool is ready before the claim's own VM",
        ),
        pytest.param(
            snapshot(a_claim(status=COLD_STATUS), claimed_vm("m", activated=True), candidate=a_vm("sooner")),
            (CheckHealth, "m"),
            id="the claim's own VM is ready too",
        ),
        pytest.param(
            snapshot(
                a_claim(status=COLD_STATUS | {"launchReason": "OverrideMismatch: another image"}),
                claimed_vm("m", vmi=None, activated=True),
                candidate=a_vm("sooner"),
                health=UNHEALTHY,
            ),
            ("Bound", ""),
            id="no VM of the pool has what the claim overrides",
        ),
        pytest.param(
            snapshot(a_claim(status=COLD_STATUS), claimed_vm("m", vmi=None, activated=True), claimed_vm("sooner")),
            (CheckHealth, "sooner"),
            id="the reserved VM is checked",
        ),
        pytest.param(
            snapshot(
                a_claim(status=COLD_STATUS),
                claimed_vm("m", vmi=None, activated=True),
                claimed_vm("sooner"),
                health=HEALTHY,
            ),
            ("Ready", "VMBound"),
            id="the claim gets the reserved VM instead",
        ),
        pytest.param(
            snapshot(
                a_claim(status=COLD_STATUS),
                claimed_vm("m", vmi=None, activated=True),
                candidate=a_vm("sooner"),
                failure=Failure("FailedReserve", ""),
            ),
            (CheckHealth, "m"),
            id="a reservation was refused: the claim waits before it tries another VM of the pool",
        ),
        pytest.param(
            snapshot(
                a_claim(status=bound_status("sooner", attempts=1)),
                claimed_vm("sooner"),
                claimed_vm("m", vmi=None, activated=True),
            ),
            (DeleteVM, "m"),
            id="the booting VM is deleted",
        ),
        pytest.param(
            snapshot(
                a_claim(status=COLD_STATUS), claimed_vm("m", vmi=None, activated=True), claimed_vm("n", activated=True)
            ),
            (DeleteVM, "n"),
            id="two booting VMs: one is deleted",
        ),
        # The claim is Ready and the label of its VM is not: killed between the two writes
        pytest.param(
            snapshot(a_claim(status=READY_STATUS), claimed_vm()), (HandOverVM, "m"), id="Ready: the label follows"
        ),
        pytest.param(
            snapshot(a_claim(status=READY_STATUS), claimed_vm(vmi=None), health=UNHEALTHY, vms_known=False),
            (HandOverVM, "m"),
            id="Ready: the label follows, though the VM is unhealthy now",
        ),
        pytest.param(
            snapshot(a_claim(status=READY_STATUS), claimed_vm("m"), claimed_vm("other")),
            (DeleteVM, "other"),
            id="Ready with an extra VM",
        ),
        pytest.param(
            snapshot(
                a_claim(status=COLD_STATUS | {"phase": "Ready", "readyAt": ago(1)}),
                claimed_vm("m", vmi=None, activated=True),
                claimed_vm("sooner"),
            ),
            (DeleteVM, "sooner"),
            id="Ready: the claimant uses the VM, so it is kept while it restarts and another one was reserved",
        ),
        pytest.param(
            snapshot(a_claim(status=READY_STATUS), vms_known=True), ("Failed", "VMLost"), id="Ready, and the VM is gone"
        ),
        pytest.param(
            snapshot(a_claim(status=READY_STATUS, release=True), claimed_vm()),
            ("Releasing", "VMBound"),
            id="Ready, and released",
        ),
        # The VM is lost before the hand-over
        pytest.param(
            snapshot(a_claim(status=bound_status("m")), vms_known=False),
            FindVMs,
            id="the VM is missing: the API is asked",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m"))),
            ("Pending", "ActivationFailed"),
            id="the VM is gone: a second attempt",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m")), claimed_vm(deleting=True)),
            ("Pending", "ActivationFailed"),
            id="the VM is being deleted: a second attempt",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", attempts=2))),
            ("Failed", "ActivationFailed"),
            id="no third attempt",
        ),
        pytest.param(
            snapshot(a_claim(status={"phase": "Pending", "attempts": 2}), candidate=READY),
            ("Failed", "ActivationFailed"),
            id="no third attempt after a crash",
        ),
        # In use
        pytest.param(
            snapshot(a_claim(status=bound_status("m")), claimed_vm("m", WarmState.IN_USE, activated=True)),
            ("Ready", ""),
            id="in use",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", phase="Ready", readyAt=ago(5)))),
            ("Failed", "VMLost"),
            id="a Ready claim whose VM is gone gets no other",
        ),
        # The claim ends
        pytest.param(
            snapshot(a_claim(status=bound_status("m"), release=True), claimed_vm("m", WarmState.IN_USE)),
            ("Releasing", ""),
            id="released: phase Releasing",
        ),
        pytest.param(
            snapshot(
                a_claim(status=bound_status("m", phase="Releasing"), release=True), claimed_vm("m", WarmState.IN_USE)
            ),
            (DeleteVM, "m"),
            id="Releasing: the VM is deleted",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", phase="Releasing"), release=True), claimed_vm(deleting=True)),
            Requeue,
            id="Releasing: waits for the deletion",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", phase="Releasing"), release=True)),
            ("Released", "Released"),
            id="Releasing: the VM is gone",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", seconds=61), ttlSeconds=60), claimed_vm("m", WarmState.IN_USE)),
            ("Expired", "Expired"),
            id="expired",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", seconds=60), ttlSeconds=60), claimed_vm("m", WarmState.IN_USE)),
            ("Expired", "Expired"),
            id="in the second in which it expires",
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", "Resumed", seconds=61), ttlSeconds=60), claimed_vm(vmi=PAUSED)),
            ("Expired", "Expired"),
            id="expired during activation",
        ),
        *(
            pytest.param(
                snapshot(a_claim(status=bound_status("m", phase=phase)), claimed_vm()),
                (DeleteVM, "m"),
                id=f"{phase}: nothing",
            )
            for phase in ("Failed", "Expired", "Released")
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m", phase="Failed"))), Requeue, id="a finished claim without VM"
        ),
        pytest.param(
            snapshot(a_claim(status=bound_status("m"), deletionTimestamp=ago(1)), claimed_vm()),
            (DeleteVM, "m"),
            id="the claim is being deleted",
        ),
        pytest.param(
            snapshot(a_claim(deletionTimestamp=ago(1)), candidate=READY),
            Requeue,
            id="a claim that is being deleted gets no VM",
        ),
    ],
)
def test_next_step(found: ClaimSnapshot, expected: Any) -> None:
    assert kind(plan(found, NOW)) == expected


@pytest.mark.parametrize(
    ("claim", "vm", "event"),
    [
        pytest.param(
            a_claim(), claimed_vm(), None, id="a warm VM at once: the status says it, without a further write"
        ),
        pytest.param(
            a_claim(status={"phase": "Queued"}), claimed_vm(), "ClaimReady", id="a warm VM for a claim that has waited"
        ),
        pytest.param(
            a_claim(status=bound_status("m", "Started")),
            claimed_vm(state=WarmState.IN_USE, activated=True),
            "ClaimReady",
            id="a VM that was started",
        ),
    ],
)
def test_the_event_of_a_ready_claim(claim: Any, vm: Any, event: str | None) -> None:
    step = plan(snapshot(claim, vm, health=HEALTHY), NOW)
    assert isinstance(step, UpdateStatus)
    assert step.status.phase == "Ready"
    assert (step.event.reason if step.event is not None else None) == event


@pytest.mark.parametrize(
    ("seconds", "health", "ready"),
    [
        pytest.param(4, UNHEALTHY, None, id="not in the first seconds"),
        pytest.param(5, UNHEALTHY, "NotReady: web-m: it is not", id="after some seconds"),
        pytest.param(6, UNKNOWN, "NodeNotReady: web-m: nobody answers", id="a lost node without a health check"),
    ],
)
def test_the_reason_of_an_unhealthy_vm_is_written(seconds: float, health: Health, ready: str | None) -> None:
    """It is written once for each reason, because the message may differ with every check."""
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


def test_the_queue_position_is_not_written_for_every_vm() -> None:
    """Else a queue of a thousand claims causes a thousand status updates for each VM."""
    before = plan(snapshot(pool=QUEUE, position=30), NOW)
    assert isinstance(before, UpdateStatus)
    c = replace(a_claim(), status=before.status)
    moved = snapshot(c, pool=QUEUE, position=29, timeline=Timeline(position_written=NOW - timedelta(seconds=3)))
    assert plan(moved, NOW) == Requeue(26)
    assert plan(moved, NOW + timedelta(seconds=25.5)) == Requeue(pytest.approx(0.5)), "it is written in time"
    in_time = plan(moved, NOW + timedelta(seconds=26))
    assert isinstance(in_time, UpdateStatus)
    assert in_time.event is None, "the claim was queued before"
    later = replace(moved, timeline=Timeline(position_written=NOW + timedelta(hours=1)))
    assert isinstance(plan(later, NOW), UpdateStatus), "the clock was set back"
    still = snapshot(c, pool=QUEUE, position=30, timeline=Timeline(position_written=NOW - timedelta(seconds=60)))
    assert plan(still, NOW) == Requeue(30), "an unchanged position is not written"


@pytest.mark.parametrize(
    ("place", "waiting", "seconds"),
    [
        pytest.param(1, 10_000, 2, id="the next claim is told at once"),
        pytest.param(50, 100, 50, id="the further back, the later"),
        pytest.param(2_000, 2_000, 60, id="at most a minute"),
        pytest.param(10_000, 10_000, 200, id="a long queue is not checked more often than a shorter one"),
        pytest.param(100, 10_000, 100, id="the first claims of a long queue"),
        pytest.param(100_000, 100_000, 290, id="never later than the bind deadline"),
    ],
)
def test_the_cost_of_a_queue_does_not_grow_with_its_length(place: int, waiting: int, seconds: float) -> None:
    found = snapshot(a_claim(bindTimeoutSeconds=292), pool=QUEUE, position=place, queue_length=waiting)
    said = plan(found, NOW)
    assert isinstance(said, UpdateStatus)
    assert plan(replace(found, claim=replace(found.claim, status=said.status)), NOW) == Requeue(seconds)


def test_a_running_vm_needs_two_writes_before_ready_and_one_after() -> None:
    """A process that is killed between two writes leaves a state from which the next process continues, because each
    step depends only on what is written."""
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
    assert plan(found, NOW + timedelta(seconds=1)) == Requeue(None), "no more writes"


def test_the_timings_of_a_claim() -> None:
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
    said = (timings.queued_ms, timings.bind_ms, timings.activate_ms, timings.check_ms)
    assert said == (2, 7, 0, 1)
    assert timings.total_ms == 10


def test_an_unchanged_status_is_written_once() -> None:
    for found in (
        snapshot(pool_full=True),
        snapshot(no_pool=Failure("PoolNotFound", "no")),
        snapshot(a_claim(status=bound_status("m")), claimed_vm("m", WarmState.IN_USE, activated=True)),
    ):
        step = plan(found, NOW)
        assert isinstance(step, UpdateStatus)
        again = replace(found, claim=replace(found.claim, status=step.status))
        assert isinstance(plan(again, NOW + timedelta(seconds=1)), Requeue)


def test_the_name_of_a_created_vm_derives_from_the_claim() -> None:
    assert vm_name("mine", "u", 0) == vm_name("mine", "u", 0)
    assert vm_name("mine", "u", 0) != vm_name("mine", "u", 1)
    assert vm_name("mine", "u", 0) != vm_name("mine", "v", 0)
    assert len(vm_name("x" * 63, CLAIM_UID, 1)) <= 63


@pytest.mark.parametrize(
    ("uid", "refers"),
    [pytest.param("i-0a1b", "instanceRef", id="an EC2 instance"), pytest.param("0a1b-22", "vmRef", id="a VM")],
)
def test_the_reference_to_a_vm_whose_pool_is_gone(uid: str, refers: str) -> None:
    """The pool may be deleted between the two compare-and-swaps."""
    step = plan(snapshot(None, claimed_vm(uid), no_pool=None), NOW)
    assert isinstance(step, UpdateStatus)
    assert {"instanceRef", "vmRef"} & step.status.json().keys() == {refers}


def test_a_second_attempt_has_as_long_as_the_first() -> None:
    """A VM that took 15 minutes to fail does not make its claim time out."""
    condition = {
        "type": "Bound",
        "status": "False",
        "reason": "ActivationFailed",
        "lastTransitionTime": format_micro_time(NOW),
    }
    c = a_claim(creationTimestamp=ago(3600), status={"phase": "Pending", "attempts": 1, "conditions": [condition]})
    assert kind(plan(snapshot(c, candidate=READY), NOW)) == (ReserveVM, "m")


# Applications

APPLICATION = {"containers": [{"name": "build", "image": "builder:1"}]}
SERVICE = {"containers": [{"name": "build", "command": ["make"]}]}
EC2 = {"imageID": "ami-1", "instanceType": "m5.large", "subnets": ["subnet-a"], "protocol": "GRPC", "port": 8200}
INSTANCES = a_pool(template=None, ec2=EC2, claimPolicy={"allowApplication": True})
CLOUD_INIT = {"name": "init", "cloudInitNoCloud": {"userData": "#cloud-config\n"}}
BOOTS = {"spec": {"template": {"spec": {"domain": {"devices": {}}, "volumes": [CLOUD_INIT]}}}}
VMS_WITH_CLOUD_INIT = a_pool(template=BOOTS, claimPolicy={"allowApplication": True})
VMS_WITH_AGENTS = a_pool(agent={}, claimPolicy={"allowApplication": True})
MISSING = Failure("ApplicationSourceMissing", "application: no Secret")
RUNNING_APPLICATION = Health("Healthy", "ApplicationRunning", "it runs")
FAILED_APPLICATION = Health("Failed", "ApplicationFailed", "exit code 1")


def instance_status(**status: Any) -> dict[str, Any]:
    found = bound_status("i-1", **{"vmRef": None, "instanceRef": {"id": "i-1"}, **status})
    return {**found, "phase": "Ready", "readyAt": ago(1)} if status.get("phase") != "Bound" else found


def with_application(**status: Any) -> Any:
    return a_claim(application=APPLICATION, **({"status": instance_status(**status)} if status else {}))


INSTANCE = claimed_vm("i-1")
USED = claimed_vm("i-1", WarmState.IN_USE)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(
            snapshot(a_claim(application=APPLICATION), candidate=READY, pool=a_pool()),
            ("Failed", "ApplicationNotAllowed"),
            id="the pool allows none",
        ),
        pytest.param(
            snapshot(with_application(), candidate=READY, pool=INSTANCES),
            ReadApplication,
            id="Secrets are read before an instance is taken",
        ),
        pytest.param(
            snapshot(with_application(), candidate=READY, pool=INSTANCES, application=MISSING),
            ("Pending", "ApplicationSourceMissing"),
            id="no instance is taken without the Secrets",
        ),
        pytest.param(
            snapshot(with_application(), candidate=READY, pool=INSTANCES, application={}),
            (ReserveVM, "m"),
            id="the Secrets are there",
        ),
        pytest.param(
            snapshot(a_claim(application=SERVICE), candidate=READY, pool=VMS_WITH_CLOUD_INIT),
            (CreateVM, "OverrideMismatch"),
            id="a VM boots for its application",
        ),
        pytest.param(
            snapshot(with_application(phase="Bound"), INSTANCE, pool=INSTANCES, has_agent=True),
            ReadApplication,
            id="a restarted controller reads the Secrets again",
        ),
        pytest.param(
            snapshot(with_application(phase="Bound"), INSTANCE, pool=INSTANCES, has_agent=True, application={}),
            (CheckHealth, "i-1"),
            id="the launch",
        ),
        pytest.param(
            snapshot(
                a_claim(application=APPLICATION, creationTimestamp=ago(300), status=instance_status(phase="Bound")),
                pool=INSTANCES,
                has_agent=True,
            ),
            ("Failed", "ActivationFailed"),
            id="at the bind deadline, while the agent of the lost instance may still run the application",
        ),
        pytest.param(
            snapshot(with_application(phase="Ready"), USED, pool=INSTANCES, has_agent=True),
            (CheckApplication, "i-1"),
            id="a check is due",
        ),
        pytest.param(
            snapshot(with_application(phase="Ready"), USED, pool=None, has_agent=True),
            (CheckApplication, "i-1"),
            id="a check is due, without the pool",
        ),
        pytest.param(
            snapshot(a_claim(application=APPLICATION), candidate=READY, pool=VMS_WITH_AGENTS, application={}),
            (ReserveVM, "m"),
            id="a warm VM with an agent",
        ),
        pytest.param(
            snapshot(a_claim(application=APPLICATION), claimed_vm(), pool=VMS_WITH_AGENTS, application={}),
            ("Bound", "VMBound"),
            id="a VM is bound before the check launches an application",
        ),
        pytest.param(
            snapshot(a_claim(), claimed_vm(), pool=VMS_WITH_AGENTS),
            (CheckHealth, "m"),
            id="a claim without an application is Ready in one write",
        ),
    ],
)
def test_steps_of_an_application(found: ClaimSnapshot, expected: Any) -> None:
    step = plan(found, NOW)
    assert (type(step), step.vm.uid) == expected if isinstance(step, CheckApplication) else kind(step) == expected


def test_the_status_says_which_secret_a_restarted_controller_does_not_find() -> None:
    claim = with_application(phase="Bound", seconds=5)
    step = plan(snapshot(claim, INSTANCE, pool=INSTANCES, has_agent=True, application=MISSING), NOW)
    assert isinstance(step, UpdateStatus)
    (ready,) = (each for each in step.status.conditions if each.type == "Ready")
    assert (ready.reason, ready.message) == ("ApplicationSourceMissing", "web-i-1: application: no Secret")


def reported(phase: str) -> Health:
    return application_health({"phase": phase})


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param({}, TerminateApplication, id="the agent is asked first"),
        pytest.param({"ending_seconds": 1.0}, CheckApplication, id="the agent says whether it has ended"),
        pytest.param(
            {"ending_seconds": 1.0, "application_health": reported("Running")}, Requeue(0.5), id="it still runs"
        ),
        pytest.param(
            {"ending_seconds": 1.0, "application_health": reported("Pending")}, Requeue(0.5), id="it is about to run"
        ),
        pytest.param(
            {"ending_seconds": 1.0, "application_health": reported("Unknown")}, Requeue(0.5), id="it may still run"
        ),
        pytest.param(
            {"ending_seconds": 31.9, "application_health": reported("Running")},
            Requeue(pytest.approx(0.1)),
            id="its grace period ends soon",
        ),
        pytest.param(
            {"ending_seconds": 32.0, "application_health": reported("Running")},
            DeleteVM,
            id="its grace period is over",
        ),
        pytest.param({"ending_seconds": 1.0, "application_health": reported("Succeeded")}, DeleteVM, id="it has ended"),
        pytest.param({"ending_seconds": 1.0, "application_health": reported("")}, DeleteVM, id="nothing runs"),
        pytest.param(
            {"ending_seconds": 1.0, "application_health": UNHEALTHY}, DeleteVM, id="the agent does not answer"
        ),
        pytest.param({"has_agent": False}, DeleteVM, id="the VM has no agent"),
    ],
)
@pytest.mark.parametrize("phase", ["Releasing", "Expired"])
def test_the_end_of_an_application(found: dict[str, Any], expected: Any, phase: str) -> None:
    s = snapshot(with_application(phase="Ready"), USED, pool=INSTANCES, has_agent=True)
    status = s.claim.status.model_copy(update={"phase": phase})
    step = plan(replace(s, claim=replace(s.claim, status=status), **found), NOW)
    assert step == expected if isinstance(expected, Requeue) else type(step) is expected


def test_an_agent_without_an_application_has_none_to_stop() -> None:
    released = a_claim(status=bound_status("m", phase="Releasing"), release=True)
    found = snapshot(released, claimed_vm("m", WarmState.IN_USE), pool=VMS_WITH_AGENTS, has_agent=True)
    assert kind(plan(found, NOW)) == (DeleteVM, "m")


@pytest.mark.sentence("5.16")
def test_the_health_of_an_application_is_a_condition() -> None:
    ready = snapshot(with_application(phase="Ready"), USED, pool=INSTANCES, has_agent=True)
    first = plan(replace(ready, application_health=RUNNING_APPLICATION), NOW)
    assert isinstance(first, UpdateStatus)
    shown = {c.type: (c.status, c.reason) for c in first.status.conditions}
    assert shown["ApplicationHealthy"] == ("True", "ApplicationRunning")
    written = replace(ready, claim=replace(ready.claim, status=first.status))
    other_words = replace(RUNNING_APPLICATION, message="for an hour")
    waits = plan(replace(written, application_health=other_words), NOW)
    assert isinstance(waits, Requeue), "a message alone is not written"
    assert waits.after_seconds == 10
    failed = plan(replace(written, application_health=FAILED_APPLICATION), NOW)
    assert isinstance(failed, UpdateStatus)
    assert failed.status.phase == "Ready", "the claimant may look for the cause in the instance"
    assert (failed.event.reason, failed.event.type) == ("ApplicationFailed", "Warning")


ENDED = {"phase": "Failed", "finishedAt": ago(60)}
KEEPS = a_pool(claimPolicy={"ttlSecondsAfterFinished": 90})
DELETES = a_pool(claimPolicy={"ttlSecondsAfterFinished": 60})


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(snapshot(a_claim(status=ENDED)), Requeue(), id="it stays as a record"),
        pytest.param(snapshot(a_claim(status=ENDED, ttlSecondsAfterFinished=60)), DeleteClaim(), id="its time is over"),
        pytest.param(snapshot(a_claim(status=ENDED, ttlSecondsAfterFinished=61)), Requeue(1.0), id="it has time left"),
        pytest.param(snapshot(a_claim(status=ENDED), pool=DELETES), DeleteClaim(), id="the pool's time is over"),
        pytest.param(
            snapshot(a_claim(status=ENDED, ttlSecondsAfterFinished=0), pool=KEEPS), DeleteClaim(), id="its own time"
        ),
        pytest.param(
            snapshot(a_claim(status=ENDED, ttlSecondsAfterFinished=0), claimed_vm("m", deleting=True)),
            Requeue(),
            id="its VM is still being deleted",
        ),
    ],
)
def test_a_finished_claim(found: ClaimSnapshot, expected: Step) -> None:
    assert plan(found, NOW) == expected


def test_the_end_of_a_claim_has_a_time() -> None:
    step = plan(snapshot(pool=FAIL), NOW)
    assert isinstance(step, UpdateStatus)
    assert step.status.finished_at == format_micro_time(NOW)


def test_a_vm_that_is_ready_sooner_is_no_second_attempt() -> None:
    step = plan(
        snapshot(
            a_claim(status=COLD_STATUS), claimed_vm("m", vmi=None, activated=True), claimed_vm("sooner"), health=HEALTHY
        ),
        NOW,
    )
    assert isinstance(step, UpdateStatus)
    assert step.status.attempts == 1
    assert step.status.launch_type == "Warm"
    assert step.status.vm_ref.uid == "sooner"


def unrecorded(state: WarmState, **facts: Any) -> ClaimSnapshot:
    """A claim without a VM in its status, and a VM with its UID that no controller has given to it."""
    return snapshot(a_claim(), claimed_vm("forged", state), unrecorded=frozenset({"forged"}), candidate=READY, **facts)


def test_a_claim_gets_no_vm_whose_labels_alone_say_so() -> None:
    assert plan(unrecorded(WarmState.ALLOCATING), NOW) == DeleteUnrecordedVM(claimed_vm("forged"))
    genuine = claimed_vm("m")
    both = replace(unrecorded(WarmState.ALLOCATING), vms=(claimed_vm("forged", created_at=ago(900)), genuine))
    assert plan(both, NOW) == CheckHealth(genuine), "the VM that a controller has reserved"


def test_an_unrecorded_vm_in_use_is_neither_given_nor_deleted() -> None:
    found = unrecorded(WarmState.IN_USE)
    assert said(plan(found, NOW)) == ("Pending", "VMNotRecorded")
    pending = plan(found, NOW)
    assert isinstance(pending, UpdateStatus)
    late = replace(found, claim=replace(found.claim, status=pending.status, created_at=ago(9000)))
    assert isinstance(plan(late, NOW), Requeue), "a claim that failed would delete it"


def test_a_held_vm_needs_no_record_of_its_pool() -> None:
    """The claim's status has the UID of the VM."""
    found = snapshot(a_claim(status=READY_STATUS), claimed_vm("m", WarmState.IN_USE))
    assert isinstance(plan(found, NOW), Requeue | UpdateStatus)


def test_a_forged_vm_does_not_replace_one_that_boots() -> None:
    booting = claimed_vm("m", vmi=a_vmi(ready=False, conditions=frozenset()))
    found = snapshot(a_claim(status=COLD_STATUS), booting, claimed_vm("forged"), unrecorded=frozenset({"forged"}))
    assert isinstance(plan(found, NOW), DeleteVM)


def test_the_message_of_a_timeout_in_a_full_pool_names_the_limit() -> None:
    late = snapshot(a_claim(creationTimestamp=ago(301)), pool=a_pool(maxTotal=2), position=1, pool_full=True)
    step = plan(late, NOW)
    assert isinstance(step, UpdateStatus)
    message = next(each.message for each in step.status.conditions if each.type == "Bound")
    assert message.endswith(" UTC: the pool has its maxTotal of 2 VMs; the claim was at position 1 in the queue")
