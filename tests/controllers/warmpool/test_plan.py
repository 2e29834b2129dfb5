"""What a warm pool does next: state → actions. Each row is a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.warmpool.orphaning import FINALIZER
from controllers.warmpool.rate_limit import FailureBackoff
from controllers.warmpool.snapshot import VMHealth, WarmPoolSnapshot
from controllers.warmpool.warm_vm import NO_OWNER
from kinds.warm_states import WarmState
from tests.controllers.warmpool.builders import (
    CORDONED,
    FAILED,
    NOT_READY_NODE,
    OTHER_TEMPLATE,
    UNABLE,
    a_pool,
    a_snapshot,
    a_vm,
    a_vmi,
    ago,
    failing,
    healthy,
    planned,
)

MAKE = ("create", "Running")
NEW = WarmState.PROVISIONING
OLD = a_pool(template=OTHER_TEMPLATE)
ABROAD = {"vmi": a_vmi(start_failure="Unschedulable", phase="Scheduling", conditions=frozenset())}
BROKEN = {"vmi": a_vmi(start_failure="ErrImagePull", phase="Scheduling", conditions=frozenset())}


def old(name: str, was: WarmState = WarmState.READY, **facts: Any) -> Any:
    return a_vm(name, was, of=OLD, **facts)


def tired(name: str, **facts: Any) -> Any:
    return a_vm(name, WarmState.UNHEALTHY, check_failures=6, **facts)


def ready(count: int) -> list[Any]:
    return [a_vm(f"r{n}") for n in range(count)]


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(a_snapshot(3), [MAKE] * 3, id="a new pool is filled"),
        pytest.param(a_snapshot(0), [], id="a pool of none makes none"),
        pytest.param(a_snapshot(3, *ready(3)), [], id="enough is enough"),
        pytest.param(a_snapshot(2, a_vm("a", NEW, vmi=None), a_vm("b")), [], id="what is on its way counts"),
        pytest.param(
            a_snapshot(2, a_vm("a", WarmState.UNKNOWN, node=NOT_READY_NODE), a_vm("b")),
            [],
            id="so does what can't be checked",
        ),
        pytest.param(a_snapshot(1, a_vm("a", WarmState.IN_USE)), [MAKE], id="what is claimed does not count"),
        pytest.param(a_snapshot(1, a_vm("a", WarmState.ALLOCATING)), [MAKE], id="nor what is just being claimed"),
        pytest.param(
            a_snapshot(1, a_vm("a", WarmState.UNHEALTHY), health={"a": failing(9, period_over=False)}),
            [MAKE],
            id="nor what is unhealthy",
        ),
        pytest.param(a_snapshot(1, a_vm("a", deleting=True)), [MAKE], id="nor what is being deleted"),
        pytest.param(a_snapshot(1, a_vm("a", orphaned="TemplateChanged", owner=NO_OWNER)), [MAKE], id="nor an orphan"),
        pytest.param(
            a_snapshot(1, a_vm("a", owner=a_pool(uid="other").owner)),
            [MAKE],
            id="nor one that says it is ours and is not",
        ),
        pytest.param(
            a_snapshot(0, queued_claims=2), [MAKE] * 2, id="queued claims are filled for, even by a pool of none"
        ),
        pytest.param(
            a_snapshot(a_pool(5, maxTotal=4), a_vm("a", WarmState.IN_USE)), [MAKE] * 3, id="never above maxTotal"
        ),
        pytest.param(
            a_snapshot(a_pool(5, maxTotal=4), a_vm("a", WarmState.IN_USE), creating_for_claims=2),
            [MAKE],
            id="nor with those being made for claims",
        ),
        pytest.param(
            a_snapshot(a_pool(5, maxTotal=2), *ready(2), a_vm("c", deleting=True)), [], id="those that go count there"
        ),
        pytest.param(
            a_snapshot(
                a_pool(3, maxTotal=3, incompatiblePolicy="Orphan"),
                *(old(f"o{n}", orphaned="TemplateChanged", owner=NO_OWNER) for n in range(3)),
            ),
            [MAKE] * 3,
            id="orphans don't: they are nobody's",
        ),
        pytest.param(
            a_snapshot(a_pool(9, refill={"maxConcurrent": 4}), a_vm("a", NEW, vmi=None)),
            [MAKE] * 3,
            id="so many at a time",
        ),
        pytest.param(a_snapshot(9, tokens=2.7), [MAKE] * 2, id="no faster than the rate"),
        pytest.param(a_snapshot(3, expectations_met=False), [], id="what was made must be seen before more is"),
        pytest.param(a_snapshot(a_pool(3, paused=True)), [], id="a paused pool makes nothing"),
        pytest.param(
            a_snapshot(a_pool(3, deletionTimestamp="2026-11-21T12:00:00Z")), [], id="a pool that goes makes nothing"
        ),
        pytest.param(
            a_snapshot(3, failures=FailureBackoff(1, "FailedCreate", "no", ago(-5))), [], id="after a failure it waits"
        ),
        pytest.param(
            a_snapshot(3, failures=FailureBackoff(1, "FailedCreate", "no", ago(1))),
            [MAKE] * 3,
            id="and goes on when the pause is over",
        ),
        pytest.param(
            a_snapshot(3, failures=FailureBackoff(7, "FailedCreate", "no", ago(1))),
            [MAKE],
            id="after many it tries with one",
        ),
        pytest.param(
            a_snapshot(a_pool(3, refill={"breakerThreshold": 0}), failures=FailureBackoff(7, "x", "no", ago(1))),
            [MAKE] * 3,
            id="unless there is no breaker",
        ),
        pytest.param(
            a_snapshot(
                9, *(a_vm(f"b{n}", NEW, **BROKEN) for n in range(5)), failures=FailureBackoff(0, "", "", ago(-1))
            ),
            [],
            id="while many fail to start, no more are made",
        ),
        pytest.param(
            a_snapshot(9, *(a_vm(f"b{n}", NEW, **ABROAD) for n in range(8))),
            [MAKE],
            id="for those that are held there is no breaker",
        ),
    ],
)
def test_filling(observed: WarmPoolSnapshot, expected: list[Any]) -> None:
    assert planned(observed) == expected


PAUSED_POOL = a_pool(1, standby={"mode": "Paused"})
STOPPED_POOL = a_pool(1, standby={"mode": "Stopped"})


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(a_snapshot(1, a_vm("a", NEW)), [("move", "a", "Ready")], id="what is healthy gets ready"),
        pytest.param(a_snapshot(1, a_vm("a", NEW, vmi=None)), [], id="what isn't is waited for"),
        pytest.param(
            a_snapshot(a_pool(1, readiness={"minReadySeconds": 30}), a_vm("a", NEW), health={"a": healthy(29)}),
            [],
            id="not before it was healthy for long enough",
        ),
        pytest.param(
            a_snapshot(a_pool(1, readiness={"minReadySeconds": 30}), a_vm("a", NEW), health={"a": healthy(30)}),
            [("move", "a", "Ready")],
            id="but then",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", NEW), expectations_met=False),
            [("move", "a", "Ready")],
            id="labels don't wait for what was made",
        ),
        pytest.param(
            a_snapshot(a_pool(1, paused=True), a_vm("a", NEW)),
            [("move", "a", "Ready")],
            id="a paused pool keeps its labels true",
        ),
        pytest.param(
            a_snapshot(PAUSED_POOL, a_vm("a", NEW, standby="Paused")),
            [("move", "a", "PENDING_STANDBY")],
            id="what is to be paused stands by first",
        ),
        pytest.param(
            a_snapshot(
                a_pool(1, standby={"mode": "Paused", "warmupSeconds": 60}),
                a_vm("a", NEW, standby="Paused"),
                health={"a": healthy(59)},
            ),
            [],
            id="but only when it has warmed up",
        ),
        pytest.param(
            a_snapshot(PAUSED_POOL, a_vm("a", WarmState.STANDING_BY, standby="Paused")),
            [("rest", "a", "Paused")],
            id="then it is paused",
        ),
        pytest.param(
            a_snapshot(
                PAUSED_POOL, a_vm("a", WarmState.STANDING_BY, standby="Paused", vmi=a_vmi(paused="PausedByUser"))
            ),
            [("move", "a", "Ready")],
            id="and is Ready when it is",
        ),
        pytest.param(
            a_snapshot(
                PAUSED_POOL, a_vm("a", WarmState.STANDING_BY, standby="Paused", vmi=None, run_strategy="Halted")
            ),
            [("rest", "a", "Running")],
            id="one that is stopped has to be started to be paused",
        ),
        pytest.param(
            a_snapshot(STOPPED_POOL, a_vm("a", WarmState.STANDING_BY, standby="Stopped")),
            [("rest", "a", "Stopped")],
            id="another is stopped",
        ),
        pytest.param(
            a_snapshot(
                STOPPED_POOL,
                a_vm(
                    "a", WarmState.STANDING_BY, standby="Stopped", vmi=a_vmi(deleted_at=ago(1)), run_strategy="Halted"
                ),
            ),
            [("rest", "a", "Stopped")],
            id="which takes its time",
        ),
        pytest.param(
            a_snapshot(
                STOPPED_POOL, a_vm("a", WarmState.STANDING_BY, standby="Stopped", vmi=None, run_strategy="Halted")
            ),
            [("move", "a", "Ready")],
            id="and is then Ready",
        ),
    ],
)
def test_ripening(observed: WarmPoolSnapshot, expected: list[Any]) -> None:
    assert planned(observed) == expected


LATE = {"state_since": ago(901), "vmi": None}
TIRED = {"a": failing(9)}
WORN = {name: failing(9) for name in "abc"}


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(a_snapshot(1, a_vm("a"), health={"a": failing(2)}), [], id="a check may fail"),
        pytest.param(
            a_snapshot(1, a_vm("a"), health={"a": failing(3)}),
            [("move", "a", "Unhealthy")],
            id="three make it unhealthy",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", node=NOT_READY_NODE)),
            [("move", "a", "Unknown")],
            id="a check that can't be made leaves it unknown at once",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", WarmState.UNKNOWN, node=NOT_READY_NODE)), [], id="what is unknown is left alone"
        ),
        pytest.param(
            a_snapshot(0, a_vm("a", WarmState.UNKNOWN, node=NOT_READY_NODE)), [], id="even where it is one too many"
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", WarmState.UNKNOWN, node=NOT_READY_NODE, state_since=ago(301))),
            [("move", "a", "Unhealthy")],
            id="until its node is given up",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", WarmState.UNKNOWN)), [("move", "a", "Ready")], id="it comes back by itself"
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", WarmState.UNHEALTHY, check_failures=2), a_vm("b"), health={"a": failing(5)}),
            [("count", "a", 3)],
            id="what is unhealthy is counted",
        ),
        pytest.param(
            a_snapshot(
                1,
                a_vm("a", WarmState.UNHEALTHY, check_failures=2),
                a_vm("b"),
                health={"a": failing(5, period_over=False)},
            ),
            [],
            id="once a period",
        ),
        pytest.param(
            a_snapshot(1, tired("a"), a_vm("b"), health=TIRED),
            [("terminate", "a", "Unhealthy")],
            id="and goes after enough periods",
        ),
        pytest.param(
            a_snapshot(1, tired("a"), health=TIRED),
            [],
            id="but not while none is well: that is not the machine",
        ),
        pytest.param(
            a_snapshot(0, tired("a"), health=TIRED),
            [("terminate", "a", "Unhealthy")],
            id="unless none is wanted",
        ),
        pytest.param(
            a_snapshot(1, *map(tired, "ab"), a_vm("r"), health=WORN),
            [("terminate", "a", "Unhealthy"), ("terminate", "b", "Unhealthy")],
            id="or as many are well as are wanted",
        ),
        pytest.param(
            a_snapshot(a_pool(1, paused=True), tired("a"), a_vm("b"), health=TIRED),
            [],
            id="nor from a paused pool",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", WarmState.UNHEALTHY)),
            [("move", "a", "PENDING_WARMPOOL_PROVISIONING"), MAKE],
            id="what answers again is checked anew",
        ),
        pytest.param(
            a_snapshot(PAUSED_POOL, a_vm("a", standby="Paused", vmi=a_vmi())),
            [("move", "a", "PENDING_STANDBY")],
            id="what should be paused and runs well is paused again",
        ),
        pytest.param(
            a_snapshot(PAUSED_POOL, a_vm("a", NEW, standby="Paused", vmi=a_vmi(paused="PausedByUser"))),
            [("rest", "a", "Running")],
            id="what recovered in its sleep is woken to be checked",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", NEW, **LATE)),
            [("terminate", "a", "ReadinessTimeout")],
            id="what does not get ready in time goes",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", NEW, **{**LATE, **ABROAD})), [], id="what the cluster has no room for is not late"
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", NEW, **LATE), health={"a": failing(unscheduled_ago=899)}),
            [],
            id="nor what it had no room for until a moment ago",
        ),
        pytest.param(
            a_snapshot(5, *(a_vm(f"a{n}", NEW, **{**LATE, **BROKEN}) for n in range(5))),
            [("terminate", "a0", "ReadinessTimeout")],
            id="where all are late, one is replaced",
        ),
        pytest.param(
            a_snapshot(
                5,
                *(a_vm(f"a{n}", NEW, **{**LATE, **BROKEN}) for n in range(5)),
                failures=FailureBackoff(5, "", "", ago(-9)),
            ),
            [],
            id="and the next one after a pause",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", WarmState.STANDING_BY, standby="Stopped", state_since=ago(901))),
            [("move", "a", "Unhealthy")],
            id="what can't be stopped is unhealthy",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", claim_uid="c")),
            [("terminate", "a", "Contradiction")],
            id="Ready with a claim is impossible",
        ),
        pytest.param(
            a_snapshot(0, a_vm("a", WarmState.IN_USE, owner=a_pool().owner)),
            [],
            id="whoever writes owner references takes nobody's machine",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", owner=NO_OWNER)),
            [("orphan", "a", "Disowned")],
            id="a machine that was taken from us",
        ),
        pytest.param(
            a_snapshot(0, a_vm("a", WarmState.TERMINATING)), [("terminate", "a", "Marked")], id="what was marked goes"
        ),
        pytest.param(
            a_snapshot(0, a_vm("a", WarmState.IN_USE), a_vm("b", WarmState.ALLOCATING)),
            [],
            id="what is claimed is not touched",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a"), health={"a": VMHealth()}),
            [],
            id="what a process that has just begun has not asked yet",
        ),
    ],
)
def test_healing(observed: WarmPoolSnapshot, expected: list[Any]) -> None:
    assert [each for each in planned(observed) if each != MAKE or MAKE in expected] == expected


NO_QUOTA = {"reason": "InsufficientCapacity", "message": "exceeded quota"}
HELD_BACK = a_vm("n", NEW, **ABROAD)
GATED = replace(ABROAD["vmi"], start_failure="SchedulingGated")


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            a_snapshot(a_pool(1, maxTotal=1), tired("a"), health=WORN),
            [("terminate", "a", "NoRoom")],
            id="the only one that may be goes",
        ),
        pytest.param(
            a_snapshot(a_pool(1, maxTotal=1), a_vm("a", WarmState.UNHEALTHY, check_failures=5), health=WORN),
            [("count", "a", 6)],
            id="not before it has been waited for",
        ),
        pytest.param(
            a_snapshot(
                a_pool(3, maxTotal=4),
                tired("a"),
                tired("b", state_since=ago(90)),
                tired("c"),
                a_vm("r"),
                health=WORN,
            ),
            [("terminate", "b", "NoRoom")],
            id="of many one, the longest unhealthy",
        ),
        pytest.param(
            a_snapshot(a_pool(3, maxTotal=3), *map(tired, "bc"), a_vm("a", deleting=True), health=WORN),
            [],
            id="the next one not while that goes",
        ),
        pytest.param(
            a_snapshot(a_pool(3, maxTotal=3), *map(tired, "bc"), health=WORN), [MAKE], id="nor when it has gone"
        ),
        pytest.param(
            a_snapshot(a_pool(3, maxTotal=3), *map(tired, "bc"), a_vm("n", NEW, vmi=None), health=WORN),
            [],
            id="nor before another in its place shows what that is worth",
        ),
        pytest.param(
            a_snapshot(a_pool(3, maxTotal=3), *map(tired, "bc"), a_vm("n"), health=WORN),
            [("terminate", "b", "NoRoom")],
            id="but then",
        ),
        pytest.param(
            a_snapshot(a_pool(1, maxTotal=1), tired("a"), health=WORN, expectations_met=False),
            [],
            id="what was removed is seen first",
        ),
        pytest.param(
            a_snapshot(
                a_pool(2, maxTotal=2), tired("a"), a_vm("u", WarmState.UNKNOWN, node=NOT_READY_NODE), health=WORN
            ),
            [],
            id="none while one can't be checked",
        ),
        pytest.param(
            a_snapshot(a_pool(1, maxTotal=1), tired("a"), health={"a": VMHealth(UNABLE, UNABLE)}),
            [],
            id="and none that can't be checked any more",
        ),
        pytest.param(
            a_snapshot(a_pool(1, maxTotal=1, paused=True), tired("a"), health=WORN), [], id="a paused pool keeps it"
        ),
        pytest.param(
            a_snapshot(2, *map(tired, "ab"), HELD_BACK, replace(HELD_BACK, uid="o"), health=WORN),
            [("terminate", "a", "NoRoom")],
            id="one goes where the cluster has no room for others",
        ),
        pytest.param(
            a_snapshot(2, *map(tired, "ab"), HELD_BACK, failures=FailureBackoff(1, "NoRoom", "", ago(-5)), health=WORN),
            [],
            id="the next one after a pause",
        ),
        pytest.param(
            a_snapshot(2, *map(tired, "ab"), HELD_BACK, a_vm("m", NEW, vmi=None), health=WORN),
            [],
            id="nor while there is room for one",
        ),
        pytest.param(
            a_snapshot(1, *map(tired, "ab"), replace(HELD_BACK, vmi=GATED), health=WORN),
            [],
            id="not for one that somebody gates",
        ),
        pytest.param(
            a_snapshot(2, *map(tired, "ab"), failures=FailureBackoff(2, retry_at=ago(1), **NO_QUOTA), health=WORN),
            [("terminate", "a", "NoRoom")],
            id="or where the quota is used up",
        ),
        pytest.param(
            a_snapshot(2, *map(tired, "ab"), failures=FailureBackoff(1, retry_at=ago(1), **NO_QUOTA), health=WORN),
            [MAKE] * 2,
            id="which is asked twice",
        ),
        pytest.param(
            a_snapshot(2, tired("b"), failures=FailureBackoff(2, "NoRoom", "a was deleted", ago(1)), health=WORN),
            [MAKE] * 2,
            id="which is then tried again",
        ),
        pytest.param(
            a_snapshot(a_pool(2, maxTotal=2), a_vm("a", node=CORDONED), a_vm("b", node=CORDONED)),
            [("terminate", "a", "NoRoom")],
            id="so does one on a cordoned node",
        ),
        pytest.param(
            a_snapshot(a_pool(2, maxTotal=2), a_vm("b", node=CORDONED), a_vm("n", NEW, vmi=None)),
            [],
            id="and the next when there is another",
        ),
        pytest.param(
            a_snapshot(a_pool(2, maxTotal=3), a_vm("a", node=CORDONED), a_vm("b")),
            [MAKE],
            id="none where there is room for one more",
        ),
        pytest.param(
            a_snapshot(2, a_vm("a", node=CORDONED), HELD_BACK, a_vm("b")),
            [],
            id="a cordoned node has no room for others",
        ),
    ],
)
def test_making_room(observed: WarmPoolSnapshot, expected: list[Any]) -> None:
    assert planned(observed) == expected


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            a_snapshot(1, a_vm("a", created_at=ago(9)), a_vm("b", created_at=ago(5))), ["b"], id="the youngest goes"
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", NEW, vmi=None), a_vm("b", created_at=ago(1))),
            ["a"],
            id="after those that are not ready",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", node=CORDONED), a_vm("b")), ["a"], id="and those that can't be given away"
        ),
        pytest.param(
            a_snapshot(1, a_vm("a", WarmState.UNKNOWN, node=NOT_READY_NODE), a_vm("b")),
            ["b"],
            id="what is unknown stays",
        ),
        pytest.param(
            a_snapshot(1, a_vm("a"), a_vm("b"), expectations_met=False),
            [],
            id="what was removed must be seen before more is",
        ),
        pytest.param(a_snapshot(a_pool(1, paused=True), *ready(3)), [], id="a paused pool removes nothing"),
        pytest.param(a_snapshot(1, *ready(2), queued_claims=1), [], id="what queued claims wait for stays"),
        pytest.param(
            a_snapshot(0, a_vm("a", WarmState.IN_USE), a_vm("b", WarmState.ALLOCATING)),
            [],
            id="what is claimed is nobody's to remove",
        ),
    ],
)
def test_trimming(observed: WarmPoolSnapshot, expected: list[str]) -> None:
    assert [each[1] for each in planned(observed) if each[0] == "terminate"] == expected


FOUR_OLD = [old(f"o{n}", created_at=ago(100 - n)) for n in range(4)]
ONE_AWAY = {"rollingUpdate": {"maxUnavailable": 1}}
OVERDUE = {"templateHash": a_pool().template_hash, "lastProgressTime": ago(700)}


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            a_snapshot(4, *FOUR_OLD), [("terminate", "o0", "Outdated")], id="a quarter at a time, the oldest first"
        ),
        pytest.param(
            a_snapshot(4, *FOUR_OLD[1:], a_vm("n", NEW, vmi=None)), [], id="the next when the first is replaced"
        ),
        pytest.param(a_snapshot(4, *FOUR_OLD[1:], a_vm("n")), [("terminate", "o1", "Outdated")], id="namely then"),
        pytest.param(
            a_snapshot(4, *FOUR_OLD[:3], old("p", NEW, vmi=None)),
            [("terminate", "p", "Outdated")],
            id="one that serves nobody goes at once",
        ),
        pytest.param(
            a_snapshot(4, *FOUR_OLD[:3], old("p", WarmState.UNKNOWN, node=NOT_READY_NODE)),
            [],
            id="but not one that could not be checked",
        ),
        pytest.param(a_snapshot(1, old("o")), [("terminate", "o", "Outdated")], id="of one, one may be missing"),
        pytest.param(
            a_snapshot(a_pool(1, updateStrategy={"rollingUpdate": {"maxUnavailable": "25%", "maxSurge": 1}}), old("o")),
            [MAKE],
            id="unless there may be one more",
        ),
        pytest.param(
            a_snapshot(
                a_pool(1, updateStrategy={"rollingUpdate": {"maxUnavailable": "25%", "maxSurge": 1}}),
                old("o"),
                a_vm("n"),
            ),
            [("terminate", "o", "Outdated")],
            id="then the old one goes last",
        ),
        pytest.param(
            a_snapshot(a_pool(4, updateStrategy={"type": "Recreate"}), *FOUR_OLD),
            [("terminate", f"o{n}", "Outdated") for n in range(4)],
            id="Recreate takes all",
        ),
        pytest.param(
            a_snapshot(a_pool(4, updateStrategy={"type": "OnReplenish"}), *FOUR_OLD), [], id="OnReplenish takes none"
        ),
        pytest.param(
            a_snapshot(a_pool(4, updateStrategy={"type": "OnReplenish"}), *FOUR_OLD[:3]),
            [MAKE],
            id="and makes new ones of the new",
        ),
        pytest.param(
            a_snapshot(a_pool(4, incompatiblePolicy="Orphan"), *FOUR_OLD),
            [("orphan", "o0", "TemplateChanged")],
            id="or leaves them to themselves",
        ),
        pytest.param(
            a_snapshot(a_pool(4, status=OVERDUE), *FOUR_OLD[1:], a_vm("n"), a_vm("m", NEW, vmi=None)),
            [("terminate", "m", "Excess")],
            id="what is too many goes before anything is replaced",
        ),
        pytest.param(
            a_snapshot(
                a_pool(
                    4,
                    status=OVERDUE,
                    updateStrategy={"rollingUpdate": {"maxUnavailable": 3}, "progressDeadlineSeconds": 600},
                ),
                *FOUR_OLD[:3],
                a_vm("m", NEW, vmi=None),
            ),
            [],
            id="a rollout that does not get on is stopped, and the old go on serving",
        ),
        pytest.param(
            a_snapshot(
                a_pool(4, expiry={"maxAgeSeconds": 500}), *(a_vm(f"e{n}", created_at=ago(600 - n)) for n in range(4))
            ),
            [("terminate", "e0", "Expired")],
            id="what is too old is replaced likewise",
        ),
        pytest.param(
            a_snapshot(
                a_pool(2, expiry={"maxAgeSeconds": 500}),
                a_vm("a", created_at=ago(400)),
                a_vm("b", created_at=ago(1)),
            ),
            [],
            id="not before its time",
        ),
        pytest.param(
            a_snapshot(2, a_vm("a", node=CORDONED), a_vm("b")),
            [MAKE],
            id="what is on a cordoned node is replaced first",
        ),
        pytest.param(
            a_snapshot(2, a_vm("a", node=CORDONED), a_vm("b"), a_vm("c")),
            [("terminate", "a", "NodeLeaving")],
            id="and goes then",
        ),
        pytest.param(
            a_snapshot(
                2, a_vm("a", NEW, node=CORDONED, vmi=a_vmi(phase="Scheduled", conditions=frozenset())), a_vm("b")
            ),
            [("terminate", "a", "NodeLeaving"), MAKE],
            id="one that is not ready yet goes at once",
        ),
    ],
)
def test_rolling(observed: WarmPoolSnapshot, expected: list[Any]) -> None:
    assert planned(observed) == expected


def test_a_template_that_comes_back_finds_its_machines_again() -> None:
    there, back = a_pool(2, template=OTHER_TEMPLATE), a_pool(2)
    machines = [a_vm("a"), a_vm("b")]
    assert planned(a_snapshot(there, *machines))[0] == ("terminate", "a", "Outdated")
    assert planned(a_snapshot(back, *machines)) == []


MIXED = a_pool(3, standby={"mode": "Paused", "hotReplicas": 1})
COLD = {"standby": "Paused"}


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            a_snapshot(MIXED),
            [("create", "Running"), ("create", "Paused"), ("create", "Paused")],
            id="some are hot from the beginning",
        ),
        pytest.param(a_snapshot(MIXED, a_vm("h"), a_vm("a", **COLD), a_vm("b", **COLD)), [], id="and stay so"),
        pytest.param(
            a_snapshot(
                MIXED,
                a_vm("h", WarmState.IN_USE),
                a_vm("a", created_at=ago(9), **COLD),
                a_vm("b", created_at=ago(5), **COLD),
            ),
            [("create", "Paused"), ("move", "a", "PENDING_STANDBY", "Running")],
            id="one that is claimed is followed by one that is woken",
        ),
        pytest.param(
            a_snapshot(MIXED, a_vm("w", WarmState.STANDING_BY, vmi=None), a_vm("a", **COLD), a_vm("n", NEW, vmi=None)),
            [("rest", "w", "Running"), ("move", "n", "PENDING_WARMPOOL_PROVISIONING", "Paused")],
            id="who comes too late to be hot learns where to go",
        ),
        pytest.param(
            a_snapshot(a_pool(2, standby={"mode": "Stopped"}), a_vm("a"), a_vm("b", **COLD)),
            [("move", "a", "PENDING_STANDBY", "Stopped")],
            id="another mode moves no more at a time than may be missing",
        ),
        pytest.param(
            a_snapshot(a_pool(8, standby={"mode": "Paused"}), *ready(8)),
            [("move", f"r{n}", "PENDING_STANDBY", "Paused") for n in range(2)],
            id="of many a quarter",
        ),
        pytest.param(
            a_snapshot(
                a_pool(8, standby={"mode": "Paused"}),
                *ready(6),
                *(a_vm(f"s{n}", WarmState.STANDING_BY, **COLD) for n in range(2)),
            ),
            [("rest", "s0", "Paused"), ("rest", "s1", "Paused")],
            id="and the next when these are back",
        ),
        pytest.param(
            a_snapshot(a_pool(2), a_vm("a"), a_vm("b", **COLD)),
            [("move", "b", "PENDING_STANDBY", "Running")],
            id="also back",
        ),
    ],
)
def test_tiers(observed: WarmPoolSnapshot, expected: list[Any]) -> None:
    assert planned(observed) == expected


ORPHANING = {"deletionPolicy": "Orphan"}
GOING = {**ORPHANING, "deletionTimestamp": ago(1), "finalizers": [FINALIZER]}


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(a_snapshot(a_pool(0, **ORPHANING)), [("hold", True)], id="a pool that orphans is held"),
        pytest.param(a_snapshot(a_pool(0, **ORPHANING, finalizers=["x", FINALIZER])), [], id="once"),
        pytest.param(
            a_snapshot(a_pool(0, finalizers=[FINALIZER])), [("hold", False)], id="and let go when it changes its mind"
        ),
        pytest.param(
            a_snapshot(a_pool(1, **GOING), a_vm("a"), a_vm("b", WarmState.IN_USE)),
            [("orphan", "a", "PoolDeleted")],
            id="its machines are orphaned, claimed ones are not its",
        ),
        pytest.param(
            a_snapshot(a_pool(1, **GOING), a_vm("b", WarmState.IN_USE)), [("hold", False)], id="then it may go"
        ),
        pytest.param(
            a_snapshot(a_pool(1, deletionTimestamp=ago(1)), a_vm("a")),
            [],
            id="others leave it to the garbage collector",
        ),
    ],
)
def test_leaving(observed: WarmPoolSnapshot, expected: list[Any]) -> None:
    assert planned(observed) == expected


def test_one_machine_gets_one_action() -> None:
    """Each is made of the machine as it was seen: the second would only fail."""
    pool = a_pool(2, standby={"mode": "Paused"}, template=OTHER_TEMPLATE)
    machines = [a_vm("a"), a_vm("b", NEW), a_vm("c", node=NOT_READY_NODE), a_vm("d", WarmState.UNHEALTHY)]
    acted = [each[1] for each in planned(a_snapshot(pool, *machines)) if each[0] not in ("create", "hold")]
    assert len(acted) == len(set(acted))


def test_unable_and_failed_are_told_apart() -> None:
    m = a_vm("a")
    assert planned(a_snapshot(1, m, health={"a": VMHealth(UNABLE, UNABLE)})) == [("move", "a", "Unknown")]
    failed = VMHealth(FAILED, FAILED, failed_periods=3)
    assert planned(a_snapshot(1, m, health={"a": failed})) == [("move", "a", "Unhealthy")]
    assert replace(m, deleting=True) not in a_snapshot(1, replace(m, deleting=True)).members
