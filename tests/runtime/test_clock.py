"""The clock follows the API server's time, and ignores answers that prove nothing."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from prometheus_client import CollectorRegistry

from poolhouse.runtime.api import Api
from poolhouse.runtime.clock import MAX_SAMPLES, MIN_SAMPLES, ApiServerClock, parse_date
from poolhouse.runtime.errors import Unavailable
from poolhouse.runtime.metrics import PREFIX, Metrics
from tests.runtime.faulty_server import THINGS, Request, Server, thing

START = 1_800_000_000.0
HOUR = 3600.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("Fri, 15 Jan 2027 08:00:00 GMT", START, id="as HTTP writes it"),
        pytest.param("Fri, 15 Jan 2027 08:00:00 -0000", START, id="without a zone it is UTC"),
        pytest.param("", None, id="absent"),
        pytest.param("yesterday", None, id="not a date"),
        pytest.param("Fri, 35 Jan 2027 08:00:00 GMT", None, id="a day that does not exist"),
    ],
)
def test_dates_are_parsed(text: str, expected: float | None) -> None:
    assert parse_date(text) == expected


class Clocks:
    """This machine's clock, which starts at START, and the server's, which is `ahead` of it."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.ahead, self.passed, self.jumped = ahead, 0.0, 0.0
        self.registry = CollectorRegistry()
        self.clock = ApiServerClock(Metrics(self.registry), self.wall, lambda: self.passed)

    def wall(self) -> float:
        return START + self.passed + self.jumped

    def answers(
        self, count: int, *, took: float = 0.0, off: float = 0.0, headers: dict[str, str] | None = None
    ) -> None:
        """`count` answers, two seconds apart."""
        for _ in range(count):
            self.passed += 2
            sent_at = self.clock.steady
            self.passed += took
            date = formatdate(START + self.passed + self.ahead + off, usegmt=True)
            self.clock.observe({"Date": date} | (headers or {}), sent_at)

    @property
    def error(self) -> float:
        """How far `now` is off the server's time."""
        return self.clock.now().timestamp() - (START + self.passed + self.ahead)

    @property
    def offset(self) -> float | None:
        return self.registry.get_sample_value(f"{PREFIX}api_clock_offset_seconds")


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        pytest.param([], 0, id="no answer"),
        pytest.param([HOUR, HOUR], 0, id="two answers are too few"),
        pytest.param([0, HOUR, 0], 0, id="one of three is wrong"),
        pytest.param([HOUR, 0, HOUR], HOUR, id="two of three agree"),
        pytest.param([0, HOUR, 0, HOUR], 0, id="a tie of two and two changes nothing"),
        pytest.param([0, HOUR] * 5 + [0], 0, id="one of two servers has a wrong clock and answers less often"),
        pytest.param([0] * 7 + [HOUR] * 8, HOUR, id="the server's clock was set"),
    ],
)
def test_the_median_of_the_last_answers_decides(offsets: list[float], expected: float) -> None:
    clocks = Clocks()
    for offset in offsets:
        clocks.answers(1, off=offset)
    assert clocks.error == pytest.approx(expected, abs=1)


@pytest.mark.parametrize("ahead", [HOUR, -HOUR, 4.5, -86400.0])
def test_the_server_s_time_is_used(ahead: float) -> None:
    clocks = Clocks(ahead)
    clocks.answers(MIN_SAMPLES - 1)
    assert clocks.error == -ahead
    clocks.answers(1)
    assert clocks.error == pytest.approx(0, abs=1)
    assert clocks.offset == pytest.approx(ahead, abs=1)


@pytest.mark.parametrize("ahead", [0.0, 2.0, -2.0])
def test_small_differences_are_ignored(ahead: float) -> None:
    clocks = Clocks(ahead)
    clocks.answers(MAX_SAMPLES)
    assert clocks.error == -ahead
    assert clocks.offset == pytest.approx(ahead, abs=1)


@pytest.mark.parametrize("strange", range(1, 8))
def test_a_minority_of_wrong_dates_is_ignored(strange: int) -> None:
    clocks = Clocks()
    clocks.answers(MAX_SAMPLES)
    clocks.answers(strange, off=HOUR)
    assert clocks.error == 0
    clocks.answers(MAX_SAMPLES)
    assert clocks.error == 0


def test_a_server_clock_that_is_set_is_followed() -> None:
    clocks = Clocks()
    clocks.answers(MAX_SAMPLES)
    clocks.ahead = HOUR
    clocks.answers(MAX_SAMPLES // 2 + 1)
    assert clocks.error == pytest.approx(0, abs=1)


def test_setting_this_machine_s_clock_changes_nothing() -> None:
    clocks = Clocks()
    clocks.answers(MAX_SAMPLES)
    clocks.jumped = HOUR
    assert clocks.error == 0
    clocks.answers(1)
    assert clocks.error == 0
    assert clocks.offset == pytest.approx(-HOUR, abs=1)


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Age": "3600"}, id="from a cache"),
        pytest.param({"Date": "soon"}, id="without a date"),
    ],
)
def test_responses_without_a_usable_date_are_ignored(headers: dict[str, str]) -> None:
    clocks = Clocks(HOUR)
    clocks.answers(MAX_SAMPLES, headers=headers)
    assert clocks.error == -HOUR


@pytest.mark.parametrize("took", [1.9, 5.0, 15.0])
def test_slow_answers_count_within_their_uncertainty(took: float) -> None:
    """A server that is slow when a leader starts must not expire a claim."""
    clocks = Clocks(HOUR)
    clocks.answers(MIN_SAMPLES, took=took)
    assert clocks.error == pytest.approx(0, abs=1 + took / 2)


def test_slow_answers_do_not_move_a_correct_clock() -> None:
    clocks = Clocks()
    clocks.answers(MAX_SAMPLES, took=15)
    assert clocks.error == 0


async def test_answers_count_and_errors_do_not(server: Server, api: Api) -> None:
    def at(ahead: float) -> dict[str, str]:
        return {"Date": formatdate(api_time + ahead, usegmt=True)}

    async def wrong(request: Request) -> None:
        await request.answer(503, {}, at(-HOUR))

    async def good(request: Request) -> None:
        await request.answer(200, thing("a", 1), at(HOUR))

    api_time = api.now().timestamp()
    server.script = wrong
    for _ in range(MIN_SAMPLES):
        with pytest.raises(Unavailable):
            await api.get(THINGS, "n", "a")
    assert api.now().timestamp() == pytest.approx(api_time, abs=600)
    server.script = good
    for _ in range(MIN_SAMPLES):
        await api.urgent.get(THINGS, "n", "a")
    assert api.now().timestamp() == pytest.approx(api_time + HOUR, abs=600)
