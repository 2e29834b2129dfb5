"""What happens to a Pod of the virtual node next."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from controllers.claim.reasons import ClaimReason
from controllers.shared.pod_claims import claim_name
from controllers.virtualnode.pod import PodPool, parse_claim, parse_pod, parse_pool
from controllers.virtualnode.pod_plan import (
    PASSING,
    CreateClaim,
    DropClaim,
    ReleaseClaim,
    RemovePod,
    Step,
    Wait,
    WriteStatus,
    plan,
)
from controllers.virtualnode.pod_status import Waiting
from controllers.virtualnode.reasons import PodReason
from poolhouse.api.apimachinery.merge_patch import apply_patch
from tests.controllers.virtualnode.pods import CLAIM_OF_WEB, Json, claim, pod

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
DELETED = {"deletionTimestamp": "2026-01-01T00:00:59Z"}
HANDED_OVER = {"annotations": {"poolhouse.dev/claim-name": CLAIM_OF_WEB}}
OTHER_POD = {"annotations": {"poolhouse.dev/claim-name": "web-00000000"}}
ENDED = {"phase": "Succeeded"}


def a_pool(name: str = "std", *, default: bool = True, pods: bool = True) -> PodPool:
    spec = {"default": default, "claimPolicy": {"allowPods": pods}}
    return parse_pool({"metadata": {"namespace": "ns", "name": name, "uid": name}, "spec": spec})


def step(pod: Json, claim: Json | None = None, *pools: PodPool, refused: Waiting | None = None) -> Step:
    found = parse_claim(claim) if claim is not None else None
    return plan(parse_pod(pod), found, pools or (a_pool(),), refused, NOW)


def written(found: Step) -> Json:
    assert isinstance(found, WriteStatus), found
    return found.patch


def test_the_name_of_the_claim() -> None:
    assert claim_name("web", "u-1") == CLAIM_OF_WEB


@pytest.mark.parametrize(
    ("pod", "claim", "kind"),
    [
        pytest.param(pod(), None, CreateClaim, id="a new Pod gets a claim"),
        pytest.param(pod(metadata=OTHER_POD), None, CreateClaim, id="also if it has the note of another Pod"),
        pytest.param(pod(), claim("Pending", vm=""), Wait, id="a new claim says nothing yet"),
        pytest.param(pod(metadata=DELETED), None, RemovePod, id="a deleted Pod without a claim goes"),
        pytest.param(pod(metadata=DELETED), claim("Queued", vm=""), ReleaseClaim, id="a queued one frees its place"),
        pytest.param(pod(metadata=DELETED), claim(), ReleaseClaim, id="a running one ends first"),
        pytest.param(pod(metadata=DELETED), claim("Queued", vm="", release=True), Wait, id="and is released once"),
        pytest.param(pod(metadata=DELETED), claim(lost=True, vm=""), Wait, id="nor by the Pod that lost it"),
        pytest.param(pod(metadata=DELETED), claim("Released"), RemovePod, id="a Pod goes after its VM"),
        pytest.param(
            pod(metadata=DELETED), claim("Failed"), DropClaim, id="the VM of a failed claim may still be going"
        ),
        pytest.param(pod(metadata=DELETED), claim("Expired"), DropClaim, id="as that of an expired claim"),
        pytest.param(pod(metadata=DELETED), claim("Failed", dropped=True), Wait, id="until the claim goes after it"),
        pytest.param(pod(status=ENDED), claim(), ReleaseClaim, id="a Pod that has ended keeps no VM"),
        pytest.param(pod(status=ENDED), claim(release=True), Wait, id="it releases its VM once"),
        pytest.param(pod(status=ENDED), claim("Released"), Wait, id="it stays"),
        pytest.param(pod(status=ENDED), None, Wait, id="it stays without its claim"),
        pytest.param(
            pod(metadata=DELETED, status=ENDED), claim("Releasing", release=True), Wait, id="it goes after its VM, too"
        ),
    ],
)
def test_step(pod: Json, claim: Json | None, kind: type[Step]) -> None:
    assert isinstance(step(pod, claim), kind)


@pytest.mark.parametrize(
    ("annotations", "pools", "reason", "message"),
    [
        pytest.param({}, [a_pool(default=False)], "NoWarmPool", "its warm pools are: std", id="no default pool"),
        pytest.param(
            {"poolhouse.dev/warm-pool": "mac"}, [a_pool()], "NoWarmPool", "no warm pool mac", id="no such pool"
        ),
        pytest.param(
            {"poolhouse.dev/warm-pool": "x" * 100_000}, [a_pool()], "NoWarmPool", 'xxx..." in', id="a long annotation"
        ),
        pytest.param(
            {}, [a_pool(f"p{n}", default=False) for n in range(100)], "NoWarmPool", ", and 50 more", id="many pools"
        ),
        pytest.param({}, [a_pool(pods=False)], "PodsNotAllowed", "allowPods", id="a pool that takes no Pods"),
        pytest.param(
            {"poolhouse.dev/warm-pool": "mac"},
            [a_pool(), a_pool("mac", default=False, pods=False)],
            "PodsNotAllowed",
            "warm pool mac",
            id="the named pool counts",
        ),
    ],
)
def test_a_pod_without_a_pool_waits(annotations: Json, pools: list[PodPool], reason: str, message: str) -> None:
    waiting = pod(metadata={"annotations": annotations})
    first = step(waiting, None, *pools)
    status = written(first)["status"]
    assert (status["reason"], message in status["message"]) == (reason, True)
    assert len(status["message"]) < 500
    assert isinstance(first, WriteStatus)
    assert first.events == (("Warning", reason, status["message"]),)
    stored = apply_patch(waiting, {"status": status})
    assert step(stored, None, *pools) == Wait()
    named = a_pool(annotations.get("poolhouse.dev/warm-pool", "mac"))
    assert isinstance(step(stored, None, a_pool(), named), CreateClaim)


def test_a_refused_pod_waits() -> None:
    refused = Waiting(PodReason.FIELDS_NOT_SUPPORTED, "spec.hostNetwork")
    status = written(step(pod(), refused=refused))["status"]
    assert (status["reason"], status["message"]) == ("FieldsNotSupported", "spec.hostNetwork")
    stored = json.loads(json.dumps(apply_patch(pod(), {"status": status})))
    assert step(stored, refused=refused) == Wait()


@pytest.mark.parametrize("metadata", [{}, DELETED], ids=["waits", "deleted, with a finalizer"])
@pytest.mark.parametrize(
    ("requests", "reason"),
    [
        pytest.param({"cpu": "16384", "memory": "32Ti", "ephemeral-storage": "32Ti"}, None, id="the most"),
        pytest.param({"cpu": "16384001m"}, "OutOfcpu", id="CPUs"),
        pytest.param({"memory": "9223372036854775807"}, "OutOfmemory", id="memory"),
        pytest.param({"ephemeral-storage": "33Ti"}, "OutOfephemeral-storage", id="storage"),
        pytest.param({"poolhouse.dev/warm-vm": "2k"}, "OutOfpoolhouse.dev/warm-vm", id="VMs"),
    ],
)
def test_a_pod_that_requests_more_than_any_vm_has_ends(metadata: Json, requests: Json, reason: str | None) -> None:
    greedy = pod(metadata=metadata, container={"resources": {"requests": requests}})
    found = step(greedy)
    if reason is None:
        assert not isinstance(found, WriteStatus)
        return
    status = written(found)["status"]
    assert (status["phase"], status["reason"]) == ("Failed", reason)
    assert isinstance(found, WriteStatus)
    assert found.events == (("Warning", reason, status["message"]),)
    after = step(apply_patch(greedy, {"status": status}))
    assert after == (RemovePod() if metadata else Wait())


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("Queued", "Normal"),
        ("MaxTotalReached", "Normal"),
        ("ApplicationSourceMissing", "Warning"),
        ("ApplicationSourceForbidden", "Warning"),
        ("PoolPaused", "Warning"),
    ],
)
def test_a_person_is_warned_of_what_does_not_pass_by_itself(reason: str, kind: str) -> None:
    first = step(pod(), claim("Pending", vm="", why=(reason, "why")))
    assert isinstance(first, WriteStatus)
    assert first.events == ((kind, reason, "why"),)


def test_reasons_that_pass_are_those_of_claims() -> None:
    assert {each.value for each in ClaimReason} >= PASSING


def test_a_pod_says_why_its_claim_waits() -> None:
    queued = claim("Queued", vm="", why=("Queued", "no VM is ready"))
    first = step(pod(), queued)
    status = written(first)["status"]
    assert status["reason"] == "Queued"
    assert isinstance(first, WriteStatus)
    assert first.events == (("Normal", "Queued", "no VM is ready"),)
    assert step(apply_patch(pod(), {"status": status}), queued) == Wait()


def test_a_pod_that_runs_is_not_pending_again() -> None:
    """The Pod is newer than what the store shows of its claim."""
    running = pod(metadata=HANDED_OVER, status={"phase": "Running"})
    assert step(running, claim("Queued", vm="", why=("Queued", "no VM is ready"))) == Wait()


@pytest.mark.parametrize(
    ("finished", "expected"), [("2026-01-01T00:00:50Z", Wait(50.0)), ("2026-01-01T00:00:00Z", DropClaim)]
)
def test_a_claim_that_failed_without_a_vm_is_tried_again(finished: str, expected: Any) -> None:
    failed = claim("Failed", vm="", why=("NoCapacity", "no VM"), finishedAt=finished)
    status = written(step(pod(), failed))["status"]
    assert "phase" not in status  # the Pod stays Pending
    again = step(apply_patch(pod(), {"status": status}), failed)
    assert again == expected or isinstance(again, expected)


def test_the_pod_follows_its_vm_and_says_which() -> None:
    first = step(pod(), claim(application={"phase": "Running"}))
    patch = written(first)
    assert patch["metadata"] == {
        "uid": "u-1",
        "resourceVersion": "7",
        "annotations": {
            "poolhouse.dev/claim-name": CLAIM_OF_WEB,
            "poolhouse.dev/vm": "warm-1",
            "poolhouse.dev/warm-state": "InUse",
        },
    }
    assert patch["status"]["phase"] == "Running"
    assert isinstance(first, WriteStatus)
    assert first.events == (("Normal", "VMBound", "warm-1 belongs to this Pod alone"),)


def test_an_event_says_why_a_container_waits_once() -> None:
    """`kubectl describe pod` shows the reason of a container that waits, and no message."""

    def waiting(message: str) -> Json:
        state = {"waiting": {"reason": "ImageNotSupported", "message": message}}
        return {"phase": "Pending", "containers": [{"name": "main", "state": state}]}

    bound = apply_patch(pod(), written(step(pod(), claim(application={"phase": "Pending"}))))
    found = step(bound, claim(application=waiting("it needs podman")))
    assert isinstance(found, WriteStatus)
    assert found.events == (("Warning", "ContainerWaiting", "container main: ImageNotSupported: it needs podman"),)
    told = apply_patch(bound, written(found))
    assert not isinstance(step(told, claim(application=waiting("it needs podman"))), WriteStatus)
    other = step(told, claim(application=waiting("it needs much")))
    assert isinstance(other, WriteStatus)
    assert other.events
    with_vm = step(pod(), claim(application=waiting("it needs podman")))
    assert isinstance(with_vm, WriteStatus)
    assert [reason for _, reason, _ in with_vm.events] == ["VMBound", "ContainerWaiting"]


def test_a_pod_names_its_claim_before_its_application_is_launched() -> None:
    first = step(pod(), claim("Bound", application={}))
    assert isinstance(first, WriteStatus)
    assert first.events == (), "another VM may take its place"
    patch = first.patch
    assert patch["metadata"]["annotations"] == {
        "poolhouse.dev/claim-name": CLAIM_OF_WEB,
        "poolhouse.dev/vm": "warm-1",
        "poolhouse.dev/warm-state": "PENDING_POD_PROVISIONING",
    }


NAMED = {"annotations": {**HANDED_OVER["annotations"], "poolhouse.dev/vm": "warm-1"}}


@pytest.mark.parametrize(
    ("claim", "forgotten"),
    [
        pytest.param(
            claim("Pending", vm="", why=("NotReady", "once more")), {"vm"}, id="the claim may launch in its next VM"
        ),
        pytest.param(
            claim("Failed", vm="", why=("NotReady", "twice")), {"vm", "claim-name"}, id="another claim may launch"
        ),
        pytest.param(claim("Released", vm=""), {"vm", "claim-name"}, id="somebody released the claim without a VM"),
    ],
)
def test_a_pod_whose_vm_was_not_handed_over_gets_another_one(claim: Json, forgotten: set[str]) -> None:
    named = pod(metadata=NAMED)
    patch = written(step(named, claim))
    assert patch["metadata"]["annotations"] == {f"poolhouse.dev/{name}": None for name in forgotten}
    assert patch["status"]["reason"]
    assert isinstance(step(apply_patch(named, patch), claim), Wait | DropClaim)


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        pytest.param(None, "ClaimLost", id="its claim was deleted"),
        pytest.param(claim("Failed", why=("VMLost", "gone")), "VMLost", id="its VM was lost"),
        pytest.param(claim("Expired"), "Expired", id="its claim does not say why"),
        pytest.param(claim("Expired", why=("Expired", "over")), "Expired", id="its time is over"),
        pytest.param(claim("Released", why=("Released", "given back")), "Released", id="somebody released its claim"),
    ],
)
def test_a_pod_fails_with_its_vm(claim: Json | None, reason: str) -> None:
    first = step(pod(metadata=HANDED_OVER), claim)
    status = written(first)["status"]
    assert (status["phase"], status["reason"]) == ("Failed", reason)
    assert status["message"]


def test_a_pod_whose_application_has_ended_does_not_fail_with_its_vm() -> None:
    done = claim("Failed", application={"phase": "Succeeded"}, why=("VMLost", "gone"))
    assert written(step(pod(metadata=HANDED_OVER), done))["status"]["phase"] == "Succeeded"


def test_a_pod_fails_at_its_deadline() -> None:
    started = pod(status={"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}, activeDeadlineSeconds=30)
    status = written(step(started, claim(application={"phase": "Running"})))["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")
    running = pod(status={"phase": "Running", "startTime": "2026-01-01T00:00:50Z"}, activeDeadlineSeconds=30)
    first = step(running, claim(application={"phase": "Running"}))
    assert step(apply_patch(running, written(first)), claim(application={"phase": "Running"})) == Wait(20.0)


@pytest.mark.parametrize(
    "of_pod",
    [
        pytest.param(claim("Bound"), id="its VM was never handed over"),
        pytest.param(claim("Queued", vm=""), id="it waits for another VM"),
        pytest.param(None, id="it has no claim any more"),
    ],
)
def test_a_pod_fails_at_its_deadline_also_before_its_vm_is_handed_over(of_pod: Json | None) -> None:
    started = pod(status={"phase": "Pending", "startTime": "2026-01-01T00:00:00Z"}, activeDeadlineSeconds=30)
    status = written(step(started, of_pod))["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")


def test_a_pod_that_waits_for_another_vm_is_looked_at_again_at_its_deadline() -> None:
    waiting = pod(status={"phase": "Pending", "startTime": "2026-01-01T00:00:50Z"}, activeDeadlineSeconds=30)
    assert step(waiting, claim("Queued", vm="")) == Wait(20.0)
