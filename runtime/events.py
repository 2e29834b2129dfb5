"""Events for users (`kubectl events`), of events.k8s.io/v1.

To say something must never hold up doing it: `emit` only puts it into a bounded queue, and what doesn't fit is counted
and dropped. What repeats is one Event with a count (`series`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn, Protocol

from runtime.api import Api, Resource
from runtime.backoff import Backoff
from runtime.errors import AlreadyExists, ApiError, NotFound, Throttled, Unavailable, Unreachable
from runtime.series import Correlator, Series, Subject, Type

log = logging.getLogger(__name__)

EVENTS = Resource("events.k8s.io", "v1", "events", "Event")

QUEUE_LIMIT = 1000
NOTE_BYTES = 1024
RETRIES = Backoff(base_seconds=1, cap_seconds=10)
ATTEMPTS = 3
LAST_WORDS_SECONDS = 2.0


class Events:
    def __init__(self, api: Api, component: str) -> None:
        """`component` is a qualified name, like poolhouse.dev/pool-controller."""
        self._api = api
        self._component = component
        self._instance = api.identity[:128]
        self._queue: asyncio.Queue[tuple[Subject, str]] = asyncio.Queue(QUEUE_LIMIT)
        self._series = Correlator()
        self._outcomes = api.metrics.events

    def emit(self, regarding: Mapping[str, Any], type: Type, reason: str, note: str, *, action: str) -> None:
        """Says it soon, or not at all. `regarding` is an object reference (see `reference`), `reason` a CamelCase word
        from the documented list, `action` what was being done (`ScaleOut`)."""
        subject = Subject(tuple(sorted((k, str(v)) for k, v in regarding.items() if v)), type, reason, action)
        try:
            self._queue.put_nowait((subject, shortened(note)))
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

    async def _send(self, write: Callable[[Series], Awaitable[object]], series: Series) -> None:
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

    def _refused(self, series: Series, error: ApiError) -> None:
        self._outcomes.labels("refused").inc()
        log.info("events: %s was not recorded: %s", series.subject.reason, error)

    async def _create(self, series: Series) -> None:
        await self._api.create(EVENTS, self._document(series))

    async def _count(self, series: Series) -> None:
        count = {"series": {"count": series.count, "lastObservedTime": _time(series.last)}}
        try:
            await self._api.patch(EVENTS, _namespace(series.subject), series.name, count)
        except NotFound:  # Events live for an hour
            await self._api.create(EVENTS, self._document(series) | count)

    def _document(self, series: Series) -> dict[str, Any]:
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


def reference(document: Mapping[str, Any]) -> dict[str, str]:
    """What `regarding` wants, of a document."""
    metadata = document["metadata"]
    return {
        "apiVersion": document["apiVersion"],
        "kind": document["kind"],
        "namespace": metadata.get("namespace", ""),
        "name": metadata["name"],
        "uid": metadata.get("uid", ""),
    }


class Named(Protocol):
    """What a view keeps of an object's identity."""

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def uid(self) -> str: ...


def about(resource: Resource, named: Named) -> dict[str, str]:
    """What `regarding` wants, of a view."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "namespace": named.namespace,
        "name": named.name,
        "uid": named.uid,
    }


def shortened(note: str) -> str:
    """Within the API server's limit, which is in bytes."""
    raw = note.encode()
    return note if len(raw) <= NOTE_BYTES else raw[: NOTE_BYTES - 3].decode(errors="ignore") + "…"


def _namespace(subject: Subject) -> str:
    """Events are namespaced; those of cluster-scoped objects live in `default`."""
    return dict(subject.regarding).get("namespace", "default")


def _time(date: datetime) -> str:
    return date.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
