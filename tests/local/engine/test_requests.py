from __future__ import annotations

from typing import Any

import pytest

from local.engine.requests import (
    Change,
    Denied,
    Hurry,
    Migrate,
    Pause,
    Queue,
    SetRunning,
    decide,
    machine_patch,
)
from local.engine.views import Instance, Machine
from tests.local.engine.builders import asked, instance, machine

STOP, START = {"action": "Stop", "uid": "vmi-uid"}, {"action": "Start"}


@pytest.mark.parametrize(
    ("verb", "vm", "vmi", "options", "wanted"),
    [
        pytest.param("start", machine("Halted"), None, {}, [SetRunning(True)], id="a halted VM runs from now on"),
        pytest.param(
            "start",
            machine("Halted"),
            None,
            {"paused": True},
            [Queue(({"action": "Start", "data": {"paused": "true"}},))],
            id="a paused start is for the controller",
        ),
        pytest.param("start", machine("Manual"), None, {}, [Queue((START,))], id="a manual VM is asked to start"),
        pytest.param(
            "start",
            machine("Manual"),
            instance("Failed"),
            {},
            [Queue((STOP, START))],
            id="after its failed VMI",
        ),
        pytest.param("start", machine(), instance(), {}, 409, id="what runs is not started"),
        pytest.param("start", machine(), None, {}, 409, id="what starts by itself is not started"),
        pytest.param("start", None, None, {}, 404, id="what is not there neither"),
        pytest.param("stop", machine(), instance(), {}, [SetRunning(False)], id="a running VM is halted"),
        pytest.param(
            "stop",
            machine(status=asked("Stop")),
            instance(),
            {},
            [Queue((), replace=True), SetRunning(False)],
            id="a stop outdoes a restart under way",
        ),
        pytest.param(
            "stop", machine("Manual"), instance(), {}, [Queue((STOP,), replace=True)], id="a manual VM is asked to stop"
        ),
        pytest.param(
            "stop",
            machine("Manual"),
            instance(),
            {"gracePeriod": 0},
            [Hurry(0), Queue((STOP,), replace=True)],
            id="at once",
        ),
        pytest.param("stop", machine("Manual"), None, {}, 409, id="nothing to stop"),
        pytest.param("stop", machine("Halted"), instance(), {}, 409, id="a halted VM is ending already"),
        pytest.param("restart", machine(), instance(), {}, [Queue((STOP, START))], id="a restart is both"),
        pytest.param(
            "restart",
            machine(),
            instance(),
            {"gracePeriodSeconds": 0},
            [Hurry(1), Queue((STOP, START))],
            id="or a hurried one",
        ),
        pytest.param("restart", machine(), instance(), {"gracePeriodSeconds": 5}, 400, id="but not in between"),
        pytest.param("restart", machine(), None, {}, 409, id="what does not run is not restarted"),
        pytest.param("restart", machine("Halted"), instance(), {}, 409, id="nor what is halted"),
        pytest.param("pause", None, instance(), {}, [Pause(True)], id="a pause"),
        pytest.param("unpause", None, instance(), {}, 409, id="only what is paused goes on"),
        pytest.param("pause", None, instance("Scheduled"), {}, 409, id="only what runs is paused"),
        pytest.param("pause", None, None, {}, 404, id="only what is there"),
        pytest.param("migrate", machine(), instance(), {}, [Migrate({})], id="a migration"),
        pytest.param("migrate", machine(), None, {}, 409, id="of what runs"),
    ],
)
def test_what_is_written(
    verb: str, vm: Machine | None, vmi: Instance | None, options: dict[str, Any], wanted: list[Change] | int
) -> None:
    made = decide(verb, "virtualmachines", "vm", vm, vmi, options)
    if isinstance(wanted, int):
        assert isinstance(made, Denied)
        assert made.code == wanted
    else:
        assert made == tuple(wanted)


@pytest.mark.parametrize(("field", "before", "after"), [("running", True, False), ("runStrategy", "Always", "Halted")])
def test_the_word_that_the_spec_uses_is_the_one_that_changes(field: str, before: Any, after: Any) -> None:
    document = {"metadata": {"name": "vm", "resourceVersion": "7"}, "spec": {field: before}}
    where, patch = machine_patch(document, SetRunning(False))  # type: ignore[misc]
    assert (where, patch["spec"], patch["metadata"]) == (None, {field: after}, {"resourceVersion": "7"})


def test_what_is_under_way_is_not_asked_for_twice() -> None:
    document = {"metadata": {"name": "vm", "resourceVersion": "7"}, "spec": {}, "status": asked("Stop")}
    assert isinstance(machine_patch(document, Queue((START,))), Denied)
    assert not isinstance(machine_patch(document, Queue((STOP,), replace=True)), Denied)
