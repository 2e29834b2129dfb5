"""The status of a Pod, from the status of its claim."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controllers.virtualnode.pod import Pod, PodClaim, parse_claim, parse_pod
from controllers.virtualnode.pod_status import Waiting, deadline, failed_status, running_status, waiting_status
from poolhouse.api.apimachinery.merge_patch import apply_patch
from tests.controllers.virtualnode.pods import Json, claim, pod

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
STARTED, ENDED = "2026-01-01T00:00:06Z", "2026-01-01T00:00:09Z"
RUNNING = {"name": "main", "ready": True, "restartCount": 0, "state": {"running": {"startedAt": STARTED}}}


def a_pod(**parts: Any) -> Pod:
    return parse_pod(pod(**parts))


def a_claim(addresses: list[str] | None = None, **parts: Any) -> PodClaim:
    """The claim, with the confirmed addresses of its VM."""
    found = parse_claim(claim(**parts))
    assert found is not None
    return replace(found, addresses=None if addresses is None else tuple(addresses))


def ended(code: int, name: str = "main", **more: Any) -> Json:
    state = {"terminated": {"exitCode": code, "startedAt": STARTED, "finishedAt": ENDED, **more}}
    return {"name": name, "ready": False, "restartCount": 0, "state": state}


def running(status: Json | None = None, spec: Json | None = None, **parts: Any) -> Json:
    return running_status(a_pod(status=status, **(spec or {})), a_claim(**parts), NOW)


def told(status: Json) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each.get("reason", "")) for each in status["conditions"]}


def test_a_pod_that_waits_says_why() -> None:
    found = waiting_status(a_pod(), Waiting("Queued", "no VM is ready"), NOW)
    assert (found["phase"], found["reason"], found["message"]) == ("Pending", "Queued", "no VM is ready")
    assert told(found) == {
        "PodReadyToStartContainers": ("False", ""),
        "Initialized": ("True", ""),
        "ContainersReady": ("False", "ContainersNotReady"),
        "Ready": ("False", "ContainersNotReady"),
        "PodScheduled": ("True", ""),
        "poolhouse.dev/warm-vm": ("False", "Queued"),
    }


def test_a_pod_with_a_vm_creates_its_containers() -> None:
    found = running({"reason": "Queued", "message": "no VM is ready"})
    assert (found["phase"], found["reason"], found["message"]) == ("Pending", None, None)
    assert found["startTime"] == "2026-01-01T00:00:04Z"
    (container,) = found["containerStatuses"]
    assert container["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert told(found)["poolhouse.dev/warm-vm"] == ("True", "VMBound")


def test_a_pod_says_what_its_vm_waits_for() -> None:
    found = running(phase="Bound", why=("NoAnswer", "the agent does not answer"))
    assert found["phase"] == "Pending"
    assert told(found)["poolhouse.dev/warm-vm"] == ("False", "NoAnswer")


def test_a_pod_runs_as_its_agent_says() -> None:
    found = running(application={"phase": "Running", "containers": [RUNNING]}, addresses=["10.1.2.3", "fd00::1"])
    assert found["phase"] == "Running"
    assert found["podIP"] == found["hostIP"] == "10.1.2.3"
    assert found["podIPs"] == found["hostIPs"] == [{"ip": "10.1.2.3"}, {"ip": "fd00::1"}]
    (container,) = found["containerStatuses"]
    assert container == {
        **{"name": "main", "image": "alpine", "imageID": "", "ready": True, "started": True, "restartCount": 0},
        "state": {"running": {"startedAt": STARTED}},
        "lastState": {},
    }
    assert {told(found)[each] for each in ("Initialized", "ContainersReady", "Ready")} == {("True", "")}


@pytest.mark.parametrize(
    ("addresses", "ips"),
    [
        (["10.1.2.3", "10.1.2.4", "fd00::1"], ["10.1.2.3", "fd00::1"]),
        (["fd00::1", "10.1.2.3"], ["fd00::1", "10.1.2.3"]),
        (["10.1.2.3/24"], ["10.1.2.3"]),
        (["no address"], None),
        (["169.254.169.254", "fd00::1"], ["fd00::1"]),
        (["127.0.0.1", "::1", "0.0.0.0", "224.0.0.1", "ff02::1", "fe80::1", "fe80::1%eth0", "fd00::1%1"], None),
        (["::ffff:127.0.0.1", "::ffff:10.1.2.3"], ["10.1.2.3"]),
        ([], None),
    ],
)
def test_a_pod_has_one_address_of_each_family(addresses: list[str], ips: list[str] | None) -> None:
    found = running(addresses=addresses)
    assert found.get("podIPs") == (None if ips is None else [{"ip": ip} for ip in ips])


@pytest.mark.parametrize(
    ("addresses", "ip"),
    [
        pytest.param(None, "10.1.2.3", id="nothing is known of the VM's addresses"),
        pytest.param(["10.1.2.4"], "10.1.2.4", id="the VM has migrated"),
        pytest.param([], None, id="the VM does not have the address any more"),
    ],
)
def test_a_pod_keeps_no_address_that_its_vm_has_lost(addresses: list[str] | None, ip: str | None) -> None:
    stored = apply_patch({}, running(addresses=["10.1.2.3"]))
    found = apply_patch(stored, running(status=stored, addresses=addresses))
    assert [found.get(each) for each in ("podIP", "hostIP")] == [ip, ip]


@pytest.mark.parametrize(
    ("reported", "before", "phase"),
    [
        ("", "Pending", "Pending"),
        ("Pending", "Pending", "Pending"),
        ("Unknown", "Pending", "Pending"),
        ("Running", "Pending", "Running"),
        ("Unknown", "Running", "Running"),
        ("Pending", "Running", "Running"),
        ("Succeeded", "Pending", "Succeeded"),
        ("Failed", "Running", "Failed"),
    ],
)
def test_phase(reported: str, before: str, phase: str) -> None:
    assert running({"phase": before}, application={"phase": reported})["phase"] == phase


def test_a_job_completes() -> None:
    report = {"phase": "Succeeded", "containers": [ended(0)]}
    found = running({"phase": "Running"}, {"restartPolicy": "Never"}, application=report)
    assert found["containerStatuses"][0]["state"]["terminated"] == {
        "exitCode": 0,
        "reason": "Completed",
        "startedAt": STARTED,
        "finishedAt": ENDED,
    }
    assert told(found)["Ready"] == told(found)["ContainersReady"] == ("False", "PodCompleted")
    assert told(found)["Initialized"] == ("True", "PodCompleted")


def test_a_program_that_fails_is_an_error() -> None:
    report = {"phase": "Failed", "reason": "Broken", "message": "it broke", "containers": [ended(3, signal=9)]}
    found = running(application=report)
    assert (found["reason"], found["message"]) == ("Broken", "it broke")
    terminated = found["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"], terminated["signal"]) == (3, "Error", 9)
    assert told(found)["Ready"] == ("False", "PodFailed")


def test_a_restart_counts_and_keeps_the_last_state() -> None:
    crashed = {"restartCount": 2, "lastState": ended(1)["state"], "ready": False}
    (container,) = running(application={"phase": "Running", "containers": [{**RUNNING, **crashed}]})[
        "containerStatuses"
    ]
    assert container["restartCount"] == 2
    assert container["lastState"]["terminated"]["reason"] == "Error"


@pytest.mark.parametrize(
    ("policy", "code", "kept"),
    [("Never", 1, True), ("OnFailure", 0, True), ("OnFailure", 1, False), ("Always", 0, False)],
)
def test_a_container_that_must_not_start_again_stays_ended(policy: str, code: int, kept: bool) -> None:
    before = {"containerStatuses": [{**ended(code), "image": "alpine", "imageID": ""}]}
    report = {"phase": "Running", "containers": [RUNNING]}
    (container,) = running(before, {"restartPolicy": policy}, application=report)["containerStatuses"]
    assert ("terminated" in container["state"]) is kept


def test_the_status_of_a_pod_reports_init_containers_before_containers() -> None:
    init = {"initContainers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]}
    report = {"phase": "Pending", "initContainers": [ended(0, "a"), {**RUNNING, "name": "b"}]}
    found = running(spec=init, application=report)
    assert [(each["name"], each["ready"]) for each in found["initContainerStatuses"]] == [("a", True), ("b", False)]
    assert found["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
    initialized = next(each for each in found["conditions"] if each["type"] == "Initialized")
    assert initialized["reason"] == "ContainersNotInitialized"
    assert initialized["message"] == "containers with incomplete status: [b]"


@pytest.mark.parametrize(
    ("stated", "ready"),
    [
        ([], ("False", "ReadinessGatesNotReady")),
        ([{"type": "example.com/lb", "status": "False"}], ("False", "ReadinessGatesNotReady")),
        ([{"type": "example.com/lb", "status": "True"}], ("True", "")),
    ],
)
def test_readiness_gates(stated: list[Json], ready: tuple[str, str]) -> None:
    gates = {"readinessGates": [{"conditionType": "example.com/lb"}]}
    report = {"phase": "Running", "containers": [RUNNING]}
    found = running({"conditions": stated}, gates, application=report)
    assert told(found)["Ready"] == ready
    assert told(found)["ContainersReady"] == ("True", "")
    assert all(each in found["conditions"] for each in stated)


def test_a_pod_whose_vm_does_not_answer_is_not_ready() -> None:
    report = {"phase": "Running", "containers": [RUNNING]}
    found = running(application=report, why=("VMNotReady", "warm-1: it does not run"))
    assert told(found)["Ready"] == ("False", "VMNotReady")


@pytest.mark.parametrize(
    ("phase", "reason", "ready"),
    [
        pytest.param("Running", "NoAnswer", ("True", ""), id="its agent is away"),
        pytest.param("Failed", "ApplicationFailed", ("False", "PodFailed"), id="it failed"),
    ],
)
def test_a_pod_has_its_own_condition_of_its_application(phase: str, reason: str, ready: tuple[str, str]) -> None:
    """The claim is not ready because of the application."""
    conditions = [{"type": kind, "status": "False", "reason": reason} for kind in ("Ready", "ApplicationHealthy")]
    found = running(application={"phase": phase, "containers": [RUNNING]}, conditions=conditions)
    assert told(found)["Ready"] == ready


def test_a_pod_that_lost_its_vm_has_failed() -> None:
    before = running(application={"phase": "Running", "containers": [RUNNING]})
    found = failed_status(a_pod(status=before), "VMLost", "the VM is gone", NOW)
    assert (found["phase"], found["reason"], found["message"]) == ("Failed", "VMLost", "the VM is gone")
    terminated = found["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (137, "VMLost"), "kubectl shows the container's"
    assert terminated["startedAt"] == STARTED
    assert told(found)["Ready"] == ("False", "PodFailed")


@pytest.mark.parametrize("application", [{}, {"phase": "Running", "containers": [{**RUNNING, "lastState": {}}]}])
def test_the_same_facts_give_the_same_status(application: Json) -> None:
    facts = {"application": application, "addresses": ["10.1.2.3"]}
    stored = apply_patch({}, running(**facts))
    again = running_status(a_pod(status=stored), a_claim(**facts), NOW + timedelta(hours=1))
    assert apply_patch(stored, again) == stored


def test_a_condition_keeps_the_time_of_its_transition() -> None:
    first = waiting_status(a_pod(), Waiting("Queued", "a"), NOW)
    later = waiting_status(a_pod(status=first), Waiting("MaxTotalReached", "b"), NOW + timedelta(hours=1))
    assert {each["lastTransitionTime"] for each in later["conditions"]} == {"2026-01-01T00:01:00Z"}


@pytest.mark.parametrize(("seconds", "end"), [(60, NOW), (None, None)])
def test_deadline(seconds: int | None, end: datetime | None) -> None:
    given = {} if seconds is None else {"activeDeadlineSeconds": seconds}
    assert deadline(a_pod(status={"startTime": "2026-01-01T00:00:00Z"}, **given)) == end
    assert deadline(a_pod(**given)) is None


def test_an_ephemeral_container_has_ended_before_it_runs() -> None:
    spec = {"ephemeralContainers": [{"name": "debugger-x7", "image": "busybox"}]}
    status = running(spec=spec)
    (found,) = status["ephemeralContainerStatuses"]
    assert (found["name"], found["image"]) == ("debugger-x7", "busybox")
    assert found["state"]["terminated"]["reason"] == "EphemeralContainersNotSupported"
    stored = json.loads(json.dumps(status))
    later = running_status(a_pod(status=stored, **spec), a_claim(), NOW + timedelta(hours=1))
    assert later["ephemeralContainerStatuses"] == stored["ephemeralContainerStatuses"]
    assert "ephemeralContainerStatuses" not in running()
