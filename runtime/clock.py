"""The time by the clock of the API server, which stamps what other writers write.

A leader whose own clock is an hour ahead would find every claim expired and every VM too old. So the time is counted
with the monotonic clock of this machine, which nothing sets, and corrected by the `Date` headers of the API server.

One answer proves little: a proxy may have cached it, or one of three API servers has a wrong clock. The median of the
last answers decides. Small differences do not count, because a clock that moves often is worse than one that is
slightly off.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import monotonic, time
from typing import NamedTuple

from runtime.metrics import Metrics

log = logging.getLogger(__name__)

MIN_SAMPLES = 3
"""Before a replica leads, it has listed what it watches, which takes more answers than this."""
MAX_SAMPLES = 15
SAMPLE_INTERVAL_SECONDS = 1.0
"""Once there are enough samples, a burst of answers counts as one."""
TOLERANCE_SECONDS = 3.0


class Sample(NamedTuple):
    epoch: float
    """the API server's time when the monotonic clock of this machine was 0"""
    uncertainty: float
    """in seconds; the server wrote `Date` at some moment between request and answer"""


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
        """The monotonic clock, to read before a request is sent."""
        return self._steady()

    def observe(self, headers: Mapping[str, str], sent_at: float) -> None:
        """Takes the headers of an answer; `sent_at` is `steady` of before the request."""
        at = self._steady()
        full = len(self._samples) == MAX_SAMPLES
        if "Age" in headers or (full and at - self._sampled_at < SAMPLE_INTERVAL_SECONDS):  # Age: from a cache
            return
        if (date := parse_date(headers.get("Date", ""))) is None:
            return
        self._sampled_at = at
        # `Date` has whole seconds: on average the server wrote it half a second later.
        self._samples.append(Sample(date + 0.5 - (sent_at + at) / 2, (at - sent_at) / 2 + 0.5))
        # An even number of samples may be a tie, which proves nothing.
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
