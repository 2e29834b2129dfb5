"""What the agent of a simulated guest reports about its application."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from poolhouse.stack.engine.agents.application import Application, report

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SPEC = {"restartPolicy": "Never", "containers": [{"name": "web"}], "initContainers": [{"name": "first"}]}
APP = Application("pod", SPEC, BEGIN)


def summary(seconds: float, run_seconds: float | None, exit_code: int, policy: str) -> tuple[Any, ...]:
    app = replace(APP, spec={**SPEC, "restartPolicy": policy})
    found = report(app, run_seconds, exit_code, BEGIN + timedelta(seconds=seconds))
    (container,) = found.status["containerStatuses"]
    change = None if found.change_seconds is None else round(found.change_seconds, 3)
    return found.status["phase"], container["ready"], container["restartCount"], change


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param((999, None, 0, "Never"), ("Running", True, 0, None), id="it runs for ever"),
        pytest.param((1, 5, 0, "Never"), ("Running", True, 0, 4), id="it will end"),
        pytest.param((5, 5, 0, "Never"), ("Succeeded", False, 0, None), id="it has ended"),
        pytest.param((99, 5, 3, "Never"), ("Failed", False, 0, None), id="it has failed"),
        pytest.param((99, 5, 0, "OnFailure"), ("Succeeded", False, 0, None), id="a success is not repeated"),
        pytest.param((12, 5, 3, "OnFailure"), ("Running", True, 2, 3), id="a failure is repeated"),
        pytest.param((12, 5, 0, "Always"), ("Running", True, 2, 3), id="a service is restarted"),
    ],
)
def test_the_state_at_a_time(given: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    assert summary(*given) == expected


def test_the_end_of_a_run_is_the_last_state() -> None:
    restarted = replace(APP, spec={**SPEC, "restartPolicy": "Always"})
    (container,) = report(restarted, 5, 3, BEGIN + timedelta(seconds=6)).status["containerStatuses"]
    assert container["lastState"]["terminated"]["exitCode"] == 3
    assert container["lastState"]["terminated"]["finishedAt"] == "2026-01-01T00:00:05Z"
    assert container["state"] == {"running": {"startedAt": "2026-01-01T00:00:05Z"}}


def test_an_application_that_is_stopped_has_succeeded() -> None:
    stopped = replace(APP, stopped=BEGIN + timedelta(seconds=2))
    found = report(stopped, None, 7, BEGIN + timedelta(seconds=99))
    assert found.status["phase"] == "Succeeded"
    assert found.status["containerStatuses"][0]["state"]["terminated"]["finishedAt"] == "2026-01-01T00:00:02Z"


def test_init_containers_have_ended() -> None:
    (first,) = report(APP, None, 0, BEGIN).status["initContainerStatuses"]
    assert (first["name"], first["state"]["terminated"]["exitCode"]) == ("first", 0)
