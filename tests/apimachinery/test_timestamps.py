from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from poolhouse.api.apimachinery.timestamps import (
    format_micro_time,
    format_time,
    known_time,
    parse_time,
    seconds_until_next,
)

MOMENT = datetime(2026, 1, 31, 13, 0, 0, 250, tzinfo=timezone(timedelta(hours=1)))


def test_times_are_written_in_utc() -> None:
    assert format_time(MOMENT) == "2026-01-31T12:00:00Z"
    assert format_micro_time(MOMENT) == "2026-01-31T12:00:00.000250Z"


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00", "2026-01-31T12:00:00.000000Z"])
def test_times_are_read_with_an_offset_and_with_fractions(text: str) -> None:
    assert parse_time(text) == datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "soon", "2026-01-31T12:00:00"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("2026-01-31T12:00:00Z", True),
        ("soon", False),
        ("9999-12-31T23:59:59Z", False),
        ("0001-01-01T00:00:00+14:00", False),
    ],
)
def test_times_of_users_are_read_if_deadlines_follow_from_them(text: str, known: bool) -> None:
    assert (known_time(text) is not None) == known


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        pytest.param([], None, id="no time"),
        pytest.param([None, -5, 0], None, id="only times that are over, and the present one"),
        pytest.param([90, None, -5, 30], 30.0, id="the first that is ahead"),
    ],
)
def test_seconds_until_next(seconds: list[int | None], expected: float | None) -> None:
    times = [MOMENT + timedelta(seconds=each) if each is not None else None for each in seconds]
    assert seconds_until_next(times, MOMENT) == expected
