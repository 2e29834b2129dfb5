from __future__ import annotations

from typing import Any

import pytest

from local.engine.objects import VM, VMI
from local.engine.vm.subresources import (
    Change,
    CreateMigration,
    QueueStateChanges,
    SetGracePeriod,
    SetPaused,
    SetRunning,
    StatusError,
    plan_request,
    vm_patch,
)
from tests.local.engine.builders import asked, vm, vmi

STOP, START = {"action": "Stop", "uid": "vmi-uid"}, {"action": "Start"}


@pytest.mark.parametrize(
    ("verb", "vm", "vmi", "options", "wanted"),
    [
        pytest.param("start", vm("Halted"), None, {}, [SetRunning(True)], id="a halted VM runs from now on"),
        pytest.param(
            "start",
            vm("Halted"),
            None,
            {"paused": True},
            [QueueStateChanges(({"action": "Start", "data": {"paused": "true"}},))],
            id="a paused start is for the controller",
        ),
        pytest.param(
            "start", vm("Manual"), None, {}, [QueueStateChanges((START,))], id="a manual VM is asked to start"
        ),
        pytest.param(
            "start",
            vm("Manual"),
            vmi("Failed"),
            {},
            [QueueStateChanges((STOP, START))],
            id="after its failed VMI",
        ),
        pytest.param("start", vm(), vmi(), {}, 409, id="what runs is not started"),
        pytest.param("start", vm(), None, {}, 409, id="what starts by itself is not started"),
        pytest.param("start", None, None, {}, 404, id="what is not there neither"),
        pytest.param("stop", vm(), vmi(), {}, [SetRunning(False)], id="a running VM is halted"),
        pytest.param(
            "stop",
            vm(status=asked("Stop")),
            vmi(),
            {},
            [QueueStateChanges((), replace=True), SetRunning(False)],
            id="a stop outdoes a restart under way",
        ),
        pytest.param(
            "stop",
            vm("Manual"),
            vmi(),
            {},
            [QueueStateChanges((STOP,), replace=True)],
            id="a manual VM is asked to stop",
        ),
        pytest.param(
            "stop",
            vm("Manual"),
            vmi(),
            {"gracePeriod": 0},
            [SetGracePeriod(0), QueueStateChanges((STOP,), replace=True)],
            id="at once",
        ),
        pytest.param("stop", vm("Manual"), None, {}, 409, id="nothing to stop"),
        pytest.param("stop", vm("Halted"), vmi(), {}, 409, id="a halted VM is ending already"),
        pytest.param("restart", vm(), vmi(), {}, [QueueStateChanges((STOP, START))], id="a restart is both"),
        pytest.param(
            "restart",
            vm(),
            vmi(),
            {"gracePeriodSeconds": 0},
            [SetGracePeriod(1), QueueStateChanges((STOP, START))],
            id="or a hurried one",
        ),
        pytest.param("restart", vm(), vmi(), {"gracePeriodSeconds": 5}, 400, id="but not in between"),
        pytest.param("restart", vm(), None, {}, 409, id="what does not run is not restarted"),
        pytest.param("restart", vm("Halted"), vmi(), {}, 409, id="nor what is halted"),
        pytest.param("pause", None, vmi(), {}, [SetPaused(True)], id="a pause"),
        pytest.param("unpause", None, vmi(), {}, 409, id="only what is paused goes on"),
        pytest.param("pause", None, vmi("Scheduled"), {}, 409, id="only what runs is paused"),
        pytest.param("pause", None, None, {}, 404, id="only what is there"),
        pytest.param("migrate", vm(), vmi(), {}, [CreateMigration({})], id="a migration"),
        pytest.param("migrate", vm(), None, {}, 409, id="of what runs"),
    ],
)
def test_changes_of_a_request(
    verb: str, vm: VM | None, vmi: VMI | None, options: dict[str, Any], wanted: list[Change] | int
) -> None:
    if isinstance(wanted, int):
        with pytest.raises(StatusError) as refused:
            plan_request(verb, "virtualmachines", "vm", vm, vmi, options)
        assert refused.value.code == wanted
    else:
        assert plan_request(verb, "virtualmachines", "vm", vm, vmi, options) == tuple(wanted)


@pytest.mark.parametrize(("field", "before", "after"), [("running", True, False), ("runStrategy", "Always", "Halted")])
def test_the_patch_uses_the_field_of_the_spec(field: str, before: Any, after: Any) -> None:
    document = {"metadata": {"name": "vm", "resourceVersion": "7"}, "spec": {field: before}}
    where, patch = vm_patch(document, SetRunning(False))  # type: ignore[misc]
    assert (where, patch["spec"], patch["metadata"]) == (None, {field: after}, {"resourceVersion": "7"})


def test_a_queued_request_blocks_the_next_one() -> None:
    document = {"metadata": {"name": "vm", "resourceVersion": "7"}, "spec": {}, "status": asked("Stop")}
    with pytest.raises(StatusError):
        vm_patch(document, QueueStateChanges((START,)))
    vm_patch(document, QueueStateChanges((STOP,), replace=True))
