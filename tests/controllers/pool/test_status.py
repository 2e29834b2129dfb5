"""What a pool says of itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controllers.pool.actions import Update
from controllers.pool.plan import plan
from controllers.pool.pool_readiness import invalid_spec_status
from controllers.pool.pools import parse_pool
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.sets.write_batches import Failure
from controllers.shared.invalid_spec import InvalidSpec
from poolhouse.api.kinds.metav1 import Condition
from poolhouse.api.kinds.pool import PoolStatus
from tests.controllers.pool.builders import NOW, OLD, a_pool, document, halted, leaving, retained, snapshot, vm, vmi

RUN = vmi("web-1", revision="r0")
RUNS_ON = vm(1, vmi=RUN, run_strategy="Once")
"""it gets the new template when it is started again"""


def said(observed: PoolSnapshot) -> PoolStatus:
    return pool_status(observed, plan(observed, NOW), NOW)


def condition(found: PoolStatus, kind: str) -> Condition | None:
    return next((c for c in found.conditions if c.type == kind), None)


@pytest.mark.parametrize(
    ("observed", "counts"),
    [
        pytest.param(snapshot(3), {"replicas": 0, "unavailable_replicas": 3}, id="what is missing is unavailable"),
        pytest.param(
            snapshot(3, vm(1), vm(2, ready=False), leaving(3)),
            {"replicas": 2, "ready_replicas": 1, "terminating_replicas": 1, "unavailable_replicas": 2},
            id="what is on its way out is counted apart",
        ),
        pytest.param(
            snapshot(2, vm(1), vm(2, revision="old")),
            {"updated_replicas": 1, "available_replicas": 2},
            id="only VMs of the present template are updated",
        ),
        pytest.param(
            snapshot(2, RUNS_ON, vm(2)), {"updated_replicas": 2}, id="a VM that may not be restarted has the template"
        ),
        pytest.param(
            snapshot(2, halted(1), halted(2)),
            {"ready_replicas": 0, "available_replicas": 2, "unavailable_replicas": 0},
            id="a VM that is meant to be halted is available and not ready",
            marks=pytest.mark.sentence("1.60"),
        ),
        pytest.param(
            snapshot(1, retained_disks=(retained(2), retained(3))), {"retained_disks": 2}, id="kept disks are counted"
        ),
    ],
)
def test_counts(observed: PoolSnapshot, counts: dict[str, Any]) -> None:
    found = said(observed)
    assert {name: getattr(found, name) for name in counts} == counts


@pytest.mark.parametrize(
    ("observed", "kind", "expected"),
    [
        pytest.param(snapshot(1, vm(1)), "Available", ("True", "MinimumReplicasAvailable"), id="all are ready"),
        pytest.param(snapshot(4), "Available", ("False", "MinimumReplicasUnavailable"), id="none exists"),
        pytest.param(
            snapshot(1), "Available", ("False", "MinimumReplicasUnavailable"), id="the only one does not exist"
        ),
        pytest.param(
            snapshot(2, halted(1), halted(2)),
            "Available",
            ("True", "MinimumReplicasAvailable"),
            id="meant to be halted",
        ),
        pytest.param(
            snapshot(4, *(vm(n, ready=n > 1) for n in range(1, 5))),
            "Available",
            ("True", "MinimumReplicasAvailable"),
            id="one of four may be down",
        ),
        pytest.param(
            snapshot(4, *(vm(n, ready=n > 2) for n in range(1, 5))),
            "Available",
            ("False", "MinimumReplicasUnavailable"),
            id="two of four may not",
        ),
        pytest.param(snapshot(a_pool(1, paused=True)), "Paused", ("True", "PoolPaused"), id="paused"),
        pytest.param(snapshot(1, vm(1)), "Paused", None, id="never paused is not worth a word"),
        pytest.param(
            snapshot(1, failure=Failure("FailedCreate", "quota")),
            "ReplicaFailure",
            ("True", "FailedCreate"),
            id="refused",
        ),
        pytest.param(snapshot(1, vm(1)), "ReplicaFailure", None, id="never refused is not worth a word"),
        pytest.param(
            snapshot(a_pool(0, scaleInStrategy={"unmanaged": {}}), vm(1)),
            "ScaleInBlocked",
            ("True", "NoCandidates"),
            id="nobody may go",
        ),
        pytest.param(snapshot(2, vm(1)), "Progressing", ("True", "ScalingVMs"), id="on the way"),
        pytest.param(snapshot(1, vm(1)), "Progressing", ("True", "Complete"), id="there"),
        pytest.param(
            snapshot(1, failure=Failure("FailedCreate", "x")),
            "Progressing",
            ("False", "FailedCreate"),
            id="not going on",
        ),
    ],
)
def test_conditions(observed: PoolSnapshot, kind: str, expected: tuple[str, str] | None) -> None:
    found = condition(said(observed), kind)
    assert (found and (found.status, found.reason)) == expected


def test_scale_in_that_waits_names_the_disruption_budget() -> None:
    down = (vm(n, ready=False, scale_in="Protect") for n in (2, 3))
    found = condition(said(snapshot(a_pool(2, maxUnavailable=1), vm(1), *down)), "Progressing")
    message = "1 VM is too many, 0 can be deleted now: 1 VM is available, 1 must stay available, maxUnavailable is 1"
    assert found.message == message


@pytest.mark.parametrize(
    ("seconds", "message", "again_seconds"),
    [
        pytest.param(10, "1 VM is still to be deleted", 290, id="a moment ago"),
        pytest.param(301, "1 VM is still to be deleted; finalizers keep web-2", None, id="it should be gone"),
        pytest.param(-9000, "1 VM is still to be deleted", None, id="before the clock was set back"),
    ],
)
def test_a_vm_that_a_finalizer_keeps_is_named(seconds: float, message: str, again_seconds: float | None) -> None:
    """Else nobody learns what the pool waits for, and it may be for ever."""
    observed = snapshot(1, vm(1), leaving(2, seconds))
    found = condition(said(observed), "Progressing")
    assert found.message == message
    assert plan(observed, NOW).again_seconds == again_seconds


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        pytest.param(
            snapshot(2, vm(1), vm("db-7", revision=OLD.label)),
            "1 of 2 VMs has the template; db-7 waits: its name does not match the pool's pattern web-NUMBER, so it has"
            " no template: `poolhouse detach db-7` takes it out of the pool",
            id="by its name",
        ),
        pytest.param(
            snapshot(2, vm(1), vm(2, revision=OLD.label, disks=()), foreign_disks={"root-2": "which is VM db's"}),
            "1 of 2 VMs has the template; web-2 waits: the template gives it disk root-2, which is VM db's: give the"
            " disk another name",
            id="by its disk",
        ),
    ],
)
def test_a_vm_that_the_template_does_not_fit_is_named(observed: PoolSnapshot, message: str) -> None:
    found = condition(said(observed), "Progressing")
    assert (found.status, found.reason, found.message) == ("True", "TemplateDoesNotFit", message)


def again(observed: PoolSnapshot, before: PoolStatus, seconds: float) -> PoolStatus:
    now = NOW + timedelta(seconds=seconds)
    given = replace(observed.pool, status=before)
    later = replace(observed, pool=given)
    return pool_status(later, plan(later, now), now)


@pytest.mark.parametrize(
    "observed",
    [
        pytest.param(snapshot(1, vm(1)), id="at rest"),
        pytest.param(snapshot(2, vm(1, ready=False)), id="on the way"),
        pytest.param(snapshot(1, RUNS_ON), id="never to be up to date"),
        pytest.param(snapshot(a_pool(1, paused=True), vm(1)), id="paused"),
        pytest.param(snapshot(a_pool(2, paused=True), vm(1)), id="paused on the way"),
        pytest.param(snapshot(2, vm(1), failure=Failure("FailedCreate", "quota")), id="refused"),
    ],
)
def test_an_unchanged_status_is_equal_at_any_time(observed: PoolSnapshot) -> None:
    first = again(observed, PoolStatus(), 0)
    assert again(observed, first, 500) == first


def stalled(*looks: tuple[float, PoolSnapshot]) -> list[bool]:
    """Whether the pool says at each of the looks, so many seconds after the first, that nothing gets on."""
    found, before = [], PoolStatus()
    for seconds, observed in looks:
        before = again(observed, before, seconds)
        progressing = condition(before, "Progressing")
        found.append(progressing is not None and progressing.reason == "ProgressDeadlineExceeded")
    return found


def looked_at(observed: PoolSnapshot, before: PoolStatus, seconds: float, refuses: str) -> PoolStatus:
    """A look, as the controller has it, where updates of this VM are refused: a failure lasts until the next plan that
    does without it."""
    now = NOW + timedelta(seconds=seconds)
    known = next((c for c in before.conditions if c.type == "ReplicaFailure" and c.status == "True"), None)
    of = replace(observed.pool, status=before)
    seen = replace(observed, pool=of, failure=Failure(known.reason, known.message) if known else None)
    decided = plan(seen, now)
    tried = any(isinstance(each, Update) and each.name == refuses for each in decided.actions)
    return pool_status(replace(seen, failure=Failure("FailedUpdate", refuses) if tried else None), decided, now)


def test_a_refused_update_does_not_let_a_stalled_rollout_go_on() -> None:
    pool = a_pool(3, maxUnavailable=2)
    observed = snapshot(pool, vm(1, ready=False), vm(2, revision="r0"), vm(3))
    said, before = [], PoolStatus()
    for seconds in (0, 300, 599, 601, 602, 1300):
        before = looked_at(observed, before, seconds, "web-2")
        progressing = condition(before, "Progressing")
        said.append(progressing.reason)
    assert said == [*["FailedUpdate"] * 3, *["ProgressDeadlineExceeded"] * 3]


WELL = snapshot(2, vm(1), vm(2))
DOWN = snapshot(2, vm(1), vm(2, ready=False))
REFUSED = snapshot(2, vm(1), failure=Failure("FailedCreate", "quota"))
PAUSED = a_pool(2, paused=True)
BY_HAND = a_pool(2, updateStrategy={"unmanaged": {}})
LEFT_OLD = snapshot(BY_HAND, vm(1, revision="old"), vm(2))
OLD_DOWN = snapshot(BY_HAND, vm(1, revision="old", ready=False), vm(2))
BOTH_DOWN = snapshot(BY_HAND, vm(1, revision="old", ready=False), vm(2, ready=False))
OLD_TO_UPDATE = snapshot(2, vm(1, revision="old", ready=False), vm(2))
DAY = 86400


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        pytest.param([(0, WELL), (DAY, DOWN), (DAY + 599, DOWN), (DAY + 601, DOWN)], [0, 0, 0, 1], id="a VM is lost"),
        pytest.param([(0, WELL), (DAY, snapshot(2, vm(1)))], [0, 0], id="a VM is deleted"),
        pytest.param([(0, DOWN), (599, DOWN), (601, DOWN)], [0, 0, 1], id="it never got there"),
        pytest.param(
            [(0, DOWN), (601, DOWN), (602, DOWN), (603, WELL)], [0, 1, 1, 0], id="it stays stuck until it gets on"
        ),
        pytest.param([(0, WELL), (10, DOWN), (20, WELL), (DAY, DOWN)], [0, 0, 0, 0], id="each time anew"),
        pytest.param(
            [(0, WELL), (10, snapshot(2, vm(1), vm(2), vm(3), leaving(4))), (DAY, DOWN)],
            [0, 0, 0],
            id="one too many is no trouble",
        ),
        pytest.param(
            [
                (0, LEFT_OLD),
                (DAY, snapshot(BY_HAND, vm(1, ready=False))),
            ],
            [0, 0],
            id="old templates that nobody wants changed are none",
        ),
        pytest.param(
            [(0, LEFT_OLD), (DAY, OLD_DOWN), (DAY + 601, OLD_DOWN), (DAY + 602, BOTH_DOWN)],
            [0, 0, 1, 1],
            id="one that keeps its old template counts as lost like any other",
        ),
        pytest.param(
            [(0, OLD_TO_UPDATE), (599, OLD_TO_UPDATE), (601, OLD_TO_UPDATE)],
            [0, 0, 0],
            id="a VM that is yet to be updated does not count as lost",
        ),
        pytest.param(
            [(0, snapshot(2, RUNS_ON, vm(2))), (DAY, snapshot(2, RUNS_ON, vm(2, ready=False)))],
            [0, 0],
            id="VMs that get the template with the next start are not lost",
        ),
        pytest.param(
            [(0, DOWN), (300, snapshot(PAUSED, vm(1))), (DAY, snapshot(PAUSED, vm(1))), (DAY + 1, DOWN)],
            [0, 0, 0, 0],
            id="a pause does not count",
        ),
        pytest.param([(0, REFUSED), (DAY, REFUSED), (DAY + 1, DOWN)], [0, 0, 0], id="refusals in a pause do not count"),
    ],
)
def test_the_progress_deadline(looks: list[tuple[float, PoolSnapshot]], expected: list[bool]) -> None:
    assert stalled(*looks) == expected


def test_a_past_failure_leaves_a_false_condition() -> None:
    first = again(snapshot(1, failure=Failure("FailedCreate", "quota")), PoolStatus(), 0)
    found = condition(again(snapshot(1, vm(1)), first, 60), "ReplicaFailure")
    assert (found.status, found.last_transition_time) == ("False", "2026-03-01T12:01:00Z")


def test_the_status_of_an_invalid_spec_keeps_its_counts() -> None:
    found = parse_pool(document(maxUnavailable="ten", status={"replicas": 3}))
    assert isinstance(found, InvalidSpec)
    fresh = invalid_spec_status(found, NOW)
    assert fresh.replicas == 3
    progressing = condition(fresh, "Progressing")
    assert (progressing.status, progressing.reason) == ("False", "InvalidSpec")
    assert "maxUnavailable" in progressing.message
    again = parse_pool(document(maxUnavailable="ten", status=fresh.json()))
    assert isinstance(again, InvalidSpec)
    assert invalid_spec_status(again, NOW + timedelta(hours=1)) == fresh


def test_the_status_lists_a_hundred_retained_disks() -> None:
    retained_disks = tuple(retained(n) for n in range(200, 0, -1))
    found = said(snapshot(0, retained_disks=retained_disks))
    assert found.retained_disks == 200
    assert len(found.retained) == 100
    assert (found.retained[0].name, found.retained[0].vm) == ("root-1", "web-1")


QUOTA = Failure("FailedCreate", "VM web-2 is forbidden: exceeded quota: few, requested: count=1, used: count=1")


@pytest.mark.parametrize("failure", [QUOTA, Failure("FailedCreate", "no permission")], ids=["quota", "rights"])
def test_a_refused_creation_is_reconciled_until_the_progress_deadline(failure: Failure) -> None:
    """The controller tries again, and a quota or a right may be there without a change of the pool."""
    full = snapshot(2, vm(1), failure=failure)
    first = again(full, PoolStatus(), 0)
    reconciling = condition(first, "Reconciling")
    assert (reconciling.reason, reconciling.message) == (failure.reason, failure.message)
    assert condition(first, "Stalled") is None
    late = condition(again(full, first, 601), "Stalled")
    assert late is not None


def test_a_refused_update_of_a_pool_whose_vms_are_available_is_stalled_after_the_progress_deadline() -> None:
    refused = snapshot(1, vm(1, revision="old"), failure=Failure("FailedUpdate", "no permission"))
    first = again(refused, PoolStatus(), 0)
    assert condition(first, "Reconciling") is not None
    assert condition(again(refused, first, 601), "Stalled") is not None


def test_a_vm_of_a_pool_that_was_complete_for_long_has_the_whole_deadline() -> None:
    complete = again(snapshot(1, vm(1)), PoolStatus(), 0)
    refused = snapshot(1, failure=Failure("FailedCreate", "no permission"))
    assert condition(again(refused, complete, 86_400), "Reconciling") is not None


def test_a_disk_of_another_owner_needs_a_person_at_once() -> None:
    conflict = snapshot(1, failure=Failure("DiskConflict", "root is also pool db's"))
    assert condition(again(conflict, PoolStatus(), 0), "Stalled") is not None
