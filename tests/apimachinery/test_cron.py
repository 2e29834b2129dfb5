"""Cron schedules in time zones."""

from datetime import UTC, datetime

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
            id="and not again in the second of the hours",
        ),
        pytest.param(
            CronSchedule("30 2 * * *", BERLIN),
            "2026-10-25 01:45",
            "2026-10-25 00:30",
            "2026-10-26 01:30",
            id="nor after it in the second of the hours",
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
    ],
)
def test_due_times_around_a_moment(schedule: CronSchedule, moment: str, before: str, after: str) -> None:
    assert schedule.last_before(at(moment)) == at(before)
    assert schedule.next_after(at(moment)) == at(after)


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
