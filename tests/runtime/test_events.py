from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from poolhouse.runtime.api import Api
from poolhouse.runtime.events import (
    COMBINED,
    NOTE_BYTES,
    NOTES_LIMIT,
    QUEUE_LIMIT,
    SERIES_LIMIT,
    SERIES_SECONDS,
    EventCorrelator,
    EventKey,
    EventRecorder,
    last_observed,
    object_reference,
    truncate_note,
)
from tests.runtime.faulty_server import Request, Server, status, thing

START = datetime(2026, 1, 1, tzinfo=UTC)


def subject(name: str = "pool", reason: str = "ScaledOut") -> EventKey:
    return EventKey((("kind", "VirtualMachinePool"), ("name", name)), "Normal", reason, "ScaleOut")


def observe(correlator: EventCorrelator, note: str, now: float, name: str = "pool") -> str | None:
    made = correlator.observe(subject(name), note, now, START + timedelta(seconds=now))
    return made.note if made else None


def test_repetitions_are_counted_in_one_event() -> None:
    correlator = EventCorrelator()
    assert observe(correlator, "made a", 0) == "made a"
    assert observe(correlator, "made a", 1) is None
    assert observe(correlator, "made a", 2) is None
    assert correlator.next_due() == 10
    assert list(correlator.due(9)) == []
    (due,) = correlator.due(10)
    assert (due.count, due.last) == (3, START + timedelta(seconds=2))


def test_an_event_without_repetition_is_written_once() -> None:
    correlator = EventCorrelator()
    observe(correlator, "made a", 0)
    assert correlator.next_due() is None
    assert list(correlator.due(10_000)) == []
    assert len(correlator) == 0


def test_counts_are_written_with_growing_pauses() -> None:
    correlator = EventCorrelator()
    written = []
    for second in range(3600):
        observe(correlator, "failed", second)
        written += [each.count for each in correlator.due(second)]
    assert 10 <= len(written) <= 20
    assert written == sorted(written)


def test_a_new_series_starts_after_a_pause() -> None:
    correlator = EventCorrelator()
    observe(correlator, "failed", 0)
    assert observe(correlator, "failed", SERIES_SECONDS + 1) == "failed"


def test_a_thousand_different_notes_make_few_events() -> None:
    correlator = EventCorrelator()
    made = [note for note in (observe(correlator, f"made vm-{n}", n / 100) for n in range(1000)) if note]
    assert made[:NOTES_LIMIT] == [f"made vm-{n}" for n in range(NOTES_LIMIT)]
    assert made[NOTES_LIMIT:] == [COMBINED + f"made vm-{NOTES_LIMIT}"]
    (due,) = correlator.due(20)
    assert due.count == 1000 - NOTES_LIMIT


def test_other_keys_are_other_events() -> None:
    correlator = EventCorrelator()
    assert observe(correlator, "x", 0, "a")
    assert observe(correlator, "x", 0, "b")
    assert correlator.observe(subject("a", "ScaledIn"), "x", 0, START)


def test_the_number_of_series_is_bounded() -> None:
    correlator = EventCorrelator()
    for number in range(SERIES_LIMIT + 100):
        observe(correlator, "x", 0, f"pool-{number}")
        observe(correlator, "x", 1, f"pool-{number}")
    assert len(correlator) == SERIES_LIMIT == len(list(correlator.due(100)))


def test_a_repeated_create_has_the_same_short_name() -> None:
    long = "a" * 229 + "." + "b" * 23
    names = set()
    for _ in range(2):
        made = EventCorrelator().observe(subject(long), "x", 0, START)
        names.add(made.name)
    (name,) = names
    assert len(name) <= 253
    assert ".." not in name


POOL = object_reference(thing("pool", 1))


@asynccontextmanager
async def running(api: Api) -> AsyncIterator[EventRecorder]:
    events = EventRecorder(api, "poolhouse.dev/test")
    task = asyncio.create_task(events.run())
    try:
        yield events
        assert not task.done(), "run() does not return"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def say(events: EventRecorder, note: str = "made a", regarding: dict[str, str] = POOL) -> None:
    events.emit(regarding, "Normal", "ScaledOut", note, action="ScaleOut")


async def accept(request: Request) -> None:
    await request.answer(201, {})


def outcome(api: Api, name: str) -> float | None:
    return api.metrics.registry.get_sample_value("kubevirt_poolhouse_events_total", {"outcome": name})


async def test_the_fields_of_an_event(server: Server, api: Api) -> None:
    server.script = accept
    async with running(api) as events:
        say(events)
        await asyncio.sleep(1)
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/apis/events.k8s.io/v1/namespaces/n/events")
    body = request.document
    assert body["regarding"] == POOL
    assert (body["type"], body["reason"], body["action"], body["note"]) == (
        "Normal",
        "ScaledOut",
        "ScaleOut",
        "made a",
    )
    assert (body["reportingController"], body["reportingInstance"]) == ("poolhouse.dev/test", "test")
    assert body["eventTime"].endswith("Z")


OLD, NEW, CREATED = "2026-01-01T12:00:00Z", "2026-01-01T12:00:09.000000Z", "2026-01-01T11:00:00Z"


@pytest.mark.parametrize(
    ("event", "time"),
    [
        pytest.param({"eventTime": OLD}, OLD, id="one occurrence"),
        pytest.param({"eventTime": OLD, "series": {"count": 2, "lastObservedTime": NEW}}, NEW, id="a series"),
        pytest.param({"deprecatedLastTimestamp": NEW, "deprecatedFirstTimestamp": OLD}, NEW, id="core"),
        pytest.param({"deprecatedFirstTimestamp": OLD}, OLD, id="the first time only"),
        pytest.param({"eventTime": None}, CREATED, id="no time of its own"),
    ],
)
def test_the_time_of_the_last_occurrence(event: dict[str, Any], time: str) -> None:
    assert last_observed({"metadata": {"creationTimestamp": CREATED}, **event}) == time


async def test_a_repetition_updates_the_count(server: Server, api: Api) -> None:
    server.script = accept
    async with running(api) as events:
        for _ in range(100):
            say(events)
            await asyncio.sleep(1)
        await asyncio.sleep(300)
        assert 3 <= len(server.requests) <= 8
        assert server.requests[-1].method == "PATCH"
        assert server.requests[-1].document["series"]["count"] == 100
        before = len(server.requests)
        await asyncio.sleep(3600)
        assert len(server.requests) == before, "without repetitions nothing is written"


async def test_events_of_cluster_scoped_objects_are_in_default(server: Server, api: Api) -> None:
    server.script = accept
    async with running(api) as events:
        say(events, regarding={"apiVersion": "v1", "kind": "Node", "name": "x", "namespace": ""})
        await asyncio.sleep(1)
    assert server.requests[0].path == "/apis/events.k8s.io/v1/namespaces/default/events"


@pytest.mark.parametrize("code", [403, 404, 422])
async def test_a_refused_event_is_not_retried(server: Server, api: Api, code: int) -> None:
    async def script(request: Request) -> None:
        await request.answer(code, status(code, "No", "namespace is being terminated"))

    server.script = script
    async with running(api) as events:
        say(events)
        await asyncio.sleep(100)
    assert len(server.requests) == 1
    assert outcome(api, "refused") == 1


async def test_a_failed_event_is_retried_under_the_same_name(server: Server, api: Api) -> None:
    async def script(request: Request) -> None:
        if len(server.requests) == 1:
            await request.answer(500, b"no")
        elif len(server.requests) == 2:
            await request.hang()
        await request.answer(409, status(409, "AlreadyExists"))

    server.script = script
    async with running(api) as events:
        say(events)
        await asyncio.sleep(100)
    assert len({request.document["metadata"]["name"] for request in server.requests}) == 1
    assert len(server.requests) == 3
    assert outcome(api, "sent") == 1


async def test_an_unreachable_server_does_not_delay_the_caller(server: Server, api: Api) -> None:
    async with running(api) as events:  # the server hangs
        for number in range(5000):
            say(events, f"note {number}")
        await asyncio.sleep(1)
    assert 5000 - QUEUE_LIMIT - 1 <= (outcome(api, "dropped") or 0) <= 5000 - QUEUE_LIMIT


async def test_the_events_of_a_namespace_do_not_wait_for_all_of_another(server: Server, api: Api) -> None:
    server.script = accept
    async with running(api) as events:
        for number in range(500):
            events.emit({**POOL, "namespace": "noisy", "name": f"p{number}"}, "Normal", "Scaled", "up", action="Scale")
        events.emit({**POOL, "namespace": "quiet"}, "Normal", "Scaled", "up", action="Scale")
        await asyncio.sleep(60)
    order = [request.document["metadata"]["namespace"] for request in server.requests]
    assert order.index("quiet") <= 2
    assert len(order) == 501


async def test_the_count_of_a_deleted_event_creates_it_again(server: Server, api: Api) -> None:
    async def script(request: Request) -> None:
        gone = request.method == "PATCH"
        await request.answer(404 if gone else 201, status(404, "NotFound") if gone else {})

    server.script = script
    async with running(api) as events:
        say(events)
        say(events)
        await asyncio.sleep(60)
    assert [request.method for request in server.requests] == ["POST", "PATCH", "POST"]
    assert server.requests[-1].document["series"]["count"] == 2


async def test_queued_events_are_sent_after_a_cancellation(server: Server, api: Api) -> None:
    server.script = accept
    async with running(api) as events:
        await asyncio.sleep(1)
        for number in range(5):
            say(events, f"note {number}")
    assert len(server.requests) == 5


async def test_queued_events_do_not_delay_the_end(server: Server, api: Api) -> None:
    async with running(api) as events:
        for number in range(5):
            say(events, f"note {number}")
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began <= 2.1


@pytest.mark.parametrize("note", ["", "x" * NOTE_BYTES, "x" * 5000, "é" * 5000, "\U0001f600" * 5000])
def test_a_note_is_truncated_to_the_limit(note: Any) -> None:
    short = truncate_note(note)
    assert len(short.encode()) <= NOTE_BYTES
    assert short == note or short.endswith("…")
