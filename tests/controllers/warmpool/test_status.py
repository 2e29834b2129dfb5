"""The status of a warm pool and the events that follow from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.warmpool.backends import Health
from controllers.warmpool.rate_limit import FailureBackoff
from controllers.warmpool.reasons import WarmPoolReason
from controllers.warmpool.snapshot import VMHealth, WarmPoolSnapshot
from controllers.warmpool.status import invalid_spec_status, status
from controllers.warmpool.status_events import status_events
from controllers.warmpool.warm_pool import InvalidWarmPool, parse_warm_pool
from controllers.warmpool.warm_vm import NO_OWNER, is_unowned
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.api.kinds.warmpool import WarmPoolStatus
from tests.controllers.warmpool.builders import (
    CORDONED,
    NEW,
    NOT_READY_NODE,
    NOW,
    OLD,
    OVER_QUOTA,
    OVERDUE,
    UNSCHEDULABLE,
    a_pool,
    a_snapshot,
    a_vm,
    a_vmi,
    ago,
    failing,
)

FAILING_VM = {
    "vmi": a_vmi(start_failure="ErrImagePull", message="not found", phase="Scheduling", conditions=frozenset())
}


def test_counts() -> None:
    pool = a_pool(3, placements=[{"name": "east"}, {"name": "west"}])
    there = [
        a_vm("a", of=pool, placement="east"),
        a_vm("b", of=pool, placement="west", node=CORDONED),
        a_vm("c", NEW, of=pool, placement="west"),
        a_vm("d", WarmState.STANDING_BY, of=pool, placement="east"),
        a_vm("e", WarmState.UNHEALTHY, of=pool, placement="east"),
        a_vm("f", WarmState.UNKNOWN, of=pool, placement="east", node=NOT_READY_NODE),
        a_vm("g", WarmState.ALLOCATING, of=pool),
        a_vm("h", WarmState.IN_USE, of=pool),
        a_vm("i", of=pool, deleting=True),
        a_vm("j", of=pool, orphaned="TemplateChanged", owner=NO_OWNER),
        a_vm("k", of=OLD, placement="default"),
    ]
    found = status(a_snapshot(pool, *there, queued_claims=2), NOW)
    assert (found.available_replicas, found.ready_replicas, found.replicas) == (2, 3, 6)
    assert (found.provisioning, found.allocating, found.claimed) == (2, 1, 1)
    assert (found.unhealthy, found.unknown, found.terminating, found.orphaned) == (1, 1, 1, 1)
    assert (found.queued_claims, found.updated_replicas) == (2, 5)
    assert {p.name: (p.replicas, p.ready) for p in found.placements} == {
        "east": (3, 1),
        "west": (2, 0),
        "default": (1, 1),
    }
    assert found.label_selector == "poolhouse.dev/warm-pool=web"


def conditions(observed: WarmPoolSnapshot) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.reason) for c in status(observed, NOW).conditions}


def test_vms_without_an_owner_are_named_and_change_no_health() -> None:
    found = status(replace(a_snapshot(2, a_vm("a"), a_vm("b")), unowned=("c", "d")), NOW)
    condition = next(each for each in found.conditions if each.type == "UnownedVMs")
    assert (condition.status, condition.reason) == ("True", "NoOwner")
    assert condition.message.startswith("c, d: the label of this pool, but no owner")
    assert next(each.status for each in found.conditions if each.type == "Ready") == "True"
    assert "UnownedVMs" not in conditions(a_snapshot(2, a_vm("a"), a_vm("b"))), "absent until it is true"


@pytest.mark.parametrize(
    ("facts", "unowned"),
    [
        pytest.param({}, False, id="a VM of the pool"),
        pytest.param({"owner": NO_OWNER}, True, id="its owner was removed"),
        pytest.param({"owner": NO_OWNER, "orphaned": "PoolGone", "pool_uid": "earlier"}, True, id="of an earlier pool"),
        pytest.param({"owner": NO_OWNER, "deleting": True}, False, id="it is being deleted"),
        pytest.param({"owner": NO_OWNER, "state": WarmState.IN_USE, "claim_uid": "c"}, False, id="a claim has it"),
    ],
)
def test_which_vms_are_unowned(facts: dict[str, Any], unowned: bool) -> None:
    assert is_unowned(replace(a_vm("a"), **facts)) is unowned


FAILED = FailureBackoff(2, "FailedCreate", "no", ago(-5))
FULL = FailureBackoff(2, "InsufficientCapacity", "exceeded quota", ago(-5))


@pytest.mark.parametrize(
    ("observed", "kind", "expected"),
    [
        pytest.param(
            a_snapshot(2, a_vm("a"), a_vm("b")),
            "Available",
            ("True", "MinimumReplicasAvailable"),
            id="enough available",
        ),
        pytest.param(
            a_snapshot(4, a_vm("a")), "Available", ("False", "MinimumReplicasUnavailable"), id="too few available"
        ),
        pytest.param(a_snapshot(1), "Available", ("False", "MinimumReplicasUnavailable"), id="none available"),
        pytest.param(a_snapshot(0), "Available", ("True", "MinimumReplicasAvailable"), id="zero replicas"),
        pytest.param(
            a_snapshot(4, a_vm("a", NEW, **UNSCHEDULABLE)),
            "Available",
            ("False", "InsufficientCapacity"),
            id="unschedulable",
        ),
        pytest.param(
            a_snapshot(4, a_vm("a", NEW, **OVER_QUOTA)),
            "Available",
            ("False", "InsufficientCapacity"),
            id="a quota without room for VMIs",
        ),
        pytest.param(a_snapshot(4, failures=FULL), "Available", ("False", "InsufficientCapacity"), id="quota used up"),
        pytest.param(a_snapshot(2, a_vm("a"), a_vm("b")), "Progressing", ("True", "Complete"), id="complete"),
        pytest.param(a_snapshot(2, a_vm("a")), "Progressing", ("True", "Scaling"), id="scaling"),
        pytest.param(a_snapshot(1, a_vm("a", of=OLD)), "Progressing", ("True", "Updating"), id="updating"),
        pytest.param(a_snapshot(a_pool(2, paused=True)), "Progressing", ("False", "Paused"), id="paused"),
        *(
            pytest.param(
                a_snapshot(a_pool(3, maxTotal=3), a_vm("a"), a_vm("b", WarmState.IN_USE), a_vm("c", WarmState.IN_USE)),
                kind,
                ("False", "MaxTotalReached"),
                id=f"as many as it may have: {kind}",
            )
            for kind in ("Available", "Progressing")
        ),
        pytest.param(
            a_snapshot(a_pool(2, maxTotal=2), a_vm("a"), a_vm("b", NEW)),
            "Progressing",
            ("True", "Scaling"),
            id="maxTotal reached and provisioning",
        ),
        pytest.param(a_snapshot(2, failures=FAILED), "Progressing", ("False", "FailedCreate"), id="creation refused"),
        pytest.param(
            a_snapshot(a_pool(2, status=OVERDUE), a_vm("a", of=OLD), a_vm("b", NEW, **FAILING_VM)),
            "Progressing",
            ("False", "ProgressDeadlineExceeded"),
            id="deadline exceeded",
        ),
        pytest.param(a_snapshot(2, failures=FAILED), "Degraded", ("True", "FailedCreate"), id="refusals"),
        pytest.param(a_snapshot(2, refusal="406"), "Degraded", ("True", "FailedStandby"), id="a refused pause"),
        pytest.param(a_snapshot(2, refusal="406"), "Progressing", ("False", "FailedStandby"), id="no standby"),
        pytest.param(
            a_snapshot(2, a_vm("a", NEW, **FAILING_VM)), "Degraded", ("True", "VMsFailing"), id="one failing VM"
        ),
        pytest.param(
            a_snapshot(9, *(a_vm(f"b{n}", NEW, **FAILING_VM) for n in range(5))),
            "Degraded",
            ("True", "CircuitBreakerOpen"),
            id="many failing VMs",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", WarmState.UNHEALTHY), health={"a": failing()}),
            "Degraded",
            ("True", "TooManyUnhealthy"),
            id="more unhealthy than available",
        ),
        *(
            pytest.param(
                a_snapshot(1, a_vm("a", WarmState.UNKNOWN, node=NOT_READY_NODE)),
                kind,
                (said, "HealthUnknown"),
                id=f"unknown: {kind}",
            )
            for kind, said in (("Available", "False"), ("Progressing", "True"), ("Degraded", "True"))
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", owner=NO_OWNER)),
            "Degraded",
            ("True", "ConflictingLabels"),
            id="contradictory labels",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", of=OLD)), "RolloutComplete", ("False", "Updating"), id="rollout in progress"
        ),
        pytest.param(a_snapshot(1, a_vm("a")), "RolloutComplete", ("True", "Complete"), id="rollout complete"),
        pytest.param(a_snapshot(a_pool(1, default=True)), "Default", ("True", "DefaultPool"), id="default pool"),
        pytest.param(
            a_snapshot(a_pool(1, default=True), default_pool=a_pool(uid="older")),
            "Default",
            ("False", "DefaultConflict"),
            id="older default pool",
        ),
        pytest.param(a_snapshot(1, default_pool=None), "Default", ("False", "NoDefaultPool"), id="no default pool"),
    ],
)
def test_conditions(observed: WarmPoolSnapshot, kind: str, expected: tuple[str, str]) -> None:
    assert conditions(observed)[kind] == expected


@pytest.mark.parametrize(
    ("observed", "kind", "message"),
    [
        pytest.param(
            a_snapshot(2, a_vm("a", WarmState.UNKNOWN, node=NOT_READY_NODE), a_vm("b")),
            "Degraded",
            "1 VM can't be checked: node node-1 is not ready",
            id="node of an Unknown VM",
        ),
        pytest.param(
            a_snapshot(2, a_vm("a", NEW, **FAILING_VM)),
            "Degraded",
            "web-a fails to start: ErrImagePull: not found",
            id="one failing VM",
        ),
        pytest.param(
            a_snapshot(3, a_vm("a", NEW, **FAILING_VM), a_vm("b", NEW, **FAILING_VM)),
            "Degraded",
            "2 VMs fail to start, 2 of them with ErrImagePull: not found",
            id="several failing VMs",
        ),
        pytest.param(
            a_snapshot(1, last_error="EC2 answered RequestLimitExceeded"),
            "Progressing",
            "the pool has 0 of 1 VM; EC2 answered RequestLimitExceeded",
            id="last error",
        ),
        pytest.param(
            a_snapshot(
                2,
                a_vm("a", NEW),
                a_vm("b", NEW),
                a_vm("c", NEW, vmi=None),
                health={
                    "a": VMHealth(Health("Failed", "NoAnswer", "the agent at 10.0.0.1:8200: DEADLINE_EXCEEDED")),
                    "b": VMHealth(Health("Failed", "NotReady", "conditions of the VMI that are not True: Ready")),
                    "c": VMHealth(Health("Failed", "NotRunning", "the VM does not run")),
                },
            ),
            "Progressing",
            "the pool has 3 of 2 VMs; VMs that run are not ready: NoAnswer",
            id="an agent that does not answer",
        ),
    ],
)
def test_messages_of_conditions(observed: WarmPoolSnapshot, kind: str, message: str) -> None:
    assert next(c.message for c in status(observed, NOW).conditions if c.type == kind) == message


LATE = replace(FULL, reason=str(WarmPoolReason.READINESS_TIMEOUT), message="not healthy within 900 s: ErrImagePull")
UNKNOWN_NODE = {"node": NOT_READY_NODE}


@pytest.mark.parametrize(
    ("observed", "stalled"),
    [
        pytest.param(a_snapshot(2, refusal="406"), True, id="a refused pause"),
        pytest.param(a_snapshot(2, failures=FAILED), False, id="creation refused, and tried again"),
        pytest.param(a_snapshot(2, failures=replace(FAILED, consecutive=9)), True, id="creation refused for long"),
        pytest.param(a_snapshot(2, a_vm("a", NEW, **FAILING_VM)), True, id="a VM fails to start"),
        pytest.param(a_snapshot(2, failures=FULL), False, id="capacity returns"),
        pytest.param(a_snapshot(2, failures=replace(FULL, consecutive=9)), False, id="capacity, for a long time"),
        pytest.param(a_snapshot(2, failures=LATE), True, id="VMs are not healthy in time"),
        pytest.param(a_snapshot(2, a_vm("a", NEW, **FAILING_VM), failures=LATE), True, id="the next VM fails too"),
        pytest.param(a_snapshot(4, a_vm("a", NEW, **UNSCHEDULABLE)), False, id="a node is added"),
        pytest.param(a_snapshot(4, a_vm("a", NEW, **OVER_QUOTA)), False, id="the quota is raised"),
        pytest.param(
            a_snapshot(4, a_vm("a", NEW, vmi=None, start_refusal="denied the request: no such class")),
            True,
            id="KubeVirt may not create the VMI",
        ),
        pytest.param(a_snapshot(1, a_vm("a", WarmState.UNKNOWN, **UNKNOWN_NODE)), False, id="a node returns"),
    ],
)
def test_a_pool_is_stalled_only_if_somebody_must_act(observed: WarmPoolSnapshot, stalled: bool) -> None:
    found = conditions(observed)
    assert found["Degraded"][0] == "True"
    assert found.get("Stalled", ("False",))[0] == str(stalled)


@pytest.mark.parametrize("consecutive", [1, 5, 50])
def test_a_shortage_is_reconciled_until_it_ends(consecutive: int) -> None:
    found = conditions(a_snapshot(2, failures=replace(FULL, consecutive=consecutive)))
    assert {kind: found[kind][:2] for kind in ("Available", "Degraded", "Reconciling", "Ready")} == {
        "Available": ("False", "InsufficientCapacity"),
        "Degraded": ("True", "InsufficientCapacity"),
        "Reconciling": ("True", "InsufficientCapacity"),
        "Ready": ("False", "InsufficientCapacity"),
    }


def test_a_failing_vm_outranks_the_timeout_of_the_one_before() -> None:
    found = conditions(a_snapshot(2, a_vm("a", NEW, **FAILING_VM), failures=LATE))
    assert found["Degraded"] == ("True", "VMsFailing")


def test_one_late_vm_does_not_stall_a_pool_with_enough_others() -> None:
    found = conditions(a_snapshot(1, a_vm("a"), failures=LATE))
    assert found["Ready"][0] == "True"


def test_degraded_is_absent_until_it_was_true() -> None:
    assert set(conditions(a_snapshot(1, a_vm("a")))) == {
        "Ready",
        "Valid",
        "Available",
        "Progressing",
        "RolloutComplete",
    }


def test_an_unchanged_status_keeps_its_times() -> None:
    first = status(a_snapshot(1, a_vm("a")), NOW)
    again = a_pool(1, status=first.json())
    assert status(a_snapshot(again, a_vm("a")), NOW.replace(year=2027)) == first


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        pytest.param(
            {"replicas": "2", "template": {"spec": {}}, "standby": {"mode": "Asleep"}},
            "standby.mode",
            id="invalid field",
        ),
        pytest.param({"replicas": 1}, "exactly one of template and ec2", id="no template"),
    ],
)
@pytest.mark.sentence("5.63")
def test_an_invalid_spec_is_reported_and_keeps_the_counts(spec: dict[str, Any], what: str) -> None:
    before = WarmPoolStatus(available_replicas=3).json()
    found = parse_warm_pool({"metadata": {"name": "web", "uid": "u"}, "spec": spec, "status": before})
    assert isinstance(found, InvalidWarmPool)
    said = invalid_spec_status(found, NOW)
    assert {c.type: c.status for c in said.conditions} == {
        "Valid": "False",
        "Progressing": "False",
        "Ready": "False",
        "Stalled": "True",
    }
    assert what in said.conditions[0].message
    assert said.available_replicas == 3


def event_reasons(before: WarmPoolSnapshot, after: WarmPoolSnapshot) -> list[str]:
    return [each.reason for each in status_events(status(before, NOW), status(after, NOW))]


COMPLETE = a_snapshot(1, a_vm("a"))
FAILING_POOL = a_snapshot(9, *(a_vm(f"b{n}", NEW, **FAILING_VM) for n in range(5)))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(COMPLETE, COMPLETE, [], id="no change"),
        pytest.param(COMPLETE, a_snapshot(1), ["PoolEmpty"], id="no VM available"),
        pytest.param(COMPLETE, FAILING_POOL, ["CircuitBreakerOpen", "PoolEmpty"], id="circuit breaker opens"),
        pytest.param(FAILING_POOL, COMPLETE, ["CircuitBreakerClosed"], id="circuit breaker closes"),
        pytest.param(COMPLETE, a_snapshot(1, a_vm("a", of=OLD)), ["RolloutStarted"], id="rollout starts"),
        pytest.param(a_snapshot(1, a_vm("a", of=OLD)), COMPLETE, ["RolloutComplete"], id="rollout completes"),
        pytest.param(a_snapshot(4), a_snapshot(4, failures=FULL), ["InsufficientCapacity"], id="unschedulable"),
    ],
)
def test_status_events(before: WarmPoolSnapshot, after: WarmPoolSnapshot, expected: list[str]) -> None:
    assert event_reasons(before, after) == expected


def test_the_first_status_causes_warnings_only() -> None:
    assert list(status_events(WarmPoolStatus(), status(COMPLETE, NOW))) == []
