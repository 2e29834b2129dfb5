"""Scale-out, scale-in, and deletions that make room."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.warmpool.autoscaling.decision import Decision
from controllers.warmpool.rate_limit import FailureBackoff
from controllers.warmpool.reasons import WarmPoolReason
from controllers.warmpool.snapshot import VMHealth, WarmPoolSnapshot
from controllers.warmpool.warm_vm import NO_OWNER
from poolhouse.api.kinds.warm_states import WarmState
from tests.controllers.warmpool.builders import (
    CORDONED,
    CREATE,
    FAILING_TO_START,
    LONG_FAILED_ALL,
    NEW,
    NOT_READY_NODE,
    UNABLE,
    UNSCHEDULABLE,
    a_pool,
    a_snapshot,
    a_vm,
    ago,
    failed_long,
    failing,
    outdated,
    planned,
    ready,
)


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(a_snapshot(3), [CREATE] * 3, id="a new pool creates its VMs", marks=pytest.mark.sentence("5.7")),
        pytest.param(
            a_snapshot(1, *ready(1), autoscaled=Decision(3, WarmPoolReason.WAIT_TARGET, "", 3)),
            [CREATE] * 2,
            id="autoscaling decides instead of replicas",
        ),
        pytest.param(a_snapshot(0), [], id="zero replicas create no VM", marks=pytest.mark.sentence("5.66")),
        pytest.param(a_snapshot(3, *ready(3)), [], id="enough Ready VMs need no creation"),
        pytest.param(
            a_snapshot(2, a_vm("a", NEW, vmi=None), a_vm("b")),
            [],
            id="a Provisioning VM counts",
            marks=pytest.mark.sentence("5.37"),
        ),
        pytest.param(
            a_snapshot(2, a_vm("a", WarmState.UNKNOWN, node=NOT_READY_NODE), a_vm("b")),
            [],
            id="an Unknown VM counts",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", WarmState.IN_USE)),
            [CREATE],
            id="a claimed VM does not count",
            marks=pytest.mark.sentence("5.36"),
        ),
        pytest.param(a_snapshot(1, a_vm("a", WarmState.ALLOCATING)), [CREATE], id="an Allocating VM does not count"),
        pytest.param(
            a_snapshot(1, a_vm("a", WarmState.UNHEALTHY), health={"a": failing(9, period_over=False)}),
            [CREATE],
            id="an Unhealthy VM does not count",
            marks=pytest.mark.sentence("5.58"),
        ),
        pytest.param(a_snapshot(1, a_vm("a", deleting=True)), [CREATE], id="a VM that is being deleted does not count"),
        pytest.param(
            a_snapshot(1, a_vm("a", orphaned="TemplateChanged", owner=NO_OWNER)),
            [CREATE],
            id="an orphaned VM does not count",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", owner=a_pool(uid="other").owner)),
            [CREATE],
            id="a VM with our label and another owner does not count",
        ),
        pytest.param(
            a_snapshot(0, queued_claims=2), [CREATE] * 2, id="a pool with zero replicas creates VMs for queued claims"
        ),
        pytest.param(
            a_snapshot(a_pool(5, maxTotal=4), a_vm("a", WarmState.IN_USE)), [CREATE] * 3, id="maxTotal limits creations"
        ),
        pytest.param(
            a_snapshot(a_pool(5, maxTotal=4), a_vm("a", WarmState.IN_USE), creating_for_claims=2),
            [CREATE],
            id="maxTotal counts VMs that are being created for claims",
        ),
        pytest.param(
            a_snapshot(a_pool(5, maxTotal=2), *ready(2), a_vm("c", deleting=True)),
            [],
            id="maxTotal counts VMs that are being deleted",
        ),
        pytest.param(
            a_snapshot(
                a_pool(3, maxTotal=3, incompatiblePolicy="Orphan"),
                *(outdated(f"o{n}", orphaned="TemplateChanged", owner=NO_OWNER) for n in range(3)),
            ),
            [CREATE] * 3,
            id="maxTotal does not count orphans",
        ),
        pytest.param(
            a_snapshot(a_pool(9, refill={"maxConcurrent": 4}), a_vm("a", NEW, vmi=None)),
            [CREATE] * 3,
            id="maxConcurrent limits creations in flight",
        ),
        pytest.param(a_snapshot(9, tokens=2.7), [CREATE] * 2, id="the rate limits creations"),
        pytest.param(a_snapshot(3, expectations_met=False), [], id="no creation while the cache lags behind"),
        pytest.param(a_snapshot(a_pool(3, paused=True)), [], id="a paused pool creates no VM"),
        pytest.param(
            a_snapshot(a_pool(3, deletionTimestamp="2026-11-21T12:00:00Z")),
            [],
            id="a pool that is being deleted creates no VM",
        ),
        pytest.param(
            a_snapshot(3, failures=FailureBackoff(1, "FailedCreate", "no", ago(-5))),
            [],
            id="no creation during the backoff",
        ),
        pytest.param(
            a_snapshot(3, failures=FailureBackoff(1, "FailedCreate", "no", ago(1))),
            [CREATE] * 3,
            id="creations continue after the backoff",
            marks=pytest.mark.sentence("5.38"),
        ),
        pytest.param(
            a_snapshot(3, failures=FailureBackoff(7, "FailedCreate", "no", ago(1))),
            [CREATE],
            id="an open circuit breaker creates one VM to test",
        ),
        pytest.param(
            a_snapshot(a_pool(3, refill={"breakerThreshold": 0}), failures=FailureBackoff(7, "x", "no", ago(1))),
            [CREATE] * 3,
            id="breakerThreshold 0 disables the circuit breaker",
        ),
        pytest.param(
            a_snapshot(
                9,
                *(a_vm(f"b{n}", NEW, **FAILING_TO_START) for n in range(5)),
                failures=FailureBackoff(0, "", "", ago(-1)),
            ),
            [],
            id="no creation while many VMs fail to start",
        ),
        pytest.param(
            a_snapshot(9, *(a_vm(f"b{n}", NEW, **UNSCHEDULABLE) for n in range(8))),
            [CREATE],
            id="unschedulable VMs do not open the circuit breaker",
        ),
    ],
)
def test_scale_out(observed: WarmPoolSnapshot, expected: list[Any]) -> None:
    assert planned(observed) == expected


NO_QUOTA = {"reason": "InsufficientCapacity", "message": "exceeded quota"}
WAITING = a_vm("n", NEW, **UNSCHEDULABLE)
GATED = replace(UNSCHEDULABLE["vmi"], start_failure="SchedulingGated")


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            a_snapshot(a_pool(1, maxTotal=1), failed_long("a"), health=LONG_FAILED_ALL),
            [("delete", "a", "NoRoom")],
            id="the only VM that maxTotal allows is deleted",
        ),
        pytest.param(
            a_snapshot(a_pool(1, maxTotal=1), a_vm("a", WarmState.UNHEALTHY, check_failures=5), health=LONG_FAILED_ALL),
            [("count", "a", 6)],
            id="not before terminateThreshold",
        ),
        pytest.param(
            a_snapshot(
                a_pool(3, maxTotal=4),
                failed_long("a"),
                failed_long("b", state_since=ago(90)),
                failed_long("c"),
                a_vm("r"),
                health=LONG_FAILED_ALL,
            ),
            [("delete", "b", "NoRoom")],
            id="only the VM that is unhealthy for longest",
        ),
        pytest.param(
            a_snapshot(
                a_pool(3, maxTotal=3), *map(failed_long, "bc"), a_vm("a", deleting=True), health=LONG_FAILED_ALL
            ),
            [],
            id="none while another is being deleted",
        ),
        pytest.param(
            a_snapshot(a_pool(3, maxTotal=3), *map(failed_long, "bc"), health=LONG_FAILED_ALL),
            [CREATE],
            id="after the deletion another VM is created",
        ),
        pytest.param(
            a_snapshot(
                a_pool(3, maxTotal=3), *map(failed_long, "bc"), a_vm("n", NEW, vmi=None), health=LONG_FAILED_ALL
            ),
            [],
            id="none while the new VM is Provisioning",
        ),
        pytest.param(
            a_snapshot(a_pool(3, maxTotal=3), *map(failed_long, "bc"), a_vm("n"), health=LONG_FAILED_ALL),
            [("delete", "b", "NoRoom")],
            id="the next after the new VM is Ready",
        ),
        pytest.param(
            a_snapshot(a_pool(1, maxTotal=1), failed_long("a"), health=LONG_FAILED_ALL, expectations_met=False),
            [],
            id="none while the cache lags behind",
        ),
        pytest.param(
            a_snapshot(
                a_pool(2, maxTotal=2),
                failed_long("a"),
                a_vm("u", WarmState.UNKNOWN, node=NOT_READY_NODE),
                health=LONG_FAILED_ALL,
            ),
            [],
            id="none while a VM is Unknown",
        ),
        pytest.param(
            a_snapshot(a_pool(1, maxTotal=1), failed_long("a"), health={"a": VMHealth(UNABLE, UNABLE)}),
            [],
            id="none whose check cannot run",
        ),
        pytest.param(
            a_snapshot(a_pool(1, maxTotal=1, paused=True), failed_long("a"), health=LONG_FAILED_ALL),
            [],
            id="a paused pool keeps it",
        ),
        pytest.param(
            a_snapshot(2, *map(failed_long, "ab"), WAITING, replace(WAITING, uid="o"), health=LONG_FAILED_ALL),
            [("delete", "a", "NoRoom")],
            id="one is deleted where other VMs are unschedulable",
        ),
        pytest.param(
            a_snapshot(
                2,
                *map(failed_long, "ab"),
                WAITING,
                failures=FailureBackoff(1, "NoRoom", "", ago(-5)),
                health=LONG_FAILED_ALL,
            ),
            [],
            id="none during the backoff",
        ),
        pytest.param(
            a_snapshot(2, *map(failed_long, "ab"), WAITING, a_vm("m", NEW, vmi=None), health=LONG_FAILED_ALL),
            [],
            id="none while another VM is being scheduled",
        ),
        pytest.param(
            a_snapshot(1, *map(failed_long, "ab"), replace(WAITING, vmi=GATED), health=LONG_FAILED_ALL),
            [],
            id="none for a VM with a scheduling gate",
        ),
        pytest.param(
            a_snapshot(
                2,
                *map(failed_long, "ab"),
                failures=FailureBackoff(2, retry_at=ago(1), **NO_QUOTA),
                health=LONG_FAILED_ALL,
            ),
            [("delete", "a", "NoRoom")],
            id="one is deleted where a quota is used up",
        ),
        pytest.param(
            a_snapshot(
                2,
                *map(failed_long, "ab"),
                failures=FailureBackoff(1, retry_at=ago(1), **NO_QUOTA),
                health=LONG_FAILED_ALL,
            ),
            [CREATE] * 2,
            id="the first refusal is retried",
        ),
        pytest.param(
            a_snapshot(
                2,
                failed_long("b"),
                failures=FailureBackoff(2, "NoRoom", "a was deleted", ago(1)),
                health=LONG_FAILED_ALL,
            ),
            [CREATE] * 2,
            id="a creation follows the deletion",
        ),
        pytest.param(
            a_snapshot(a_pool(2, maxTotal=2), a_vm("a", node=CORDONED), a_vm("b", node=CORDONED)),
            [("delete", "a", "NoRoom")],
            id="a VM on a cordoned node is deleted",
        ),
        pytest.param(
            a_snapshot(a_pool(2, maxTotal=2), a_vm("b", node=CORDONED), a_vm("n", NEW, vmi=None)),
            [],
            id="the next after another VM is available",
        ),
        pytest.param(
            a_snapshot(a_pool(2, maxTotal=3), a_vm("a", node=CORDONED), a_vm("b")),
            [CREATE],
            id="none while maxTotal allows another VM",
        ),
        pytest.param(
            a_snapshot(2, a_vm("a", node=CORDONED), WAITING, a_vm("b")),
            [],
            id="none for an unschedulable VM",
        ),
    ],
)
def test_make_room(observed: WarmPoolSnapshot, expected: list[Any]) -> None:
    assert planned(observed) == expected


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            a_snapshot(1, a_vm("a", created_at=ago(9)), a_vm("b", created_at=ago(5))),
            ["b"],
            id="the youngest is deleted",
            marks=pytest.mark.sentence("5.8"),
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", NEW, vmi=None), a_vm("b", created_at=ago(1))),
            ["a"],
            id="VMs that are not Ready are deleted first",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", node=CORDONED), a_vm("b")), ["a"], id="VMs on a cordoned node are deleted first"
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", WarmState.UNKNOWN, node=NOT_READY_NODE), a_vm("b")),
            ["b"],
            id="an Unknown VM is kept",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a"), a_vm("b"), expectations_met=False),
            [],
            id="none while the cache lags behind",
        ),
        pytest.param(a_snapshot(a_pool(1, paused=True), *ready(3)), [], id="a paused pool deletes none"),
        pytest.param(a_snapshot(1, *ready(2), queued_claims=1), [], id="VMs for queued claims are kept"),
        pytest.param(
            a_snapshot(1, a_vm("a", NEW, vmi=None), a_vm("b"), reserved=1),
            [],
            id="a VM that boots is kept when a claim has just taken the other one",
        ),
        pytest.param(
            a_snapshot(0, a_vm("a", WarmState.IN_USE), a_vm("b", WarmState.ALLOCATING)),
            [],
            id="claimed VMs are kept",
        ),
    ],
)
def test_scale_in(observed: WarmPoolSnapshot, expected: list[str]) -> None:
    assert [each[1] for each in planned(observed) if each[0] == "delete"] == expected
