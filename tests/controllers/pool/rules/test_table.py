"""A feature is one module: a made-up rule and a made-up gate, which the rest of the pool need not know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import get_args

import pytest

from controllers.pool.actions import Restart
from controllers.pool.gates import hooks
from controllers.pool.gates import table as gates
from controllers.pool.gates.disruptions import CAUSES, Answer, Disruption, DisruptionCause, Effect, Gate, Taken
from controllers.pool.gates.table import GATES, all_but, only
from controllers.pool.plan import plan
from controllers.pool.reasons import PoolReason
from controllers.pool.rules import table as rules
from controllers.pool.rules.rule import Plan, Rule
from controllers.pool.rules.table import RULES
from controllers.pool.selection import restart
from controllers.pool.simulate import simulate
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.shared.conditions import condition
from controllers.shared.vm import LifecycleHold
from poolhouse.api.kinds.metav1 import Condition
from tests.controllers.pool.builders import NOW, a_pool, snapshot, vm, vmi

LUNCH = "it is lunch time until 13:00"


def lunch(snapshot: PoolSnapshot, now: datetime, wanted: Disruption, taken: Taken) -> Answer:
    """The made-up gate: no VM is stopped between 12 and 13 o'clock."""
    return LUNCH if now.hour == 12 else ""


LUNCH_GATE = Gate("Lunch", lunch, all_but(), "It is noon.", progressing=PoolReason.WAITING_FOR_WINDOW)


def tired(snapshot: PoolSnapshot, now: datetime) -> Iterator[Disruption]:
    """The made-up rule: VMs with the label `tired` are restarted."""
    for each in snapshot.active:
        if "tired" in each.labels and each.vmi is not None and each.vmi.uid.startswith("run-"):
            yield Disruption(each, "Lifetime", partial(restart, each, "it is tired"))


def tired_condition(snapshot: PoolSnapshot, plan: Plan, now: datetime) -> Iterator[Condition]:
    names = [each.name for each in snapshot.active if "tired" in each.labels]
    if names:
        yield condition("Tired", True, PoolReason.UPDATING, ", ".join(names))


TIRED = Rule(tired, context="it is tired: ", again=(lambda snapshot, now: 7.0,), conditions=tired_condition)

AT_ONE = NOW.replace(hour=13)
AT_NOON = NOW.replace(hour=12)
OLD = snapshot(a_pool(2, maxUnavailable=1), vm(1, vmi=vmi("web-1", revision="r0"), revision="r0"), vm(2))
WITH_TIRED = snapshot(a_pool(2, maxUnavailable=1), vm(1, labels={"tired": ""}), vm(2, labels={"tired": ""}))


@pytest.fixture
def with_lunch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "GATES", (*GATES, LUNCH_GATE))


@pytest.fixture
def with_tired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "RULES", (*RULES, TIRED))


def fresh(observed: PoolSnapshot) -> PoolSnapshot:
    """The snapshot without what was computed with other rules and gates."""
    return replace(observed)


def words(observed: PoolSnapshot, now: datetime) -> list[tuple[str, str]]:
    return [(each.name, each.reason) for each in plan(observed, now).waits]


@pytest.mark.usefixtures("with_lunch")
def test_a_gate_is_one_function_and_one_row() -> None:
    observed = fresh(OLD)
    assert plan(observed, AT_NOON).actions == ()
    assert words(observed, AT_NOON) == [("web-1", LUNCH)], "the plan, and so `poolhouse why`, has the gate's sentence"
    found = {each.type: each for each in pool_status(observed, plan(observed, AT_NOON), AT_NOON).conditions}
    assert found["Progressing"].reason == PoolReason.WAITING_FOR_WINDOW
    assert found["Progressing"].message.endswith(LUNCH)
    foreseen = simulate(observed, AT_NOON)
    assert (foreseen.steps, [each.reason for each in foreseen.waits]) == ((), [LUNCH])
    assert [each.verb for each in plan(observed, AT_ONE).actions] == ["Update"]


@pytest.mark.usefixtures("with_lunch")
def test_scale_in_is_blocked_with_the_sentence_of_a_new_gate() -> None:
    observed = snapshot(1, vm(1), vm(2))
    blocked = f"1 VM is too many, 0 can be deleted now: {LUNCH}"
    assert (plan(observed, AT_NOON).actions, plan(observed, AT_NOON).blocked) == ((), blocked)
    assert simulate(observed, AT_NOON).blocked == blocked


@pytest.mark.usefixtures("with_tired")
def test_a_rule_is_one_module_and_one_line() -> None:
    observed = fresh(WITH_TIRED)
    found = plan(observed, AT_ONE)
    assert [(type(each), each.name) for each in found.actions] == [(Restart, "web-1")]
    budget = "it is tired: 1 VM is in progress, maxUnavailable is 1"
    assert ("web-2", budget) in words(observed, AT_ONE), "the gates hold for a rule that they do not know"
    assert found.again_seconds == 7.0
    conditions = {each.type: each.message for each in pool_status(observed, found, AT_ONE).conditions}
    assert conditions["Tired"] == "web-1, web-2"
    assert [[each.name for each in step.actions] for step in simulate(observed, AT_ONE).steps] == [["web-1"], ["web-2"]]


@pytest.mark.usefixtures("with_tired")
def test_lifecycle_hooks_hold_a_vm_for_a_new_rule() -> None:
    hook = {"name": "drain", "transition": "Restarting", "timeoutSeconds": 600}
    pool = a_pool(2, maxUnavailable=1, lifecycleHooks=[hook])
    hold = LifecycleHold("Restarting", "2026-03-01T11:59:00Z", "run-web-1", (("drain", "2026-03-01T12:09:00Z"),))
    held = vm(1, labels={"tired": ""}, hold=hold)
    (waits,) = plan(snapshot(pool, held, vm(2)), NOW).waits
    assert waits.reason == "lifecycle hooks hold it: drain (until 2026-03-01T12:09:00Z)"
    ended = replace(held, hold=replace(hold, hooks=()))
    assert [each.verb for each in plan(snapshot(pool, ended, vm(2)), NOW).actions if each.name == "web-1"] == [
        "Restart"
    ]
    rested = replace(held, labels={})
    assert "EndHold" in [each.verb for each in plan(snapshot(pool, rested, vm(2)), NOW).actions]


@pytest.mark.usefixtures("with_tired", "with_lunch")
def test_a_new_gate_holds_for_a_new_rule() -> None:
    observed = fresh(WITH_TIRED)
    assert plan(observed, AT_NOON).actions == ()
    assert words(observed, AT_NOON) == [("web-1", f"it is tired: {LUNCH}"), ("web-2", f"it is tired: {LUNCH}")]


EXEMPTIONS = {
    "Step": only("Update", "Rollback", "Restore"),
    "TemplateFits": only("Update", "Rollback", "Restore"),
    "DisksAtRisk": only("Healing"),
    "Strategy": only("Update", "Rollback", "Restore"),
    "NewDisk": only("Update", "Rollback", "Restore"),
    "ProgressDeadline": all_but("ScaleIn", "Replacement", "Healing"),
    "MaintenanceWindow": all_but("ScaleIn", "Restore", "Rollback"),
    "Surge": only("Update", "Rollback", "Restore"),
    "Migration": all_but("ScaleIn", "Replacement", "Healing"),
    "FailureDomain": all_but("ScaleIn", "Replacement", "Healing"),
    "DisruptionBudget": all_but("Healing"),
    "HealingPause": only("Healing"),
    "HealingBudget": only("Healing"),
    "SnapshotBeforeUpdate": only("Update", "Rollback"),
}


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: str(gate.name))
def test_each_gate_holds_for_the_causes_that_the_docs_name(gate: Gate) -> None:
    causes = get_args(DisruptionCause)
    for effect in (Effect.STOPS, Effect.RESTARTS_LATER):
        assert [gate.concerns(each, effect) for each in causes] == [EXEMPTIONS[gate.name](each) for each in causes]


QUIET = {"Step", "TemplateFits", "Strategy", "Surge", "SnapshotBeforeUpdate"}
MOVING = {"ProgressDeadline", "MaintenanceWindow", "Migration"}


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: str(gate.name))
def test_few_gates_hold_for_a_change_that_stops_no_guest(gate: Gate) -> None:
    """If KubeVirt migrates the VM for the change, three more gates do."""
    causes = [each for each in get_args(DisruptionCause) if gate.holds_for(each)]
    assert {gate.concerns(each, Effect.CHANGES) for each in causes} == {gate.name in QUIET}
    assert {gate.concerns(each, Effect.MIGRATES) for each in causes} == {gate.name in QUIET | MOVING}


def test_a_prepared_vm_keeps_its_place_only_while_it_waits_for_its_snapshot() -> None:
    assert [gate.name for gate in GATES if gate.keeps_place] == ["SnapshotBeforeUpdate"]


PAGE = Path(__file__).parents[4] / "docs" / "reference" / "gates.md"


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: str(gate.name))
def test_the_reference_page_says_when_each_gate_is_closed(gate: Gate) -> None:
    assert f"\n| {gate.name} | {gate.text} |" in PAGE.read_text()


def test_the_reference_page_says_that_lifecycle_hooks_come_last() -> None:
    assert f"\n| {hooks.NAME} | {hooks.TEXT} | {' | '.join('✓' for _ in CAUSES)} |\n\n" in PAGE.read_text()


@pytest.mark.parametrize("cause", get_args(DisruptionCause))
def test_the_reference_page_says_what_has_happened(cause: DisruptionCause) -> None:
    assert f"\n- *{cause}*: {CAUSES[cause][1]}.\n" in PAGE.read_text()


def test_the_reference_page_has_a_column_for_each_cause() -> None:
    assert f"\n| Gate | Closed while | {' | '.join(get_args(DisruptionCause))} |\n" in PAGE.read_text()
