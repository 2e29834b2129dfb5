"""The time by the clock of the API server, which sets the timestamps of objects.

A leader whose own clock is an hour ahead would find every claim expired and every VM too old. Its time is therefore the
monotonic clock of this machine, plus an offset that is computed from the `Date` headers of the API server.

A proxy may have cached a response, and one of three API servers may have a wrong clock. The offset is therefore the
median of the last responses. Small differences do not change the offset, because a time that jumps often is worse than
a time that is slightly wrong.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import monotonic, time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from poolhouse.runtime.metrics import Metrics

log = logging.getLogger(__name__)

MIN_SAMPLES = 3
"""A replica has received more responses than this before it leads, because it lists its resources first."""
MAX_SAMPLES = 15
SAMPLE_INTERVAL_SECONDS = 1.0
"""The shortest time between two samples, once there are enough samples."""
TOLERANCE_SECONDS = 3.0


class Sample(NamedTuple):
    epoch: float
    """the API server's time when the monotonic clock of this machine was 0"""
    uncertainty: float
    """seconds by which `epoch` may be wrong: the server wrote `Date` at any time between request and response"""


class ApiServerClock:
    def __init__(
        self, metrics: Metrics, wall: Callable[[], float] = time, steady: Callable[[], float] = monotonic
    ) -> None:
        self._offset = metrics.clock_offset
        self._wall, self._steady = wall, steady
        self._epoch = wall() - steady()
        self._samples: deque[Sample] = deque(maxlen=MAX_SAMPLES)
        self._sampled_at = float("-inf")

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._epoch + self._steady(), UTC)

    @property
    def steady(self) -> float:
        """The time of the monotonic clock. Read it before a request is sent."""
        return self._steady()

    def observe(self, headers: Mapping[str, str], sent_at: float) -> None:
        """Adds a sample from the headers of a response. `sent_at` is the value of `steady` before the request."""
        at = self._steady()
        full = len(self._samples) == MAX_SAMPLES
        if "Age" in headers or (full and at - self._sampled_at < SAMPLE_INTERVAL_SECONDS):  # a cache sets Age
            return
        if (date := parse_date(headers.get("Date", ""))) is None:
            return
        self._sampled_at = at
        # `Date` has whole seconds: on average the server wrote it half a second later.
        self._samples.append(Sample(date + 0.5 - (sent_at + at) / 2, (at - sent_at) / 2 + 0.5))
        # An even number of samples may have two medians.
        if len(self._samples) >= MIN_SAMPLES and len(self._samples) % 2:
            self._correct(sorted(self._samples)[len(self._samples) // 2], self._wall() - at)

    def _correct(self, median: Sample, own_epoch: float) -> None:
        self._offset.set(median.epoch - own_epoch)
        if abs(median.epoch - self._epoch) > TOLERANCE_SECONDS + median.uncertainty:
            self._epoch = median.epoch
            _log_offset(median.epoch - own_epoch)


def parse_date(text: str) -> float | None:
    """The time in a `Date` header."""
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return date.replace(tzinfo=date.tzinfo or UTC).timestamp()


def _log_offset(seconds: float) -> None:
    if abs(seconds) <= TOLERANCE_SECONDS:
        log.info("the clock of this machine agrees with the API server's clock again")
        return
    log.warning(
        "the clock of this machine is %.0f s %s the clock of the API server; deadlines follow the API server."
        " Synchronize both clocks by NTP",
        abs(seconds),
        "behind" if seconds > 0 else "ahead of",
    )
