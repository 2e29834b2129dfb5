"""Maintenance windows: when they are open, and what waits for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controllers.pool.plan import plan
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.pool.windows import windows
from controllers.shared.vm import VM, LifecycleHold
from poolhouse.api.apimachinery.timestamps import format_time, parse_time
from poolhouse.api.kinds.pool import UpdateAbort
from tests.controllers.pool.builders import LIGHT, NOW, OLD, REVISION, a_pool, ago, halted, old, snapshot, vm, vmi

Json = dict[str, Any]
HOUR = 3600
NIGHT: Json = {"schedule": "0 2 * * *", "durationSeconds": HOUR, "timeZone": "Europe/Berlin"}
SATURDAY: Json = {"schedule": "0 2 * * 6", "durationSeconds": 4 * HOUR}


def seen(now: str, *given: Json) -> tuple[bool, str]:
    found = windows(snapshot(a_pool(1, maintenanceWindows=list(given))), parse_time(now))
    return found.open, format_time(found.changes_at) if found.changes_at else ""


@pytest.mark.parametrize(
    ("now", "given", "expected"),
    [
        pytest.param("2026-03-01T00:59:59Z", [NIGHT], (False, "2026-03-01T01:00:00Z"), id="a second before it opens"),
        pytest.param("2026-03-01T01:00:00Z", [NIGHT], (True, "2026-03-01T02:00:00Z"), id="it opens at 02:00 in Berlin"),
        pytest.param("2026-03-01T01:59:59.9Z", [NIGHT], (True, "2026-03-01T02:00:00Z"), id="its last second"),
        pytest.param("2026-03-01T02:00:00Z", [NIGHT], (False, "2026-03-02T01:00:00Z"), id="it closes after an hour"),
        pytest.param("2026-03-01T00:59:59.9Z", [NIGHT], (False, "2026-03-01T01:00:00Z"), id="not a fraction early"),
        pytest.param("2026-07-01T00:00:00Z", [NIGHT], (True, "2026-07-01T01:00:00Z"), id="an hour earlier in summer"),
        pytest.param(
            "2026-03-29T00:30:00Z",
            [NIGHT],
            (False, "2026-03-29T01:00:00Z"),
            id="02:00 does not exist: it opens at 03:00",
        ),
        pytest.param("2026-03-29T01:30:00Z", [NIGHT], (True, "2026-03-29T02:00:00Z"), id="03:00 opens it for an hour"),
        pytest.param(
            "2026-10-25T00:30:00Z",
            [{**NIGHT, "schedule": "30 2 * * *"}],
            (True, "2026-10-25T01:30:00Z"),
            id="02:30 exists twice: it opens at the first",
        ),
        pytest.param(
            "2026-10-25T01:30:00Z",
            [{**NIGHT, "schedule": "30 2 * * *"}],
            (False, "2026-10-26T01:30:00Z"),
            id="02:30 exists twice: it does not open at the second",
        ),
        pytest.param(
            "2026-10-25T00:30:00Z",
            [{**NIGHT, "schedule": "0 1 * * *", "durationSeconds": 3 * HOUR}],
            (True, "2026-10-25T02:00:00Z"),
            id="three hours are three hours when the clock goes back",
        ),
        pytest.param("2026-03-06T12:00:00Z", [SATURDAY], (False, "2026-03-07T02:00:00Z"), id="the next Saturday"),
        pytest.param("2026-03-07T05:59:59Z", [SATURDAY], (True, "2026-03-07T06:00:00Z"), id="on Saturday, in UTC"),
        pytest.param(
            "2026-03-07T02:30:00Z",
            [SATURDAY, {"schedule": "15 * * * *", "durationSeconds": 30 * 60}],
            (True, "2026-03-07T06:00:00Z"),
            id="of two that are open, the later end counts",
        ),
        pytest.param(
            "2026-03-07T06:00:00Z",
            [SATURDAY, {"schedule": "15 * * * *", "durationSeconds": 30 * 60}],
            (False, "2026-03-07T06:15:00Z"),
            id="of two that are closed, the earlier opens next",
        ),
        pytest.param(
            "2026-03-07T06:00:00Z",
            [{"schedule": "0 0 * * *", "durationSeconds": 7 * 24 * HOUR}],
            (True, "2026-03-14T00:00:00Z"),
            id="windows may overlap themselves",
        ),
        pytest.param("2026-03-07T06:00:00Z", [{**NIGHT, "schedule": "nightly"}], (False, ""), id="an invalid schedule"),
        pytest.param("2026-03-07T06:00:00Z", [{**NIGHT, "timeZone": "Berlin"}], (False, ""), id="an invalid time zone"),
        pytest.param("2026-03-07T06:00:00Z", [], (True, ""), id="without windows, always"),
    ],
)
def test_when_windows_are_open(now: str, given: list[Json], expected: tuple[bool, str]) -> None:
    assert seen(now, *given) == expected


CLOSED: Json = {"schedule": "0 13 * * *", "durationSeconds": HOUR}
OPEN: Json = {"schedule": "0 12 * * *", "durationSeconds": HOUR}
SURGE: Json = {"proactive": {"maxSurge": 1}}
SAID = "the next maintenance window opens at 2026-03-01T13:00:00Z"


def pool(*vms: VM, window: Json = CLOSED, aborted: bool = False, **given: Any) -> PoolSnapshot:
    oldest = {"proactive": {"selectionPolicy": {"basePolicy": "Oldest"}}}
    spec = {"maxUnavailable": 1, "updateStrategy": oldest, "maintenanceWindows": [window], **given}
    facts: Json = {"aborted": (OLD, UpdateAbort(reason="x", time=ago(1)))} if aborted else {}
    return snapshot(a_pool(spec.pop("replicas", len(vms)), **spec), *vms, **facts)


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(pool(old(1), window=OPEN), ["Update"], id="an open window lets the update go on"),
        pytest.param(pool(old(1)), [], id="a closed window delays the update"),
        pytest.param(pool(vm(1, vmi=vmi("web-1", revision="r0"))), [], id="restarts of updated VMs wait for a window"),
        pytest.param(pool(old(1, ready=False)), ["Update"], id="an update of a VM that is down stops nothing"),
        pytest.param(pool(halted(1, revision="r0")), ["Update"], id="an update of a halted VM stops nothing"),
        pytest.param(pool(vm(1, revision=LIGHT.label)), ["Update"], id="a change without a restart stops nothing"),
        pytest.param(pool(old(1), aborted=True), ["Update"], id="a rollback does not wait"),
        pytest.param(
            pool(vm(1, vmi=vmi("web-1", revision="r0"), hold=LifecycleHold("Restarting", ago(0), "run-web-1"))),
            ["Restart"],
            id="a VM that is drained already does not wait",
        ),
        pytest.param(pool(vm(1), vm(2), replicas=1), ["Delete"], id="scale-in does not wait"),
        pytest.param(pool(vm(1, ready=False, start_failures=9), autohealing={}), ["Heal"], id="healing does not wait"),
        pytest.param(
            pool(old(1), old(2), updateStrategy=SURGE), [], id="no VM is created to take the place of another"
        ),
        pytest.param(pool(old(1), old(2), updateStrategy=SURGE, window=OPEN), ["Create"], id="an open window: created"),
        pytest.param(
            pool(old(1), old(2), updateStrategy=SURGE, aborted=True), ["Create"], id="a rollback may create VMs at once"
        ),
        pytest.param(
            pool(old(1), old(2), vm(3), updateStrategy=SURGE, replicas=2), [], id="a VM that has a successor stays"
        ),
        pytest.param(
            pool(old(1), old(2), vm(3), updateStrategy=SURGE, replicas=2, window=OPEN),
            ["Delete"],
            id="an open window lets a VM that has a successor be deleted",
        ),
        pytest.param(
            pool(vm(1, ready=False, start_failures=9), autohealing={"onlyInMaintenanceWindows": True}),
            [],
            id="healing waits if it should",
        ),
        pytest.param(
            pool(vm(1, ready=False, start_failures=9), autohealing={"onlyInMaintenanceWindows": True}, window=OPEN),
            ["Heal"],
            id="healing that waits for a window goes on when one opens",
        ),
    ],
)
def test_what_waits_for_a_window(observed: PoolSnapshot, expected: list[str]) -> None:
    assert [each.verb for each in plan(observed, NOW).actions] == expected


def test_the_pool_says_when_the_next_window_opens_and_comes_back_then() -> None:
    observed = pool(old(1), old(2))
    decided = plan(observed, NOW)
    assert [(wait.name, wait.reason) for wait in decided.waits] == [("web-1", SAID), ("web-2", SAID)]
    assert decided.again_seconds == HOUR
    (found,) = (c for c in pool_status(observed, decided, NOW).conditions if c.type == "Progressing")
    assert (found.reason, found.message) == ("WaitingForMaintenanceWindow", f"0 of 2 VMs have the template; {SAID}")


def test_an_update_does_not_wait_for_a_window_because_a_lifetime_does() -> None:
    aged = vm(2, vmi=vmi("web-2", revision=REVISION.label, created_at=ago(8 * 24 * HOUR)))
    observed = pool(old(1, ready=False), aged, maxLifetimeSeconds=7 * 24 * HOUR)
    decided = plan(observed, NOW)
    assert [(wait.name, wait.reason) for wait in decided.waits] == [("web-2", f"its lifetime has ended: {SAID}")]
    (found,) = (c for c in pool_status(observed, decided, NOW).conditions if c.type == "Progressing")
    assert found.reason == "UpdatingVMs"


def test_a_pool_comes_back_at_the_end_of_a_window_only_if_something_is_left() -> None:
    assert plan(pool(old(1), old(2), window=OPEN), NOW).again_seconds == HOUR
    assert plan(pool(vm(1, ready=False, start_failures=9), autohealing={}), NOW).again_seconds == HOUR
    assert plan(pool(vm(1), window=OPEN), NOW).again_seconds is None
    assert plan(pool(vm(1)), NOW).again_seconds is None


def test_an_update_begins_at_the_second_in_which_the_window_opens() -> None:
    observed = pool(old(1))
    opens = datetime(2026, 3, 1, 13, tzinfo=UTC)
    assert not plan(observed, opens - timedelta(milliseconds=1)).actions
    assert [each.verb for each in plan(observed, opens).actions] == ["Update"]
    assert REVISION.label == plan(observed, opens).actions[0].revision
