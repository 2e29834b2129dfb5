"""Claims of Pods: which pools let them run programs, and when their applications are launched."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controllers.claim.plan import plan
from controllers.claim.pod_notes import PodNote, note_of, parse_pod_note
from controllers.claim.snapshot import parse_claim
from controllers.claim.steps import CheckHealth, DeleteClaim, DeleteVM, ReadApplication, Requeue, Step, UpdateStatus
from controllers.shared.pod_claims import claim_metadata
from controllers.warmpool.agent import application_health
from controllers.warmpool.warm_vm import Owner
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.runtime.store import Store
from tests.controllers.claim.builders import a_claim, bound_status, claimed_vm, snapshot
from tests.controllers.warmpool.builders import NOW, a_pool, ago

Json = dict[str, Any]

RUNNING = application_health({"phase": "Running"})
EC2 = {"imageID": "ami-1", "instanceType": "m5.large", "subnets": ["subnet-a"], "protocol": "GRPC", "port": 8200}
POD = Owner("Pod", "web-0", "u", "v1")
APPLICATION = {"containers": [{"name": "main", "image": "registry.example/app:1"}]}


@pytest.mark.parametrize(
    ("policy", "pod", "refused"),
    [
        pytest.param({"allowPods": True}, POD, None, id="a Pod needs allowPods"),
        pytest.param({"allowApplication": True}, POD, "PodsNotAllowed", id="a Pod gets nothing by allowApplication"),
        pytest.param({"allowPods": True}, None, "ApplicationNotAllowed", id="nobody else gets something by allowPods"),
    ],
)
def test_whom_a_pool_lets_run_programs(policy: dict[str, bool], pod: Owner | None, refused: str | None) -> None:
    grpc = a_pool(template=None, ec2=EC2, claimPolicy=policy)
    claim = replace(a_claim(application={"containers": [{"name": "a", "image": "i"}]}), pod=pod)
    step = plan(snapshot(claim, pool=grpc), NOW)
    assert isinstance(step, UpdateStatus) is (refused is not None)
    if isinstance(step, UpdateStatus):
        assert step.event.reason == refused


APPLICATION = {"containers": [{"name": "a", "image": "i"}]}


@pytest.mark.parametrize(
    ("uid", "note", "pod", "named"),
    [
        pytest.param("u", "mine", POD, True, id="the Pod names the claim"),
        pytest.param("u", "", POD, False, id="the Pod names no claim yet"),
        pytest.param("u", "other", POD, False, id="the Pod has the note of another Pod"),
        pytest.param("v", "mine", POD, False, id="another Pod has the name"),
        pytest.param("", "", POD, False, id="the Pod is gone, or there is no virtual node"),
        pytest.param("u", "mine", None, False, id="a claim of a user has no Pod"),
    ],
)
def test_whether_a_pod_names_its_claim(uid: str, note: str, pod: Owner | None, named: bool) -> None:
    notes: Store[PodNote] = Store()
    if uid:
        metadata = {"namespace": "ns", "name": "web-0", "uid": uid, "annotations": {meta.CLAIM_NAME: note}}
        notes.put(("ns", "web-0"), parse_pod_note({"metadata": metadata}))
    assert (note_of(replace(a_claim(), pod=pod), notes) is not None) is named


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param({"may_launch": False}, ReadApplication, id="the application is read meanwhile"),
        pytest.param({"may_launch": False, "application": {}}, Requeue, id="the Pod does not name the claim yet"),
        pytest.param({"may_launch": True, "application": {}}, CheckHealth, id="the Pod names the claim"),
    ],
)
def test_an_application_is_launched_after_the_pod_names_the_claim(facts: Any, expected: type[Step]) -> None:
    grpc = a_pool(template=None, ec2=EC2, claimPolicy={"allowPods": True})
    claim = replace(a_claim(application=APPLICATION, status=bound_status("m")), pod=POD)
    assert isinstance(plan(snapshot(claim, claimed_vm("m"), pool=grpc, **facts), NOW), expected)


def test_a_vm_whose_pod_never_names_the_claim_is_given_up_in_time() -> None:
    claim = replace(a_claim(application=APPLICATION, status=bound_status("m")), pod=POD)
    found = snapshot(claim, claimed_vm("m"), pool=a_pool(), may_launch=False, application={}, has_agent=True)
    step = plan(found, NOW + timedelta(seconds=901))
    assert isinstance(step, DeleteVM)
    assert "PodNotUpdated" in step.reason


@pytest.mark.parametrize(
    ("facts", "grace"),
    [
        pytest.param({}, 30, id="that of the Pod's spec"),
        pytest.param({"deletion_grace_seconds": 60}, 60, id="that of the deletion, if it is longer"),
        pytest.param({"deletion_grace_seconds": 1}, 1, id="that of the deletion, if it is shorter"),
    ],
)
def test_which_grace_period_counts(facts: Any, grace: int) -> None:
    application = {**APPLICATION, "terminationGracePeriodSeconds": 30}
    claim = replace(
        a_claim(application=application, release=True, status=bound_status("m", phase="Releasing")), pod=POD
    )
    pool = a_pool(template=None, ec2=EC2, claimPolicy={"allowPods": True})

    def step(seconds: float) -> Step:
        facts_then = {"ending_seconds": seconds, "application_health": RUNNING, "has_agent": True, **facts}
        return plan(snapshot(claim, claimed_vm("m"), pool=pool, **facts_then), NOW)

    assert isinstance(step(grace + 1.0), Requeue)
    assert isinstance(step(grace + 2.0), DeleteVM)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({}, "Releasing", id="before it has a VM"),
        pytest.param(bound_status("m", phase="Ready"), "Releasing", id="while its VM is in use"),
        pytest.param(bound_status("m", phase="Releasing"), DeleteVM, id="its VM is deleted"),
        pytest.param(bound_status("m", phase="Released"), DeleteVM, id="its VM is deleted when the claim has ended"),
    ],
)
def test_a_claim_that_has_lost_its_pod_is_released(status: Json, expected: Any) -> None:
    claim = replace(a_claim(status=status), pod=POD, lost_pod=True)
    vms = [claimed_vm("m", WarmState.IN_USE)] if status else []
    step = plan(snapshot(claim, *vms), NOW)
    if isinstance(step, UpdateStatus):
        (condition,) = (each for each in step.status.conditions if each.type == "Ready")
        assert condition.message == "Pod web-0 is not the controller of its claim any more"
        assert step.status.phase == expected
    else:
        assert isinstance(step, expected)


def test_a_claim_that_has_lost_its_pod_is_deleted_after_its_vm() -> None:
    """The garbage collector deletes the claims of Pods that are gone, by their owner references."""
    released = replace(a_claim(status={"phase": "Released", "finishedAt": ago(0)}), pod=POD)
    assert plan(snapshot(released), NOW) == Requeue()
    assert plan(snapshot(replace(released, lost_pod=True)), NOW) == DeleteClaim()


def test_a_user_who_gives_a_claim_to_a_pod_gains_nothing() -> None:
    document = {"metadata": claim_metadata("web-0", "u") | {"uid": "c"}, "spec": {"poolName": "web"}}
    assert parse_claim(document).pod == POD
    forged = {**document, "metadata": {**document["metadata"], "name": "mine"}}
    assert parse_claim(forged).pod is None


GOING = claimed_vm("m", WarmState.IN_USE, deleting=True)
OF_POD = replace(a_claim(status=bound_status("m", phase="Ready", readyAt=ago(5)), application=APPLICATION), pod=POD)


def test_a_claim_of_a_pod_fails_after_its_vm() -> None:
    """The controller of a Pod replaces a Pod that has failed, and the application must not run twice."""
    step = plan(snapshot(OF_POD, GOING, has_agent=True), NOW)
    assert isinstance(step, UpdateStatus)
    (ready,) = (each for each in step.status.conditions if each.type == "Ready")
    assert (step.status.phase, ready.status, ready.reason) == ("Ready", "False", "VMLost")
    written = replace(OF_POD, status=step.status)
    assert isinstance(plan(snapshot(written, GOING, has_agent=True), NOW), Requeue)
    gone = plan(snapshot(written), NOW)
    assert isinstance(gone, UpdateStatus)
    assert gone.status.phase == "Failed"


@pytest.mark.parametrize(
    ("status", "age", "expected"),
    [
        pytest.param(bound_status("m"), 2, "", id="it waits for the end of the VM"),
        pytest.param(bound_status("m"), 600, "Failed", id="not for ever"),
        pytest.param(bound_status("m", attempts=2), 2, "Failed", id="not after the second attempt"),
    ],
)
def test_an_application_that_may_have_been_launched_is_launched_in_no_other_vm(
    status: Json, age: float, expected: str
) -> None:
    """The agent may have launched it without an answer, and runs it until the VM is gone."""
    claim = replace(a_claim(status=status, application=APPLICATION, creationTimestamp=ago(age)), pod=POD)
    step = plan(snapshot(claim, replace(GOING, state=WarmState.ALLOCATING), has_agent=True), NOW)
    assert (step.status.phase if isinstance(step, UpdateStatus) else "") == expected
    if not expected:
        assert isinstance(step, Requeue)
        assert 0 < (step.after_seconds or 0) <= 5
