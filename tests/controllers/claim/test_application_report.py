"""What of an agent's report gets into the status of a claim."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.claim.application_report import Accepted, application_status, judged
from controllers.claim.plan import plan
from controllers.claim.steps import CheckHealth, UpdateStatus
from controllers.warmpool.agent import ApplicationHealth, application_health
from controllers.warmpool.agent_reasons import AgentReason
from controllers.warmpool.backends import Health
from poolhouse.api.kinds.application import Application
from poolhouse.api.kinds.application_status import ApplicationStatus
from poolhouse.api.kinds.metav1 import Condition
from poolhouse.api.kinds.warm_states import WarmState
from tests.controllers.claim.builders import a_claim, bound_status, claimed_vm, snapshot
from tests.controllers.warmpool.builders import NOW, a_pool, ago

Json = dict[str, Any]

BEGAN = "2026-01-01T00:00:00Z"
RUNS = {"name": "web", "ready": True, "state": {"running": {"startedAt": BEGAN}}}
IMAGE = "registry.example/app:1"
APPLICATION = Application.model_validate(
    {"initContainers": [{"name": "first", "image": IMAGE}], "containers": [{"name": "web", "image": IMAGE}]}
)
READY = {"phase": "Ready", "readyAt": ago(60)}


def reported(**status: Any) -> Json:
    found = application_status(application_health(status))
    return found.json()


def test_a_report_is_taken_over() -> None:
    container = {
        "name": "web",
        "ready": True,
        "started": True,
        "restartCount": 2,
        "image": "nginx:1",
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        "lastState": {"terminated": {"exitCode": 137, "signal": 9, "reason": "Error", "message": "out of memory"}},
    }
    found = reported(phase="Running", startTime="2026-01-01T00:00:00Z", containerStatuses=[container])
    assert found["phase"] == "Running"
    assert found["startTime"] == "2026-01-01T00:00:00Z"
    assert found["initContainers"] == []
    assert found["containers"] == [{key: value for key, value in container.items() if key != "image"}]


@pytest.mark.parametrize(
    ("status", "path", "value"),
    [
        pytest.param({"phase": "Dancing"}, ("phase",), "Unknown", id="an unknown phase"),
        pytest.param({"phase": "Failed", "reason": "r" * 999}, ("reason",), "r" * 256, id="a long reason"),
        pytest.param({"phase": "Failed", "message": "m" * 9999}, ("message",), "m" * 4096, id="a long message"),
        pytest.param(
            {"containerStatuses": [{"name": "a", "restartCount": -1}]},
            ("containers", 0, "restartCount"),
            0,
            id="a negative count",
        ),
        pytest.param(
            {"containerStatuses": [{"name": "a", "state": {"waiting": {}, "terminated": {"exitCode": 1}}}]},
            ("containers", 0, "state"),
            {"terminated": {"exitCode": 1, "reason": "", "message": ""}},
            id="two states",
        ),
    ],
)
def test_a_report_is_cut_to_the_schema(status: Json, path: tuple[Any, ...], value: object) -> None:
    found: Any = reported(**status)
    for step in path:
        found = found[step]
    assert found == value


def test_a_report_has_each_name_once_and_sixteen_at_most() -> None:
    found = reported(containerStatuses=[{"name": f"c{number % 20}"} for number in range(40)])
    assert [each["name"] for each in found["containers"]] == [f"c{number}" for number in range(16)]


def test_without_an_answer_the_status_stays() -> None:
    assert application_status(None) is None
    assert application_status(Health("Failed", "NoAnswer", "gone")) is None


def accepted(reported: Json | None = None, seconds: float = 60.0, **facts: Any) -> Accepted:
    """An application that the agent has accepted, and its last status."""
    return Accepted(facts.get("application", APPLICATION), ApplicationStatus.model_validate(reported or {}), seconds)


@pytest.mark.parametrize(
    ("known", "ended"),
    [
        pytest.param(accepted({"phase": "Running", "containers": [RUNS]}), {"startedAt": BEGAN}, id="it ran"),
        pytest.param(accepted({"phase": "Pending"}, seconds=1), {}, id="it was starting"),
        pytest.param(accepted({"phase": ""}), {}, id="the agent had not said that it was starting"),
        pytest.param(accepted(), {}, id="no answer has arrived"),
    ],
)
def test_an_agent_that_has_no_application_any_more_has_lost_it(known: Accepted, ended: Json) -> None:
    lost = application_status(application_health({}), known)
    assert (lost.phase, lost.reason) == ("Failed", "ApplicationLost")
    (container,) = lost.json()["containers"]
    assert (container["name"], container["ready"]) == ("web", False)
    assert container["state"]["terminated"].items() >= {"exitCode": 137, "reason": "ApplicationLost", **ended}.items()
    (first,) = lost.json()["initContainers"]
    assert first["state"]["terminated"]["exitCode"] == 137
    again = replace(known, reported=lost)
    assert application_status(application_health({}), again) is None, "the status keeps the end"


def test_a_container_that_had_ended_keeps_its_end() -> None:
    done = {"name": "first", "restartCount": 0, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    running = accepted({"phase": "Running", "initContainers": [done], "containers": [RUNS]})
    lost = application_status(application_health({}), running)
    assert lost.json()["initContainers"][0]["state"]["terminated"]["reason"] == "Completed"


@pytest.mark.parametrize(
    ("health", "known"),
    [
        pytest.param(application_health({}), None, id="the VM is not handed over"),
        pytest.param(application_health({}), accepted(seconds=5), id="it was accepted a moment ago"),
        pytest.param(application_health({}), accepted(application=None), id="the agent may have chosen none"),
        pytest.param(application_health({"phase": "", "startTime": BEGAN}), accepted(), id="the agent has it"),
    ],
)
def test_an_agent_that_has_not_started_the_application_yet_has_not_lost_it(
    health: Health, known: Accepted | None
) -> None:
    starting = application_status(health, known)
    assert starting.phase == ""


def test_an_agent_that_has_accepted_the_application_and_does_not_answer_has_not_lost_it() -> None:
    silent = ApplicationHealth("Unable", AgentReason.NO_ANSWER, "it does not answer")
    assert application_status(silent, accepted()) is None


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        pytest.param(accepted({"phase": "Running"}), "ApplicationLost", id="it ran"),
        pytest.param(accepted({"phase": "Failed", "reason": "ApplicationLost"}), "ApplicationLost", id="it was lost"),
        pytest.param(accepted({"phase": "Failed", "reason": "Error"}), "ApplicationFailed", id="it had failed"),
        pytest.param(accepted({"phase": "Succeeded"}), "ApplicationSucceeded", id="it had succeeded"),
        pytest.param(accepted(seconds=5), "ApplicationStarting", id="it was accepted a moment ago"),
        pytest.param(None, "ApplicationStarting", id="the VM is not handed over"),
    ],
)
def test_the_health_of_an_application_of_which_its_agent_has_nothing(known: Accepted | None, reason: str) -> None:
    health = judged(application_health({}), known)
    assert health.reason == reason


def test_the_condition_says_that_the_application_is_lost() -> None:
    written = Condition(type="ApplicationHealthy", status="True", reason="ApplicationRunning", message="it runs")
    status = bound_status("m", **READY, application={"phase": "Running"}, conditions=[written.json()])
    claim = a_claim(status=status, application=APPLICATION.json())
    facts = {"has_agent": True, "application_health": application_health({})}
    step = plan(snapshot(claim, claimed_vm("m", WarmState.IN_USE), pool=a_pool(agent={"port": 8200}), **facts), NOW)
    assert isinstance(step, UpdateStatus)
    found = next(each for each in step.status.conditions if each.type == "ApplicationHealthy")
    assert (found.status, found.reason) == ("False", "ApplicationLost")
    assert step.event.reason == "ApplicationLost"


@pytest.mark.parametrize(
    ("vm", "status", "expected"),
    [
        pytest.param(WarmState.ALLOCATING, {}, CheckHealth, id="a launch that was not accepted is sent again"),
        pytest.param(WarmState.IN_USE, {}, UpdateStatus, id="one that was accepted is not, without a status"),
        pytest.param(WarmState.IN_USE, READY, UpdateStatus, id="an application with lost answers is not started again"),
    ],
)
def test_a_guest_that_has_started_again_runs_no_application_twice(vm: WarmState, status: Json, expected: type) -> None:
    """The claimed VM says whether the application was accepted, also if the claim says nothing of it."""
    claim = a_claim(status=bound_status("m", **status), application=APPLICATION.json())
    pool = a_pool(agent={"port": 8200})
    known = {"has_agent": True, "may_launch": True, "application": {"spec": {}}}
    step = plan(
        snapshot(claim, claimed_vm("m", vm), pool=pool, application_health=application_health({}), **known), NOW
    )
    assert isinstance(step, expected)
    if status and isinstance(step, UpdateStatus):
        assert step.status.application.phase == "Failed"
