"""What time it is for the API server.

It stamps what others write: a leader whose own clock is an hour ahead would find every claim expired and every machine
too old. So time is counted by this machine's monotonic clock, which nobody sets, from a moment that begins as its own
idea of the time and is moved when the API server's answers (`Date`, in whole seconds) say that it is elsewhere.

An answer was dated after it was asked for and before it came: it tells a span, a wide one where it took long. One
answer says little: a proxy may keep it, or be the only server of three with a wrong clock. What most of the last ones
allow is believed, as NTP does it (Marzullo's algorithm). Small differences are left alone: a clock that is moved all
the time is worse than one that is a little off.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import pairwise
from time import monotonic, time

from runtime.metrics import Metrics

log = logging.getLogger(__name__)

ENOUGH = 3
"""answers, before one is believed. A replica has listed what it watches before it leads: that is more of them"""
WINDOW = 15
"""the last answers that count"""
APART_SECONDS = 1.0
"""Answers within a second say the same, but for the first ones."""
TOLERATED_SECONDS = 3.0
"""Differences up to this are none."""
DATED_TO_SECONDS = 1.0
"""`Date` is cut to whole seconds: up to so much later it was written."""

Span = tuple[float, float]


class ApiServerClock:
    def __init__(
        self, metrics: Metrics, wall: Callable[[], float] = time, steady: Callable[[], float] = monotonic
    ) -> None:
        self._offset = metrics.clock_offset
        self._wall, self._steady = wall, steady
        self._start = wall() - steady()
        """the time when the steady clock was 0, as it is counted from here on"""
        self._starts: deque[Span] = deque(maxlen=WINDOW)
        """the same, as far as each of the last answers says it"""
        self._heard_at = float("-inf")

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._start + self._steady(), UTC)

    @property
    def steady(self) -> float:
        """To be read before a call is sent, for `heard`."""
        return self._steady()

    def heard(self, headers: Mapping[str, str], asked_at: float) -> None:
        """The head of an answer has come."""
        at = self._steady()
        often = len(self._starts) == WINDOW and at - self._heard_at < APART_SECONDS
        if often or "Age" in headers:  # with an age it is out of a cache
            return
        if (said := dated(headers.get("Date", ""))) is None:
            return
        self._heard_at = at
        self._starts.append((said - at, said + DATED_TO_SECONDS - asked_at))
        span = agreed(self._starts)
        if span is None:
            return
        start, here = sum(span) / 2, self._wall() - at
        self._offset.set(start - here)
        if not span[0] - TOLERATED_SECONDS <= self._start <= span[1] + TOLERATED_SECONDS:
            self._start = start
            _tell(start - here)


def dated(text: str) -> float | None:
    """The time of a `Date` header."""
    try:
        said = parsedate_to_datetime(text)
    except ValueError:
        return None
    return said.replace(tzinfo=said.tzinfo or UTC).timestamp()


def agreed(spans: Collection[Span]) -> Span | None:
    """Where as many as possible overlap, if these are most of them."""
    edges = sorted([(low, 1) for low, _ in spans] + [(high, -1) for _, high in spans], key=lambda e: (e[0], -e[1]))
    count, most, found = 0, 0, (0.0, 0.0)
    for (at, step), (until, _) in pairwise(edges):
        count += step
        if count > most:
            most, found = count, (at, until)
    return found if len(spans) >= ENOUGH and 2 * most > len(spans) else None


def _tell(ahead: float) -> None:
    if abs(ahead) <= TOLERATED_SECONDS:
        log.info("the clock of this machine agrees with the API server's again")
        return
    side = "behind" if ahead > 0 else "ahead of"
    log.warning(
        "the clock of this machine is %.0f s %s the API server's, whose time is taken for all that ends by time:"
        " set the clocks of both by NTP",
        abs(ahead),
        side,
    )
