"""The number of waiting VMs, why, and the next change."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controllers.warmpool.autoscaling.decision import Demand, Recommendation, decide, remember, window_seconds
from controllers.warmpool.autoscaling.history import DAY, HOUR, DemandHistory
from poolhouse.api.kinds.warm_autoscaling import Autoscaling
from poolhouse.api.kinds.warm_claim_policy import OnEmpty
from tests.controllers.warmpool.autoscaling.test_history import MONDAY, a_history

NOON = datetime.fromtimestamp(MONDAY + 7 * DAY + 12 * HOUR, UTC)
BUSY = a_history(MONDAY, *(NOON.timestamp() - 60 * each for each in range(300, 0, -1)))
QUIET = a_history(MONDAY, MONDAY + 2 * HOUR, NOON.timestamp() - 6 * HOUR)


def a_spec(**given: Any) -> Autoscaling:
    return Autoscaling.model_validate({"maxReplicas": 50, "target": {"waitSeconds": 1}, **given})


def idle(hours: float) -> DemandHistory:
    text = BUSY.encode(NOON.timestamp())
    history = DemandHistory.decode(text)
    history.idle_day, history.idle_seconds = int(NOON.timestamp() // DAY), hours * HOUR
    return history


def minutes(number: float) -> datetime:
    return NOON + timedelta(minutes=number)


PERIOD = {"schedule": "0 12 * * *", "durationSeconds": 3600, "minReplicas": 20}
LATER = {"schedule": "0 13 * * *", "durationSeconds": 3600, "minReplicas": 20}
SPARE = {"spareRatio": "10%"}


@pytest.mark.parametrize(
    ("spec", "demand", "replicas", "reason"),
    [
        pytest.param(a_spec(), Demand(BUSY), 4, "WaitTarget", id="regular claims need few VMs"),
        pytest.param(a_spec(), Demand(DemandHistory(), 0, (), 3), 3, "Learning", id="without a boot time"),
        pytest.param(a_spec(minReplicas=5), Demand(QUIET), 5, "MinReplicas", id="the minimum"),
        pytest.param(a_spec(maxReplicas=1), Demand(BUSY), 1, "MaxReplicas", id="the maximum"),
        pytest.param(a_spec(target=SPARE), Demand(QUIET, 70), 7, "SpareRatio", id="a ratio is exact"),
        pytest.param(a_spec(target=SPARE), Demand(QUIET, 71), 8, "SpareRatio", id="a ratio is rounded up"),
        pytest.param(a_spec(target=SPARE), Demand(QUIET, 0), 0, "SpareRatio", id="nothing is claimed"),
        pytest.param(
            a_spec(schedules=[PERIOD]), Demand(BUSY), 20, "Schedule", id="a period begins at its first second"
        ),
        pytest.param(
            a_spec(schedules=[PERIOD], maxReplicas=20), Demand(BUSY), 20, "Schedule", id="a period up to the maximum"
        ),
        pytest.param(a_spec(schedules=[LATER]), Demand(BUSY), 4, "WaitTarget", id="a period that has not begun"),
        pytest.param(
            a_spec(schedules=[{**PERIOD, "schedule": "daily"}, {**PERIOD, "timeZone": "Berlin"}]),
            Demand(BUSY),
            4,
            "WaitTarget",
            id="a schedule and a time zone that admission has missed",
        ),
        pytest.param(
            a_spec(schedules=[{**PERIOD, "timeZone": "Europe/Berlin"}]), Demand(BUSY), 4, "WaitTarget", id="an hour ago"
        ),
        pytest.param(
            a_spec(),
            Demand(BUSY, 0, (Recommendation(minutes(-9), 8), Recommendation(minutes(-1), 6))),
            8,
            "ScaleDownDelayed",
            id="the highest size of the last ten minutes",
        ),
        pytest.param(
            a_spec(), Demand(BUSY, 0, (Recommendation(minutes(-11), 8),)), 4, "WaitTarget", id="an old size counts not"
        ),
        pytest.param(
            a_spec(maxIdleVMHoursPerDay=30), Demand(idle(29)), 4, "WaitTarget", id="hours that are left can be used"
        ),
        pytest.param(a_spec(maxIdleVMHoursPerDay=30), Demand(idle(30)), 0, "IdleCeiling", id="no hours are left"),
        pytest.param(
            a_spec(maxIdleVMHoursPerDay=30, minReplicas=1),
            Demand(idle(18)),
            1,
            "IdleCeiling",
            id="the hours of minReplicas until midnight are reserved",
        ),
        pytest.param(
            a_spec(maxIdleVMHoursPerDay=30),
            Demand(idle(30), 0, (Recommendation(minutes(-1), 9),)),
            0,
            "IdleCeiling",
            id="the ceiling does not wait for the delay",
        ),
    ],
)
def test_the_decision(spec: Autoscaling, demand: Demand, replicas: int, reason: str) -> None:
    found = decide(spec, demand, NOON)
    assert (found.replicas, str(found.reason)) == (replicas, reason)
    assert decide(spec, demand, NOON) == found, "the decision changes no input"


@pytest.mark.parametrize(
    ("spec", "demand", "change"),
    [
        pytest.param(a_spec(), Demand(BUSY), None, id="none is known"),
        pytest.param(
            a_spec(schedules=[LATER]), Demand(BUSY), (minutes(59), 20, "Schedule"), id="a period begins a boot early"
        ),
        pytest.param(
            a_spec(schedules=[PERIOD]), Demand(BUSY), (minutes(70), 4, "WaitTarget"), id="the delay follows a period"
        ),
        pytest.param(
            a_spec(schedules=[PERIOD], minReplicas=6, scaleDownDelaySeconds=0),
            Demand(BUSY),
            (minutes(60), 6, "MinReplicas"),
            id="a period ends without a delay",
        ),
        pytest.param(
            a_spec(schedules=[{**PERIOD, "durationSeconds": 7200, "minReplicas": 9}, PERIOD]),
            Demand(BUSY),
            (minutes(70), 9, "Schedule"),
            id="the lower of two periods is left",
        ),
        pytest.param(
            a_spec(schedules=[{**PERIOD, "durationSeconds": 7200}, {**PERIOD, "minReplicas": 9}]),
            Demand(BUSY),
            (minutes(130), 4, "WaitTarget"),
            id="the end of a lower period changes nothing",
        ),
        pytest.param(
            a_spec(),
            Demand(BUSY, 0, (Recommendation(minutes(-4), 8), Recommendation(minutes(-1), 6))),
            (minutes(6), 6, "ScaleDownDelayed"),
            id="a later size still holds",
        ),
        pytest.param(
            a_spec(),
            Demand(BUSY, 0, (Recommendation(minutes(-4), 8),)),
            (minutes(6), 4, "WaitTarget"),
            id="the delay ends",
        ),
        pytest.param(
            a_spec(maxIdleVMHoursPerDay=30),
            Demand(idle(30)),
            (minutes(720), 4, "WaitTarget"),
            id="the ceiling ends at midnight",
        ),
        pytest.param(
            a_spec(maxIdleVMHoursPerDay=30, schedules=[LATER]),
            Demand(idle(30)),
            (minutes(720), 4, "WaitTarget"),
            id="the ceiling holds in a period",
        ),
    ],
)
def test_the_next_change(spec: Autoscaling, demand: Demand, change: Any) -> None:
    found = decide(spec, demand, NOON).next_change
    assert (found and (found.at, found.replicas, str(found.reason))) == change


@pytest.mark.parametrize(
    ("day", "office", "night"),
    [
        pytest.param("2026-03-28", "07:00", "01:30", id="winter"),
        pytest.param("2026-03-29", "06:00", "01:00", id="half past two does not exist"),
        pytest.param("2026-03-30", "06:00", "00:30", id="summer"),
        pytest.param("2026-10-25", "07:00", "00:30", id="half past two comes twice"),
        pytest.param("2026-10-26", "07:00", "01:30", id="winter again"),
    ],
)
def test_periods_keep_the_clock_of_their_time_zone_and_their_length(day: str, office: str, night: str) -> None:
    for schedule, begins in (("0 8 * * *", office), ("30 2 * * *", night)):
        period = {**PERIOD, "schedule": schedule, "timeZone": "Europe/Berlin"}
        spec, begun = a_spec(schedules=[period], target=SPARE), datetime.fromisoformat(f"{day}T{begins}Z")
        sizes = [
            decide(spec, Demand(BUSY), begun + timedelta(seconds=each)).replicas for each in (-61, -60, 3599, 3600)
        ]
        assert sizes == [0, 20, 20, 0]


def test_every_change_of_the_size_was_announced() -> None:
    """Three days with the end of summer time, with a demand that stays the same, one decision every five minutes."""
    periods = [
        {**PERIOD, "schedule": "0 8 * * *", "timeZone": "Europe/Berlin", "durationSeconds": 7200},
        {**PERIOD, "schedule": "30 8 * * *", "timeZone": "Europe/Berlin", "minReplicas": 9, "durationSeconds": 9000},
        {**PERIOD, "schedule": "30 2 * * *", "timeZone": "Europe/Berlin", "minReplicas": 5},
        {**PERIOD, "schedule": "0 12 * * *", "minReplicas": 3},
    ]
    spec, demand = a_spec(schedules=periods, target=SPARE, minReplicas=1), Demand(BUSY, 20)
    begin, changes = datetime(2026, 10, 24, tzinfo=UTC), []
    before = decide(spec, demand, begin)
    for each in range(5, 3 * 24 * 60, 5):
        now = begin + timedelta(minutes=each)
        demand = replace(demand, recommendations=remember(demand.recommendations, before, spec, now))
        decided = decide(spec, demand, now)
        due = now >= before.next_change.at
        assert decided.replicas == (before.next_change.replicas if due else before.replicas), now
        changes += [decided.replicas] if due else []
        before = decided
    assert changes == 3 * [5, 2, 20, 9, 2, 3, 2]


def test_a_period_begins_a_boot_early() -> None:
    spec, demand = a_spec(schedules=[PERIOD]), Demand(BUSY)
    sizes = [decide(spec, demand, NOON + timedelta(seconds=each)).replicas for each in (-90, -60, -30, 3599, 3600)]
    assert sizes == [4, 20, 20, 20, 2]


@pytest.mark.parametrize(
    ("wait", "on_empty", "window"),
    [
        (1, "ColdStart", 60.0),
        (60, "ColdStart", 0.0),
        (1, "Queue", 59.0),
        (90, "Queue", 0.0),
        (90, "Fail", 60.0),
    ],
)
def test_the_window_in_which_claims_compete(wait: int, on_empty: OnEmpty, window: float) -> None:
    assert window_seconds(a_spec(target={"waitSeconds": wait}), on_empty, 60.0) == window


def test_claims_that_may_wait_for_a_boot_need_no_vm() -> None:
    history = a_history(MONDAY, boot=60)
    history.compete_within(0.0)
    found = decide(a_spec(target={"waitSeconds": 60}), Demand(replace(history, since=MONDAY)), NOON)
    assert (found.replicas, str(found.reason)) == (0, "WaitTarget")


def test_recommendations_stay_few() -> None:
    spec, kept = a_spec(), ()
    for each in range(1000):
        decided = replace(decide(spec, Demand(BUSY), NOON), wanted=each % 7)
        kept = remember(kept, decided, spec, NOON + timedelta(seconds=each))
    assert len(kept) <= 7
    assert kept[0].replicas == 6


def test_a_clock_that_was_set_back_prolongs_the_delay_once() -> None:
    spec, tomorrow = a_spec(), (Recommendation(NOON + timedelta(days=1), 8),)
    demand = Demand(BUSY, 0, tomorrow)
    kept = remember(tomorrow, decide(spec, demand, NOON), spec, NOON)
    later = NOON + timedelta(seconds=spec.scale_down_delay_seconds + 1)
    assert decide(spec, replace(demand, recommendations=kept), later).reason == "WaitTarget"
