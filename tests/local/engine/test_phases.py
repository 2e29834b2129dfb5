from __future__ import annotations

from typing import Any

import pytest

from local.engine.conditions import find, holds
from local.engine.domain import ABSENT, Domain
from local.engine.phases import Destroy, Launch, PressPower, Seen, finalizers, step
from local.engine.resources import INSTANCE_FINALIZER
from tests.local.engine.builders import NOW, ago, instance, node

RUNNING, OFF, CRASHED = Domain("running", "node-1"), Domain("off", "node-1"), Domain("crashed", "node-1")


def seen(phase: str, domain: Domain = ABSENT, **given: Any) -> Seen:
    outer = {key: given.pop(key) for key in ("node", "target", "missing", "unplaceable") if key in given}
    return Seen(instance(phase, **given), domain, **outer)


@pytest.mark.parametrize(
    ("state", "phase", "actions"),
    [
        pytest.param(seen("", target="node-2"), "Scheduled", (), id="a new VMI is placed"),
        pytest.param(seen("", missing="no claim"), "Pending", (), id="it waits for its volumes"),
        pytest.param(seen("", unplaceable="full"), "Scheduling", (), id="and for room"),
        pytest.param(seen("Scheduled"), "Scheduled", (Launch("node-1"),), id="where it was placed it is launched"),
        pytest.param(seen("Scheduled", RUNNING), "Running", (), id="a domain that runs is a VMI that runs"),
        pytest.param(seen("Scheduled", CRASHED), "Failed", (), id="a start can fail"),
        pytest.param(seen("Running", OFF), "Succeeded", (), id="a guest may shut itself down"),
        pytest.param(seen("Running", CRASHED), "Failed", (), id="or crash"),
        pytest.param(seen("Running", ABSENT), "Failed", (), id="or vanish"),
        pytest.param(seen("Running", Domain("unknown")), "Running", (), id="what cannot be seen is not taken for gone"),
        pytest.param(seen("Failed", CRASHED), "Failed", (Destroy(),), id="what ended is cleared away"),
        pytest.param(seen("Running", RUNNING, deleted=ago(1)), "Running", (PressPower(),), id="an end begins politely"),
        pytest.param(seen("Running", RUNNING, deleted=ago(31)), "Running", (Destroy(),), id="and ends in time"),
        pytest.param(
            seen("Running", RUNNING, deleted=ago(0), grace_seconds=0.0),
            "Running",
            (Destroy(),),
            id="at once if asked",
        ),
        pytest.param(seen("Running", OFF, deleted=ago(1)), "Running", (Destroy(),), id="who obeyed is cleared"),
    ],
)
def test_what_becomes_of_it(state: Seen, phase: str, actions: tuple[Any, ...]) -> None:
    made = step(state, NOW)
    assert (made.status["phase"] or "", made.actions) == (phase, actions)


def test_a_placed_one_knows_its_node() -> None:
    assert step(seen("", target="node-2"), NOW).status["nodeName"] == "node-2"


def test_the_finalizer_goes_last() -> None:
    assert step(seen("Running", RUNNING, deleted=ago(1)), NOW).finalizer
    assert not step(seen("Running", ABSENT, deleted=ago(1)), NOW).finalizer
    assert not step(seen("Failed", ABSENT, deleted=ago(1)), NOW).finalizer


def test_finalizers_of_others_are_never_touched() -> None:
    mixed = instance(finalizers=("theirs", INSTANCE_FINALIZER))
    assert finalizers(mixed, False) == ("theirs",)
    assert finalizers(instance(finalizers=("theirs",)), True) == ("theirs", INSTANCE_FINALIZER)
    assert finalizers(instance(finalizers=("theirs",), deleted=NOW), True) == ("theirs",)


def test_a_lost_node_makes_unready_then_failed() -> None:
    away = node(ready=False, unready_since=ago(10))
    made = step(seen("Running", RUNNING, node=away), NOW, lost_seconds=30)
    assert made.status["phase"] == "Running"
    assert made.again_seconds == 20
    assert holds(made.status["conditions"], "Ready", "NodeNotReady", "False")
    gone = step(seen("Running", RUNNING, node=node(ready=False, unready_since=ago(31))), NOW, lost_seconds=30)
    assert (gone.status["phase"], gone.status["reason"]) == ("Failed", "NodeUnresponsive")


def test_a_vmi_that_failed_with_its_node_does_not_wait_for_it() -> None:
    away = node(ready=False, unready_since=ago(100))
    made = step(seen("Failed", RUNNING, node=away, deleted=ago(1)), NOW)
    assert (made.actions, made.finalizer) == ((), False)


def test_a_node_that_comes_back_repairs() -> None:
    unready = [{"type": "Ready", "status": "False", "reason": "NodeNotReady"}]
    made = step(seen("Running", RUNNING, node=node(), status={"conditions": unready}), NOW)
    assert holds(made.status["conditions"], "Ready")


def test_a_pause_shows_and_goes() -> None:
    paused = step(seen("Running", Domain("paused", "node-1")), NOW)
    assert holds(paused.status["conditions"], "Paused")
    assert holds(paused.status["conditions"], "Ready")
    assert find(step(seen("Running", RUNNING), NOW).status["conditions"], "Paused") is None


def test_a_quick_start_is_one_change() -> None:
    soon = Domain("starting", change_seconds=1.0)
    made = step(seen("", soon, target="node-1"), NOW, settle_seconds=2)
    assert made.status["phase"] == ""
    assert made.again_seconds == 1
    slow = step(seen("", Domain("starting", change_seconds=9.0), target="node-1"), NOW, settle_seconds=2)
    assert slow.status["phase"] == "Scheduled"
    done = step(seen("", Domain("running"), target="node-1"), NOW, settle_seconds=2).status
    assert [each["phase"] for each in done["phaseTransitionTimestamps"]] == [
        "Pending",
        "Scheduling",
        "Scheduled",
        "Running",
    ]


def test_the_same_state_changes_nothing() -> None:
    first = step(seen("Scheduled", RUNNING), NOW).status
    again = step(Seen(instance(status=first), RUNNING), ago(-50))
    assert again.status == first
