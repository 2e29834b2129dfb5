from __future__ import annotations

from typing import Any

import pytest

from poolhouse.stack.engine.hypervisor import ABSENT, Domain
from poolhouse.stack.engine.resources import VMI_FINALIZER, find_condition, has_condition
from poolhouse.stack.engine.vmi.phases import Destroy, Launch, PressPower, VMISnapshot, plan_vmi, wanted_finalizers
from tests.stack.engine.builders import NOW, ago, node, vmi

RUNNING, OFF, CRASHED = Domain("running", "node-1"), Domain("off", "node-1"), Domain("crashed", "node-1")


def seen(phase: str, domain: Domain = ABSENT, **given: Any) -> VMISnapshot:
    outer = {key: given.pop(key) for key in ("node", "target", "missing", "unschedulable") if key in given}
    return VMISnapshot(vmi(phase, **given), domain, **outer)


@pytest.mark.parametrize(
    ("state", "phase", "actions"),
    [
        pytest.param(seen("", target="node-2"), "Scheduled", (), id="a new VMI is scheduled"),
        pytest.param(seen("", missing="no pvc"), "Pending", (), id="a volume is missing"),
        pytest.param(seen("", unschedulable="full"), "Scheduling", (), id="no node fits"),
        pytest.param(seen("Scheduled"), "Scheduled", (Launch("node-1"),), id="a scheduled VMI is launched"),
        pytest.param(seen("Scheduled", RUNNING), "Running", (), id="the domain runs"),
        pytest.param(seen("Scheduled", CRASHED), "Failed", (), id="the start fails"),
        pytest.param(seen("Running", OFF), "Succeeded", (), id="the guest shuts down"),
        pytest.param(seen("Running", CRASHED), "Failed", (), id="the guest crashes"),
        pytest.param(seen("Running", ABSENT), "Failed", (), id="the domain vanishes"),
        pytest.param(seen("Running", Domain("unknown")), "Running", (), id="the domain cannot be observed"),
        pytest.param(seen("Failed", CRASHED), "Failed", (Destroy(),), id="an ended VMI is cleared"),
        pytest.param(
            seen("Running", RUNNING, deleted=ago(1)), "Running", (PressPower(),), id="deletion presses the power button"
        ),
        pytest.param(
            seen("Running", RUNNING, deleted=ago(31)),
            "Running",
            (Destroy(),),
            id="deletion destroys after the grace period",
        ),
        pytest.param(
            seen("Running", RUNNING, deleted=ago(0), grace_seconds=0.0),
            "Running",
            (Destroy(),),
            id="deletion without a grace period",
        ),
        pytest.param(
            seen("Running", OFF, deleted=ago(1)), "Running", (Destroy(),), id="deletion of a guest that has shut down"
        ),
    ],
)
def test_the_phase_and_the_actions_of_a_vmi(state: VMISnapshot, phase: str, actions: tuple[Any, ...]) -> None:
    made = plan_vmi(state, NOW)
    assert (made.status["phase"] or "", made.actions) == (phase, actions)


LABELS = tuple((f"machine-type.node.kubevirt.io/{name}", "true") for name in ("q35", "pc-q35-7.2", "pc-q35-10.0"))


@pytest.mark.parametrize(
    ("machine", "labels", "expected"),
    [
        pytest.param("q35", LABELS, {"type": "pc-q35-10.0"}, id="an alias is the newest version of the node"),
        pytest.param("pc-q35-7.2", LABELS, {"type": "pc-q35-7.2"}, id="a canonical type stays"),
        pytest.param("q35", (), None, id="a node without labels"),
    ],
)
def test_a_running_vmi_has_the_machine_type_of_its_domain(machine: str, labels: Any, expected: Any) -> None:
    state = seen("Scheduled", RUNNING, node=node(labels=labels), machine=machine)
    status = plan_vmi(state, NOW).status
    assert status.get("machine") == expected
    again = plan_vmi(seen("Running", RUNNING, node=node(labels=LABELS), machine=machine, status=status), NOW)
    assert again.status.get("machine", {}).get("type") == (expected or {"type": "pc-q35-10.0"})["type"]


def test_a_scheduled_vmi_has_a_node_name() -> None:
    assert plan_vmi(seen("", target="node-2"), NOW).status["nodeName"] == "node-2"


def test_the_finalizer_is_removed_last() -> None:
    assert plan_vmi(seen("Running", RUNNING, deleted=ago(1)), NOW).finalizer
    assert not plan_vmi(seen("Running", ABSENT, deleted=ago(1)), NOW).finalizer
    assert not plan_vmi(seen("Failed", ABSENT, deleted=ago(1)), NOW).finalizer


def test_finalizers_of_others_stay() -> None:
    mixed = vmi(finalizers=("theirs", VMI_FINALIZER))
    assert wanted_finalizers(mixed, False) == ("theirs",)
    assert wanted_finalizers(vmi(finalizers=("theirs",)), True) == ("theirs", VMI_FINALIZER)
    assert wanted_finalizers(vmi(finalizers=("theirs",), deleted=NOW), True) == ("theirs",)


def test_a_vmi_on_a_lost_node_is_unready_and_then_fails() -> None:
    away = node(ready=False, unready_since=ago(10))
    made = plan_vmi(seen("Running", RUNNING, node=away), NOW, lost_seconds=30)
    assert made.status["phase"] == "Running"
    assert made.requeue_seconds == 20
    assert has_condition(made.status["conditions"], "Ready", "NodeNotReady", "False")
    gone = plan_vmi(seen("Running", RUNNING, node=node(ready=False, unready_since=ago(31))), NOW, lost_seconds=30)
    assert (gone.status["phase"], gone.status["reason"]) == ("Failed", "NodeUnresponsive")


def test_a_failed_vmi_does_not_wait_for_its_lost_node() -> None:
    away = node(ready=False, unready_since=ago(100))
    made = plan_vmi(seen("Failed", RUNNING, node=away, deleted=ago(1)), NOW)
    assert (made.actions, made.finalizer) == ((), False)


def test_a_vmi_is_ready_again_when_its_node_is_back() -> None:
    unready = [{"type": "Ready", "status": "False", "reason": "NodeNotReady"}]
    made = plan_vmi(seen("Running", RUNNING, node=node(), status={"conditions": unready}), NOW)
    assert has_condition(made.status["conditions"], "Ready")


def test_the_paused_condition_follows_the_domain() -> None:
    paused = plan_vmi(seen("Running", Domain("paused", "node-1")), NOW)
    assert has_condition(paused.status["conditions"], "Paused", "PausedByUser")
    assert has_condition(paused.status["conditions"], "Ready", "ReadinessGatesNotReady", "False")
    assert find_condition(plan_vmi(seen("Running", RUNNING), NOW).status["conditions"], "Paused") is None


def test_a_quick_start_is_one_write() -> None:
    soon = Domain("starting", change_seconds=1.0)
    made = plan_vmi(seen("", soon, target="node-1"), NOW, settle_seconds=2)
    assert made.status["phase"] == ""
    assert made.requeue_seconds == 1
    slow = plan_vmi(seen("", Domain("starting", change_seconds=9.0), target="node-1"), NOW, settle_seconds=2)
    assert slow.status["phase"] == "Scheduled"
    done = plan_vmi(seen("", Domain("running"), target="node-1"), NOW, settle_seconds=2).status
    assert [each["phase"] for each in done["phaseTransitionTimestamps"]] == [
        "Pending",
        "Scheduling",
        "Scheduled",
        "Running",
    ]


def test_the_same_state_gives_the_same_status() -> None:
    first = plan_vmi(seen("Scheduled", RUNNING), NOW).status
    again = plan_vmi(VMISnapshot(vmi(status=first), RUNNING), ago(-50))
    assert again.status == first
