"""VMs that fail their health checks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.warmpool.rate_limit import FailureBackoff
from controllers.warmpool.snapshot import VMHealth, WarmPoolSnapshot
from controllers.warmpool.warm_vm import NO_OWNER
from poolhouse.api.kinds.warm_states import WarmState
from tests.controllers.warmpool.builders import (
    CREATE,
    FAILED,
    FAILING_TO_START,
    LONG_FAILED_ALL,
    NEW,
    NOT_READY_NODE,
    OVER_QUOTA,
    PAUSED_POOL,
    UNABLE,
    UNSCHEDULABLE,
    a_pool,
    a_snapshot,
    a_vm,
    a_vmi,
    ago,
    failed_long,
    failing,
    planned,
)

LATE = {"state_since": ago(901), "vmi": None}
LONG_FAILED = {"a": failing(9)}


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(a_snapshot(1, a_vm("a"), health={"a": failing(2)}), [], id="two failed checks change nothing"),
        pytest.param(
            a_snapshot(1, a_vm("a"), health={"a": failing(3)}),
            [("state", "a", "Unhealthy")],
            id="three failed checks make a VM Unhealthy",
            marks=pytest.mark.sentence("5.24"),
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", node=NOT_READY_NODE)),
            [("state", "a", "Unknown")],
            id="a check that cannot run makes a VM Unknown at once",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", WarmState.UNKNOWN, node=NOT_READY_NODE)), [], id="an Unknown VM is left alone"
        ),
        pytest.param(
            a_snapshot(0, a_vm("a", WarmState.UNKNOWN, node=NOT_READY_NODE)), [], id="an Unknown VM is not scaled in"
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", WarmState.UNKNOWN, node=NOT_READY_NODE, state_since=ago(301))),
            [("state", "a", "Unhealthy")],
            id="an Unknown VM becomes Unhealthy after NODE_SECONDS",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", WarmState.UNKNOWN)),
            [("state", "a", "Ready")],
            id="an Unknown VM that is healthy becomes Ready",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", WarmState.UNHEALTHY, check_failures=2), a_vm("b"), health={"a": failing(5)}),
            [("count", "a", 3)],
            id="a failed check of an Unhealthy VM is counted",
        ),
        pytest.param(
            a_snapshot(
                1,
                a_vm("a", WarmState.UNHEALTHY, check_failures=2),
                a_vm("b"),
                health={"a": failing(5, period_over=False)},
            ),
            [],
            id="once in each period",
        ),
        pytest.param(
            a_snapshot(1, failed_long("a"), a_vm("b"), health=LONG_FAILED),
            [("delete", "a", "Unhealthy")],
            id="an Unhealthy VM is deleted after terminateThreshold checks",
            marks=pytest.mark.sentence("5.25"),
        ),
        pytest.param(
            a_snapshot(1, failed_long("a"), health=LONG_FAILED),
            [],
            id="not while no VM is available",
            marks=pytest.mark.sentence("5.26"),
        ),
        pytest.param(
            a_snapshot(0, failed_long("a"), health=LONG_FAILED),
            [("delete", "a", "Unhealthy")],
            id="with zero replicas it is deleted",
        ),
        pytest.param(
            a_snapshot(1, *map(failed_long, "ab"), a_vm("r"), health=LONG_FAILED_ALL),
            [("delete", "a", "Unhealthy"), ("delete", "b", "Unhealthy")],
            id="with enough available VMs all are deleted",
        ),
        pytest.param(
            a_snapshot(a_pool(1, paused=True), failed_long("a"), a_vm("b"), health=LONG_FAILED),
            [],
            id="a paused pool does not delete it",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", WarmState.UNHEALTHY)),
            [("state", "a", "PENDING_WARMPOOL_PROVISIONING"), CREATE],
            id="a recovered VM becomes Provisioning",
        ),
        pytest.param(
            a_snapshot(PAUSED_POOL, a_vm("a", standby="Paused", vmi=a_vmi())),
            [("state", "a", "PENDING_STANDBY")],
            id="a healthy VM that should be paused is paused again",
        ),
        pytest.param(
            a_snapshot(PAUSED_POOL, a_vm("a", NEW, standby="Paused", vmi=a_vmi(paused="PausedByUser"))),
            [("standby", "a", "Running")],
            id="a VM that recovered while paused is started for a check",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", NEW, **LATE)),
            [("delete", "a", "ReadinessTimeout")],
            id="a VM past the readiness timeout is deleted",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", NEW, **{**LATE, **UNSCHEDULABLE})),
            [],
            id="an unschedulable VM has no readiness timeout",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", NEW, **{**LATE, **OVER_QUOTA})),
            [],
            id="a VM that a quota keeps from starting has no readiness timeout",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", NEW, **LATE), health={"a": failing(unscheduled_ago=899)}),
            [],
            id="the timeout starts when the VM is scheduled",
        ),
        pytest.param(
            a_snapshot(5, *(a_vm(f"a{n}", NEW, **{**LATE, **FAILING_TO_START}) for n in range(5))),
            [("delete", "a0", "ReadinessTimeout")],
            id="with an open circuit breaker one late VM is deleted",
        ),
        pytest.param(
            a_snapshot(
                5,
                *(a_vm(f"a{n}", NEW, **{**LATE, **FAILING_TO_START}) for n in range(5)),
                failures=FailureBackoff(5, "", "", ago(-9)),
            ),
            [],
            id="no late VM is deleted during the backoff",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", WarmState.STANDING_BY, standby="Stopped", state_since=ago(901))),
            [("state", "a", "Unhealthy")],
            id="a VM that does not stop in time becomes Unhealthy",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", claim_uid="c")),
            [("delete", "a", "Contradiction")],
            id="a Ready VM with a claim is deleted",
        ),
        pytest.param(
            a_snapshot(0, a_vm("a", WarmState.IN_USE, owner=a_pool().owner)),
            [],
            id="a VM in use is kept whatever its owner reference says",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", owner=NO_OWNER)),
            [("orphan", "a", "Disowned")],
            id="a VM without its owner reference is orphaned",
        ),
        pytest.param(
            a_snapshot(0, a_vm("a", WarmState.TERMINATING)),
            [("delete", "a", "Marked")],
            id="a VM marked for termination is deleted",
        ),
        pytest.param(
            a_snapshot(0, a_vm("a", WarmState.IN_USE), a_vm("b", WarmState.ALLOCATING)),
            [],
            id="claimed VMs are left alone",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a"), health={"a": VMHealth()}),
            [],
            id="a VM that was not checked yet is left alone",
        ),
    ],
)
def test_heal(observed: WarmPoolSnapshot, expected: list[Any]) -> None:
    assert [each for each in planned(observed) if each != CREATE or CREATE in expected] == expected


def test_unable_and_failed_lead_to_different_states() -> None:
    vm = a_vm("a")
    assert planned(a_snapshot(1, vm, health={"a": VMHealth(UNABLE, UNABLE)})) == [("state", "a", "Unknown")]
    failed = VMHealth(FAILED, FAILED, failed_periods=3)
    assert planned(a_snapshot(1, vm, health={"a": failed})) == [("state", "a", "Unhealthy")]
    assert replace(vm, deleting=True) not in a_snapshot(1, replace(vm, deleting=True)).members
