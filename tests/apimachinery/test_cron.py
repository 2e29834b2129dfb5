"""Cron schedules in time zones."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import takewhile

import pytest

from poolhouse.api.apimachinery.cron import CronSchedule, cron_error, time_zone_error

BERLIN = "Europe/Berlin"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("schedule", "moment", "before", "after"),
    [
        pytest.param(
            CronSchedule("0 8 * * 1-5"),
            "2026-11-20 08:00",
            "2026-11-19 08:00",
            "2026-11-23 08:00",
            id="a due time is neither before nor after itself, and weekends are skipped",
        ),
        pytest.param(
            CronSchedule("0 8 * * *", BERLIN),
            "2026-07-01 12:00",
            "2026-07-01 06:00",
            "2026-07-02 06:00",
            id="the hours are those of the time zone",
        ),
        pytest.param(
            CronSchedule("30 2 * * *", BERLIN),
            "2026-03-29 00:00",
            "2026-03-28 01:30",
            "2026-03-29 01:00",
            id="a time that summer time skips is due right after the change",
        ),
        pytest.param(
            CronSchedule("30 2 * * *", BERLIN),
            "2026-10-25 00:45",
            "2026-10-25 00:30",
            "2026-10-26 01:30",
            id="a time that occurs twice is due once",
        ),
        pytest.param(
            CronSchedule("30 2 * * *", BERLIN),
            "2026-10-25 01:15",
            "2026-10-25 00:30",
            "2026-10-26 01:30",
            id="a time that occurs twice is not due again in the second hour",
        ),
        pytest.param(
            CronSchedule("30 2 * * *", BERLIN),
            "2026-10-25 01:45",
            "2026-10-25 00:30",
            "2026-10-26 01:30",
            id="a time that occurs twice is not due after it in the second hour",
        ),
        pytest.param(
            CronSchedule("45 1 * * *", "Australia/Lord_Howe"),
            "2026-04-04 15:10",
            "2026-04-04 14:45",
            "2026-04-05 15:15",
            id="half an hour can occur twice too",
        ),
        pytest.param(
            CronSchedule("*/20 * * * *", BERLIN),
            "2026-10-25 01:15",
            "2026-10-25 01:00",
            "2026-10-25 01:20",
            id="a schedule that repeats within the hour is due in both",
        ),
        pytest.param(
            CronSchedule("44 * * * *", "Australia/Lord_Howe"),
            "2026-04-04 15:00",
            "2026-04-04 14:44",
            "2026-04-04 15:14",
            id="a schedule is due half an hour later, if half an hour occurs twice",
        ),
        pytest.param(
            CronSchedule("59 */2 * * *", "Australia/Lord_Howe"),
            "2026-04-04 15:00",
            "2026-04-04 13:59",
            "2026-04-04 16:29",
            id="a change by half an hour hides no time before it",
        ),
        pytest.param(
            CronSchedule("*/15 2 * * *", "Pacific/Chatham"),
            "2026-04-04 13:30",
            "2026-04-04 13:00",
            "2026-04-04 14:00",
            id="the clock goes back from a quarter to four to a quarter to three",
        ),
        pytest.param(
            CronSchedule("*/15 2 * * *", BERLIN),
            "2026-03-29 01:00",
            "2026-03-28 01:45",
            "2026-03-30 00:00",
            id="a schedule that repeats within the hour is not due in a skipped hour",
        ),
        pytest.param(
            CronSchedule("*/30 2 29 2 *", BERLIN),
            "2026-11-30 00:00",
            "2024-02-29 01:30",
            "2028-02-29 01:00",
            id="a leap day is found across years",
        ),
        pytest.param(
            CronSchedule("0 0 * * *", "Pacific/Apia"),
            "2011-12-30 10:00",
            "2011-12-29 10:00",
            "2011-12-31 10:00",
            id="a day that is skipped has no time of its own",
        ),
        pytest.param(
            CronSchedule("30 23 * * *", "Africa/Cairo"),
            "2026-10-29 21:00",
            "2026-10-29 20:30",
            "2026-10-30 21:30",
            id="an hour before midnight can occur twice",
        ),
        pytest.param(
            CronSchedule("0 0 * * *", "Asia/Beirut"),
            "2026-03-28 21:59",
            "2026-03-27 22:00",
            "2026-03-28 22:00",
            id="midnight can be skipped",
        ),
    ],
)
def test_due_times_around_a_moment(schedule: CronSchedule, moment: str, before: str, after: str) -> None:
    assert schedule.last_before(at(moment)) == at(before)
    assert schedule.next_after(at(moment)) == at(after)


CHANGES = {
    BERLIN: ("2026-03-29 01:00", "2026-10-25 01:00"),
    "America/Havana": ("2026-03-08 05:00", "2026-11-01 05:00"),
    "America/St_Johns": ("2026-03-08 05:30", "2026-11-01 04:30"),
    "Antarctica/Troll": ("2026-03-29 01:00", "2026-10-25 01:00"),
    "Asia/Tehran": ("2022-03-21 20:30", "2022-09-21 19:30"),
    "Australia/Lord_Howe": ("2026-04-04 15:00", "2026-10-03 15:30"),
    "Pacific/Chatham": ("2026-04-04 14:00", "2026-09-26 14:00"),
}
SCHEDULES = ("0 2 * * *", "30 0 * * *", "15 1,2 * * *", "44 * * * *", "*/15 2 * * *", "59 */2 * * *", "*/20 * * * *")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("zone", "change"), [(zone, change) for zone, both in CHANGES.items() for change in both])
def test_the_next_and_the_last_times_around_a_clock_change_are_the_same(zone: str, change: str, schedule: str) -> None:
    cron = CronSchedule(schedule, zone)
    first, last = at(change) - timedelta(hours=30), at(change) + timedelta(hours=30)
    forwards = list(takewhile(lambda due: due < last, _each(cron.next_after, first)))
    backwards = list(takewhile(lambda due: due > first, _each(cron.last_before, last)))
    assert forwards == backwards[::-1]
    assert len(forwards) >= 2


def _each(step: Callable[[datetime], datetime | None], moment: datetime) -> Iterator[datetime]:
    while (due := step(moment)) is not None:
        yield due
        moment = due


def test_a_schedule_whose_times_are_all_skipped_is_never_due() -> None:
    assert CronSchedule("*/30 2 * 3 7L", BERLIN).next_after(at("2026-01-01")) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0 8 * * 1-5", ""),
        ("*/15 * * * MON,FRI", ""),
        ("0 0 8 * * *", "has 6 fields"),
        ("@daily", "has 1 fields"),
        ("", "has 0 fields"),
        ("61 * * * *", "'61 * * * *' is no cron expression"),
        ("0 0 31 2 *", "no cron expression"),
        ("x * * * *", "no cron expression"),
    ],
)
def test_why_a_text_is_no_cron_expression(text: str, said: str) -> None:
    found = cron_error(text)
    assert said in found
    assert bool(found) == bool(said)


@pytest.mark.parametrize("name", ["Europe/Berlin", "UTC"])
def test_known_time_zones(name: str) -> None:
    assert time_zone_error(name) == ""


@pytest.mark.parametrize("name", ["Europe/Nowhere", "Europe", "", "../../etc/passwd", "/etc/passwd", "a\0b", "CET+1"])
def test_unknown_time_zones(name: str) -> None:
    assert "IANA" in time_zone_error(name)
