"""Which occurrences become an Event of their own, and which only a higher count of one that there is."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Literal, TypeVar

from runtime.backoff import Backoff

K = TypeVar("K")
V = TypeVar("V")

Type = Literal["Normal", "Warning"]

SERIES_LIMIT = 4096
# After so many different notes about one thing, the next ones share an Event.
NOTES_LIMIT = 10
COMBINED = "(several of this kind) "
# A count is written again after a pause that grows: what happens every second of a day costs 300 writes, not 86,400.
COUNTS = Backoff(base_seconds=10, cap_seconds=300, spread=0)
# What was quiet for so long begins anew.
OVER_SECONDS = 600.0


@dataclass(frozen=True)
class Subject:
    """What an Event is about, its wording left out. `regarding` is an object reference as sorted pairs."""

    regarding: tuple[tuple[str, str], ...]
    type: Type
    reason: str
    action: str


@dataclass
class Series:
    """An Event that was created, and how often it happened."""

    subject: Subject
    note: str
    name: str
    first: datetime
    last: datetime
    seen_at: float
    due: float
    count: int = 1
    written: int = 1
    writes: int = 1


class Correlator:
    """Holds the series of the last minutes, no more than SERIES_LIMIT. `now` is a clock's seconds, `date` is for
    people."""

    def __init__(self) -> None:
        self._series: OrderedDict[tuple[Subject, str | None], Series] = OrderedDict()
        self._notes: OrderedDict[Subject, tuple[float, set[str]]] = OrderedDict()

    def see(self, subject: Subject, note: str, now: float, date: datetime) -> Series | None:
        """The series whose Event is to be created; None if this only counts in one that there is."""
        shared = self._too_many(subject, note, now)
        key = subject, None if shared else note
        known = self._series.get(key)
        if known is not None and now - known.seen_at < OVER_SECONDS:
            known.count += 1
            known.last, known.seen_at = date, now
            return None
        # The text of a shared one is that of its first: the API server lets nothing of an Event be changed but its
        # count.
        text = COMBINED + note if shared else note
        made = Series(subject, text, _name(subject, text, date), date, date, now, due=now + COUNTS.delay(1))
        self._series.pop(key, None)
        self._series[key] = made
        _keep_last(self._series)
        return made

    def due(self, now: float) -> Iterator[Series]:
        """Those whose count is to be written now."""
        for key, each in list(self._series.items()):
            if each.count > each.written and now >= each.due:
                each.written = each.count
                each.writes += 1
                each.due = now + COUNTS.delay(each.writes)
                yield each
            elif each.count == each.written and now - each.seen_at >= OVER_SECONDS:
                del self._series[key]

    def next_due(self) -> float | None:
        return min((each.due for each in self._series.values() if each.count > each.written), default=None)

    def __len__(self) -> int:
        return len(self._series)

    def _too_many(self, subject: Subject, note: str, now: float) -> bool:
        since, notes = self._notes.pop(subject, (now, set()))
        if now - since >= OVER_SECONDS:
            since, notes = now, set()
        shared = note not in notes and len(notes) >= NOTES_LIMIT
        if not shared:
            notes.add(note)
        self._notes[subject] = since, notes
        _keep_last(self._notes)
        return shared


def _keep_last(some: OrderedDict[K, V]) -> None:
    while len(some) > SERIES_LIMIT:
        some.popitem(last=False)


def _name(subject: Subject, note: str, date: datetime) -> str:
    """The same for the same occurrence, so that a create whose answer was lost can be tried again. At most 253 long."""
    about = dict(subject.regarding).get("name", "")[:230].rstrip("-.")
    digest = blake2b(repr((subject, note, date)).encode(), digest_size=8).hexdigest()
    return f"{about}.{digest}" if about else digest
