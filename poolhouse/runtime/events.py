"""Records Events for users (`kubectl events`), of events.k8s.io/v1.

`emit` never waits: it puts the Event into a queue. If too many Events of the namespace wait, it drops the Event and
counts it. Namespaces have their turns, so that the Events of one come between thousands of another.
`EventCorrelator` turns repetitions into one Event with a count, like client-go's `EventCorrelator`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Literal, NoReturn, Protocol

from poolhouse.api.apimachinery.timestamps import format_micro_time
from poolhouse.runtime.api import Api
from poolhouse.runtime.backoff import Backoff
from poolhouse.runtime.errors import AlreadyExists, ApiError, NotFound, Throttled, Unavailable, Unreachable
from poolhouse.runtime.resource import Resource
from poolhouse.runtime.workqueue import ReadyKeys

log = logging.getLogger(__name__)

EventType = Literal["Normal", "Warning"]

EVENTS = Resource("events.k8s.io", "v1", "events", "Event")

QUEUE_LIMIT = 1000
"""of one namespace"""
TOTAL_LIMIT = 10 * QUEUE_LIMIT
NOTE_BYTES = 1024
RETRIES = Backoff(base_seconds=1, cap_seconds=10)
ATTEMPTS = 3
DRAIN_SECONDS = 2.0

SERIES_LIMIT = 4096
# After this many different notes for one key, further notes are combined into one Event.
NOTES_LIMIT = 10
COMBINED = "(several of this kind) "
# An Event that repeats every second for a day costs 300 writes of its count, not 86,400.
COUNT_PAUSES = Backoff(base_seconds=10, cap_seconds=300, spread=0)
# After this time without a repetition a series ends.
SERIES_SECONDS = 600.0


def last_observed(event: Mapping[str, Any]) -> str:
    """The time of an Event's last occurrence. Recorders of core/v1 Events, such as KubeVirt's, set no `eventTime`."""
    series, metadata = event.get("series") or {}, event.get("metadata") or {}
    times = (
        series.get("lastObservedTime"),
        event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        event.get("deprecatedFirstTimestamp"),
        metadata.get("creationTimestamp"),
    )
    return next((str(time) for time in times if time), "")


@dataclass(frozen=True)
class EventKey:
    """The fields of an Event except its note. `regarding` is an object reference as sorted pairs."""

    regarding: tuple[tuple[str, str], ...]
    type: EventType
    reason: str
    action: str

    @property
    def namespace(self) -> str:
        """The namespace of the Event: `default` for a cluster-scoped object."""
        return dict(self.regarding).get("namespace", "default")


@dataclass
class EventSeries:
    """A created Event and the number of its occurrences."""

    key: EventKey
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
    """The series of the last minutes. `now` is monotonic time; `date` is the time written into Events."""

    def __init__(self) -> None:
        self._series: dict[tuple[EventKey, str | None], EventSeries] = {}
        self._notes: dict[EventKey, tuple[float, set[str]]] = {}
        # By name, the series whose count must be written later. Each Event asks for them, so they are kept apart.
        self._uncounted: dict[str, EventSeries] = {}
        self._looked_for_ended_at = float("-inf")

    def observe(self, key: EventKey, note: str, now: float, date: datetime) -> EventSeries | None:
        """Counts an occurrence. Returns the series if its Event must be created; None if the series existed."""
        combine = self._exceeds_notes(key, note, now)
        index = key, None if combine else note
        known = self._series.get(index)
        if known is not None and now - known.seen_at < SERIES_SECONDS:
            known.count += 1
            known.last, known.seen_at = date, now
            self._uncounted[known.name] = known
            return None
        # A combined Event keeps its first note, because only the count of an Event can be changed.
        text = COMBINED + note if combine else note
        series = EventSeries(key, text, _event_name(key, text, date), date, date, now, now + COUNT_PAUSES.delay(1))
        if known is not None:
            self._drop(index)
        self._series[index] = series
        if len(self._series) > SERIES_LIMIT:
            self._drop(next(iter(self._series)))
        return series

    def due(self, now: float) -> Iterator[EventSeries]:
        """The series whose count must be written now. Removes the series that have ended."""
        for series in [each for each in self._uncounted.values() if now >= each.due]:
            del self._uncounted[series.name]
            series.written = series.count
            series.writes += 1
            series.due = now + COUNT_PAUSES.delay(series.writes)
            yield series
        if now - self._looked_for_ended_at >= SERIES_SECONDS / 10:
            self._looked_for_ended_at = now
            ended = (index for index, each in self._series.items() if now - each.seen_at >= SERIES_SECONDS)
            for index in [each for each in ended if self._series[each].name not in self._uncounted]:
                self._drop(index)

    def next_due(self) -> float | None:
        return min((series.due for series in self._uncounted.values()), default=None)

    def _drop(self, index: tuple[EventKey, str | None]) -> None:
        self._uncounted.pop(self._series.pop(index).name, None)

    def __len__(self) -> int:
        return len(self._series)

    def _exceeds_notes(self, key: EventKey, note: str, now: float) -> bool:
        since, notes = self._notes.pop(key, (now, set()))
        if now - since >= SERIES_SECONDS:
            since, notes = now, set()
        exceeds = note not in notes and len(notes) >= NOTES_LIMIT
        if not exceeds:
            notes.add(note)
        self._notes[key] = since, notes
        if len(self._notes) > SERIES_LIMIT:
            del self._notes[next(iter(self._notes))]
        return exceeds


def _event_name(key: EventKey, note: str, date: datetime) -> str:
    """A name of at most 253 characters. It is the same in a retry of the create."""
    prefix = dict(key.regarding).get("name", "")[:230].rstrip("-.")
    digest = blake2b(repr((key, note, date)).encode(), digest_size=8).hexdigest()
    return f"{prefix}.{digest}" if prefix else digest


class EventRecorder:
    def __init__(self, api: Api, component: str) -> None:
        """`component` is a qualified name, such as poolhouse.dev/pool-controller."""
        self._api, self._component = api, component
        self._instance = api.identity[:128]
        self._queue: ReadyKeys[tuple[str, tuple[EventKey, str]]] = ReadyKeys(None)
        self._queued = asyncio.Event()
        self._correlator = EventCorrelator()
        self._outcomes = api.metrics.events

    def emit(self, regarding: Mapping[str, Any], type: EventType, reason: str, note: str, *, action: str) -> None:
        """`regarding` is an object reference (see `object_reference`); `action` is what the controller did
        (`ScaleOut`)."""
        key = EventKey(tuple(sorted((k, str(v)) for k, v in regarding.items() if v)), type, reason, action)
        if self._queue.count(key.namespace) >= QUEUE_LIMIT or len(self._queue) >= TOTAL_LIMIT:
            self._outcomes.labels("dropped").inc()
            return
        self._queue.put((key.namespace, (key, truncate_note(note))))
        self._queued.set()

    async def run(self) -> NoReturn:
        """Sends Events. After a cancellation it sends the queued ones, for at most `DRAIN_SECONDS`."""
        try:
            while True:
                await self._send_next()
        except asyncio.CancelledError:
            try:
                async with asyncio.timeout(DRAIN_SECONDS):
                    while len(self._queue):
                        await self._send_next()
            except TimeoutError:
                log.warning("events: %d were not sent before the process ended", len(self._queue))
            raise

    async def _send_next(self) -> None:
        """Waits for the next Event or the next due count, and sends it."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(self._correlator.next_due()):
                await self._queued.wait()
        except TimeoutError:
            pass
        if (taken := self._queue.pick()) is not None:
            self._queue.done(taken)
            key, note = taken[1]
            if series := self._correlator.observe(key, note, loop.time(), datetime.now(UTC)):
                await self._send(self._create, series)
        if not len(self._queue):
            self._queued.clear()
        for series in self._correlator.due(loop.time()):
            await self._send(self._update_count, series)

    async def _send(self, write: Callable[[EventSeries], Awaitable[object]], series: EventSeries) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await write(series)
            except AlreadyExists:  # an earlier attempt succeeded, but its response was lost
                pass
            except (Throttled, Unavailable, Unreachable) as error:
                if attempt < ATTEMPTS:
                    await asyncio.sleep(max(RETRIES.delay(attempt, series.name), error.retry_after_seconds or 0))
                    continue
                return self._refused(series, error)
            except ApiError as error:  # for example, the namespace is terminating or RBAC forbids the write
                return self._refused(series, error)
            self._outcomes.labels("sent").inc()
            return None
        return None

    def _refused(self, series: EventSeries, error: ApiError) -> None:
        self._outcomes.labels("refused").inc()
        log.info("events: %s was not recorded: %s", series.key.reason, error)

    async def _create(self, series: EventSeries) -> None:
        await self._api.create(EVENTS, self._document(series))

    async def _update_count(self, series: EventSeries) -> None:
        count = {"series": {"count": series.count, "lastObservedTime": format_micro_time(series.last)}}
        try:
            await self._api.patch(EVENTS, series.key.namespace, series.name, count)
        except NotFound:  # the API server deletes Events after an hour
            await self._api.create(EVENTS, self._document(series) | count)

    def _document(self, series: EventSeries) -> dict[str, Any]:
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"namespace": series.key.namespace, "name": series.name},
            "eventTime": format_micro_time(series.first),
            "type": series.key.type,
            "reason": series.key.reason,
            "action": series.key.action,
            "note": series.note,
            "regarding": dict(series.key.regarding),
            "reportingController": self._component,
            "reportingInstance": self._instance,
        }


def object_reference(document: Mapping[str, Any]) -> dict[str, str]:
    metadata = document["metadata"]
    return {
        "apiVersion": document["apiVersion"],
        "kind": document["kind"],
        "namespace": metadata.get("namespace", ""),
        "name": metadata["name"],
        "uid": metadata.get("uid", ""),
    }


class ObjectMeta(Protocol):
    """The identity of an object in a view."""

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def uid(self) -> str: ...


def view_reference(resource: Resource, view: ObjectMeta) -> dict[str, str]:
    """The object reference of a view of an object."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "namespace": view.namespace,
        "name": view.name,
        "uid": view.uid,
    }


def truncate_note(note: str) -> str:
    """The note, cut to the 1024 bytes that the API server accepts."""
    raw = note.encode()
    return note if len(raw) <= NOTE_BYTES else raw[: NOTE_BYTES - 3].decode(errors="ignore") + "…"
