"""The API server's time: what answers say of it, and what is believed."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from prometheus_client import CollectorRegistry

from runtime.api import Api
from runtime.clock import ENOUGH, WINDOW, ApiServerClock, Span, agreed, dated
from runtime.errors import Unavailable
from runtime.metrics import PREFIX, Metrics
from tests.runtime.misbehaving import THINGS, Request, Server, thing

START = 1_800_000_000.0
HOUR = 3600.0
NOW, LATE = (0.0, 1.0), (HOUR, HOUR + 1.0)


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        pytest.param([], None, id="nothing was heard"),
        pytest.param([LATE, LATE], None, id="two may both be wrong"),
        pytest.param([(0.0, 1.0), (0.4, 1.4), (0.2, 1.2)], (0.4, 1.0), id="what all allow"),
        pytest.param([(0.0, 1.0), LATE, (0.2, 1.2)], (0.2, 1.0), id="one of three is out of a cache"),
        pytest.param([(0.0, 1.0), (-9.0, 6.0), (-14.0, 1.5)], (0.0, 1.0), id="slow answers allow much, and say little"),
        pytest.param([(-9.0, 6.0), (-14.0, 1.5), (-2.0, 9.0)], (-2.0, 1.5), id="but enough, where all are slow"),
        pytest.param([NOW, LATE, NOW, LATE], None, id="two against two"),
        pytest.param([NOW, LATE, (2 * HOUR, 2 * HOUR + 1)], None, id="nobody agrees with anybody"),
        pytest.param([NOW] * 6 + [LATE] * 5, NOW, id="one of two servers, which answers less often, is wrong"),
        pytest.param([NOW] * 7 + [LATE] * 8, LATE, id="the server's clock was set"),
        pytest.param([(0.0, 1.0), (1.0, 2.0), (1.0, 1.5)], (1.0, 1.0), id="they touch"),
    ],
)
def test_what_most_allow_is_believed(spans: list[Span], expected: Span | None) -> None:
    assert agreed(spans) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("Fri, 15 Jan 2027 08:00:00 GMT", START, id="as HTTP writes it"),
        pytest.param("Fri, 15 Jan 2027 08:00:00 -0000", START, id="without a zone it is UTC"),
        pytest.param("", None, id="absent"),
        pytest.param("yesterday", None, id="no date"),
        pytest.param("Fri, 35 Jan 2027 08:00:00 GMT", None, id="no day"),
    ],
)
def test_dates_are_read(text: str, expected: float | None) -> None:
    assert dated(text) == expected


class Clocks:
    """This machine's, which begins at START, and the server's, which is `ahead` of it."""

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
            asked = self.clock.steady
            self.passed += took
            date = formatdate(START + self.passed + self.ahead + off, usegmt=True)
            self.clock.heard({"Date": date} | (headers or {}), asked)

    @property
    def error(self) -> float:
        """How far our idea of the server's time is off."""
        return self.clock.now().timestamp() - (START + self.passed + self.ahead)

    @property
    def offset(self) -> float | None:
        return self.registry.get_sample_value(f"{PREFIX}api_clock_offset_seconds")


@pytest.mark.parametrize("ahead", [HOUR, -HOUR, 4.5, -86400.0])
def test_the_server_s_time_is_taken(ahead: float) -> None:
    clocks = Clocks(ahead)
    clocks.answers(ENOUGH - 1)
    assert clocks.error == -ahead
    clocks.answers(1)
    assert clocks.error == pytest.approx(0, abs=1)
    assert clocks.offset == pytest.approx(ahead, abs=1)


@pytest.mark.parametrize("ahead", [0.0, 2.0, -2.0])
def test_small_differences_are_left_alone(ahead: float) -> None:
    clocks = Clocks(ahead)
    clocks.answers(WINDOW)
    assert clocks.error == -ahead
    assert clocks.offset == pytest.approx(ahead, abs=1)


@pytest.mark.parametrize("strange", range(1, 8))
def test_odd_dates_move_nothing(strange: int) -> None:
    clocks = Clocks()
    clocks.answers(WINDOW)
    clocks.answers(strange, off=HOUR)
    assert clocks.error == 0
    clocks.answers(WINDOW)
    assert clocks.error == 0


def test_the_server_s_clock_is_followed_when_it_is_set() -> None:
    clocks = Clocks()
    clocks.answers(WINDOW)
    clocks.ahead = HOUR
    clocks.answers(WINDOW // 2 + 1)
    assert clocks.error == pytest.approx(0, abs=1)


def test_whoever_sets_this_machine_s_clock_changes_nothing() -> None:
    clocks = Clocks()
    clocks.answers(WINDOW)
    clocks.jumped = HOUR
    assert clocks.error == 0
    clocks.answers(1)
    assert clocks.error == 0
    assert clocks.offset == pytest.approx(-HOUR, abs=1)


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Age": "3600"}, id="out of a cache"),
        pytest.param({"Date": "soon"}, id="without a date"),
    ],
)
def test_what_says_nothing_is_not_heard(headers: dict[str, str]) -> None:
    clocks = Clocks(HOUR)
    clocks.answers(WINDOW, headers=headers)
    assert clocks.error == -HOUR


@pytest.mark.parametrize("took", [1.9, 5.0, 15.0])
def test_slow_answers_are_believed_as_far_as_they_go(took: float) -> None:
    """A server that is slow when a leader begins must not cost a claim."""
    clocks = Clocks(HOUR)
    clocks.answers(ENOUGH, took=took)
    assert clocks.error == pytest.approx(0, abs=1 + took / 2)


def test_slow_answers_move_nothing_that_they_allow() -> None:
    clocks = Clocks()
    clocks.answers(WINDOW, took=15)
    assert clocks.error == 0


async def test_every_answer_is_heard_and_no_error_is(server: Server, api: Api) -> None:
    def at(ahead: float) -> dict[str, str]:
        return {"Date": formatdate(api_time + ahead, usegmt=True)}

    async def odd(request: Request) -> None:
        await request.answer(503, {}, at(-HOUR))

    async def good(request: Request) -> None:
        await request.answer(200, thing("a", 1), at(HOUR))

    api_time = api.now().timestamp()
    server.script = odd
    for _ in range(ENOUGH):
        with pytest.raises(Unavailable):
            await api.get(THINGS, "n", "a")
    assert api.now().timestamp() == pytest.approx(api_time, abs=600)
    server.script = good
    for _ in range(ENOUGH):
        await api.urgent.get(THINGS, "n", "a")
    assert api.now().timestamp() == pytest.approx(api_time + HOUR, abs=600)
