"""Events for users (`kubectl events`), of events.k8s.io/v1.

To say something must never hold up doing it: `emit` only puts it into a bounded queue, and what doesn't fit is counted
and dropped. What repeats is one Event with a count (`series`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Literal, NoReturn, Protocol, TypeVar

from runtime.api import Api
from runtime.backoff import Backoff
from runtime.errors import AlreadyExists, ApiError, NotFound, Throttled, Unavailable, Unreachable
from runtime.resource import Resource

K = TypeVar("K")
V = TypeVar("V")

EventType = Literal["Normal", "Warning"]

SERIES_LIMIT = 4096
# After so many different notes about one thing, the next ones share an Event.
NOTES_LIMIT = 10
COMBINED = "(several of this kind) "
# A count is written again after a pause that grows: what happens every second of a day costs 300 writes, not 86,400.
COUNTS = Backoff(base_seconds=10, cap_seconds=300, spread=0)
# What was quiet for so long begins anew.
OVER_SECONDS = 600.0


@dataclass(frozen=True)
class EventKey:
    """What an Event is about, its wording left out. `regarding` is an object reference as sorted pairs."""

    regarding: tuple[tuple[str, str], ...]
    type: EventType
    reason: str
    action: str


@dataclass
class EventSeries:
    """An Event that was created, and how often it happened."""

    subject: EventKey
    note: str
    name: str
    first: datetime
    last: datetime
    seen_at: float
    due: float
    count: int = 1
    written: int = 1
    writes: int = 1


class EventCorrelator:
    """Holds the series of the last minutes, no more than SERIES_LIMIT. `now` is a clock's seconds, `date` is for
    people."""

    def __init__(self) -> None:
        self._series: OrderedDict[tuple[EventKey, str | None], EventSeries] = OrderedDict()
        self._notes: OrderedDict[EventKey, tuple[float, set[str]]] = OrderedDict()

    def see(self, subject: EventKey, note: str, now: float, date: datetime) -> EventSeries | None:
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
        made = EventSeries(subject, text, _name(subject, text, date), date, date, now, due=now + COUNTS.delay(1))
        self._series.pop(key, None)
        self._series[key] = made
        _keep_last(self._series)
        return made

    def due(self, now: float) -> Iterator[EventSeries]:
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

    def _too_many(self, subject: EventKey, note: str, now: float) -> bool:
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


def _name(subject: EventKey, note: str, date: datetime) -> str:
    """The same for the same occurrence, so that a create whose answer was lost can be tried again. At most 253 long."""
    about = dict(subject.regarding).get("name", "")[:230].rstrip("-.")
    digest = blake2b(repr((subject, note, date)).encode(), digest_size=8).hexdigest()
    return f"{about}.{digest}" if about else digest


log = logging.getLogger(__name__)

EVENTS = Resource("events.k8s.io", "v1", "events", "Event")

QUEUE_LIMIT = 1000
NOTE_BYTES = 1024
RETRIES = Backoff(base_seconds=1, cap_seconds=10)
ATTEMPTS = 3
LAST_WORDS_SECONDS = 2.0


class EventRecorder:
    def __init__(self, api: Api, component: str) -> None:
        """`component` is a qualified name, like poolhouse.dev/pool-controller."""
        self._api = api
        self._component = component
        self._instance = api.identity[:128]
        self._queue: asyncio.Queue[tuple[EventKey, str]] = asyncio.Queue(QUEUE_LIMIT)
        self._series = EventCorrelator()
        self._outcomes = api.metrics.events

    def emit(self, regarding: Mapping[str, Any], type: EventType, reason: str, note: str, *, action: str) -> None:
        """Says it soon, or not at all. `regarding` is an object reference (see `reference`), `reason` a CamelCase word
        from the documented list, `action` what was being done (`ScaleOut`)."""
        subject = EventKey(tuple(sorted((k, str(v)) for k, v in regarding.items() if v)), type, reason, action)
        try:
            self._queue.put_nowait((subject, truncate_note(note)))
        except asyncio.QueueFull:
            self._outcomes.labels("dropped").inc()

    async def run(self) -> NoReturn:
        """Sends for ever. When it is cancelled, what was already said is still sent, for two seconds."""
        try:
            while True:
                await self.turn()
        except asyncio.CancelledError:
            try:
                async with asyncio.timeout(LAST_WORDS_SECONDS):
                    while not self._queue.empty():
                        await self.turn()
            except TimeoutError:
                log.warning("events: %d were not sent", self._queue.qsize())
            raise

    async def turn(self) -> None:
        """Sends the next Event, or counts that are due, whichever comes first."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(self._series.next_due()):
                subject, note = await self._queue.get()
        except TimeoutError:
            pass
        else:
            if made := self._series.see(subject, note, loop.time(), datetime.now(UTC)):
                await self._send(self._create, made)
        for each in self._series.due(loop.time()):
            await self._send(self._count, each)

    async def _send(self, write: Callable[[EventSeries], Awaitable[object]], series: EventSeries) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await write(series)
            except AlreadyExists:  # ours, of an attempt whose answer was lost
                pass
            except (Throttled, Unavailable, Unreachable) as error:
                if attempt < ATTEMPTS:
                    await asyncio.sleep(max(RETRIES.delay(attempt, series.name), error.retry_after_seconds or 0))
                    continue
                return self._refused(series, error)
            except ApiError as error:  # its namespace is going, or we may not
                return self._refused(series, error)
            self._outcomes.labels("sent").inc()
            return None
        return None

    def _refused(self, series: EventSeries, error: ApiError) -> None:
        self._outcomes.labels("refused").inc()
        log.info("events: %s was not recorded: %s", series.subject.reason, error)

    async def _create(self, series: EventSeries) -> None:
        await self._api.create(EVENTS, self._document(series))

    async def _count(self, series: EventSeries) -> None:
        count = {"series": {"count": series.count, "lastObservedTime": _time(series.last)}}
        try:
            await self._api.patch(EVENTS, _namespace(series.subject), series.name, count)
        except NotFound:  # Events live for an hour
            await self._api.create(EVENTS, self._document(series) | count)

    def _document(self, series: EventSeries) -> dict[str, Any]:
        subject = series.subject
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"namespace": _namespace(subject), "name": series.name},
            "eventTime": _time(series.first),
            "type": subject.type,
            "reason": subject.reason,
            "action": subject.action,
            "note": series.note,
            "regarding": dict(subject.regarding),
            "reportingController": self._component,
            "reportingInstance": self._instance,
        }


def object_reference(document: Mapping[str, Any]) -> dict[str, str]:
    """What `regarding` wants, of a document."""
    metadata = document["metadata"]
    return {
        "apiVersion": document["apiVersion"],
        "kind": document["kind"],
        "namespace": metadata.get("namespace", ""),
        "name": metadata["name"],
        "uid": metadata.get("uid", ""),
    }


class ObjectMeta(Protocol):
    """What a view keeps of an object's identity."""

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def uid(self) -> str: ...


def view_reference(resource: Resource, named: ObjectMeta) -> dict[str, str]:
    """What `regarding` wants, of a view."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "namespace": named.namespace,
        "name": named.name,
        "uid": named.uid,
    }


def truncate_note(note: str) -> str:
    """Within the API server's limit, which is in bytes."""
    raw = note.encode()
    return note if len(raw) <= NOTE_BYTES else raw[: NOTE_BYTES - 3].decode(errors="ignore") + "…"


def _namespace(subject: EventKey) -> str:
    """Events are namespaced; those of cluster-scoped objects live in `default`."""
    return dict(subject.regarding).get("namespace", "default")


def _time(date: datetime) -> str:
    return date.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
