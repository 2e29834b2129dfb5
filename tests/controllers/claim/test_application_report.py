"""What of an agent's report gets into the status of a claim."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.claim.application_report import application_status
from controllers.warmpool.agent import application_health
from controllers.warmpool.backends import Health

Json = dict[str, Any]


def reported(**status: Any) -> Json:
    found = application_status(application_health(status))
    assert found is not None
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


def test_an_agent_that_has_no_application_any_more_has_lost_it() -> None:
    began = {"startedAt": "2026-01-01T00:00:00Z"}
    containers = [{"name": "web", "ready": True, "state": {"running": began}}]
    before = application_status(application_health({"phase": "Running", "containerStatuses": containers}))
    lost = application_status(application_health({}), before)
    assert lost is not None
    assert (lost.phase, lost.reason) == ("Failed", "ApplicationLost")
    container = lost.json()["containers"][0]
    assert not container["ready"]
    assert container["state"]["terminated"].items() >= {"exitCode": 137, "reason": "ApplicationLost", **began}.items()
    assert application_status(application_health({}), lost) is None, "the status keeps the end"


def test_an_agent_that_has_not_started_the_application_yet_has_not_lost_it() -> None:
    starting = application_status(application_health({}))
    assert starting is not None
    assert starting.phase == ""
    assert application_status(application_health({}), starting) == starting
