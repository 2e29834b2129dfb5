from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from runtime.api import Api
from runtime.events import NOTE_BYTES, QUEUE_LIMIT, Events, reference, shortened
from tests.runtime.misbehaving import Request, Server, status, thing

POOL = reference(thing("pool", 1))


@asynccontextmanager
async def running(api: Api) -> AsyncIterator[Events]:
    events = Events(api, "poolhouse.dev/test")
    task = asyncio.create_task(events.run())
    try:
        yield events
        assert not task.done(), "it runs for ever"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def say(events: Events, note: str = "made a", regarding: dict[str, str] = POOL) -> None:
    events.emit(regarding, "Normal", "ScaledOut", note, action="ScaleOut")


async def accept(request: Request) -> None:
    await request.answer(201, {})


def outcome(api: Api, name: str) -> float | None:
    return api.metrics.registry.get_sample_value("kubevirt_poolhouse_events_total", {"outcome": name})


async def test_an_event_says_who_what_and_why(server: Server, api: Api) -> None:
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


async def test_repeats_are_a_count(server: Server, api: Api) -> None:
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
        assert len(server.requests) == before, "at rest nothing is written"


async def test_an_event_of_something_in_no_namespace_is_in_default(server: Server, api: Api) -> None:
    server.script = accept
    async with running(api) as events:
        say(events, regarding={"apiVersion": "v1", "kind": "Node", "name": "x", "namespace": ""})
        await asyncio.sleep(1)
    assert server.requests[0].path == "/apis/events.k8s.io/v1/namespaces/default/events"


@pytest.mark.parametrize("code", [403, 404, 422])
async def test_what_is_refused_is_not_tried_again(server: Server, api: Api, code: int) -> None:
    async def script(request: Request) -> None:
        await request.answer(code, status(code, "No", "namespace is being terminated"))

    server.script = script
    async with running(api) as events:
        say(events)
        await asyncio.sleep(100)
    assert len(server.requests) == 1
    assert outcome(api, "refused") == 1


async def test_what_failed_is_tried_a_few_times_under_the_same_name(server: Server, api: Api) -> None:
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


async def test_a_server_that_is_away_costs_the_caller_nothing(server: Server, api: Api) -> None:
    async with running(api) as events:  # the server hangs
        for number in range(5000):
            say(events, f"note {number}")
        await asyncio.sleep(1)
    assert 5000 - QUEUE_LIMIT - 1 <= (outcome(api, "dropped") or 0) <= 5000 - QUEUE_LIMIT


async def test_a_count_of_an_event_that_ran_out_is_a_new_one(server: Server, api: Api) -> None:
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


async def test_last_words_are_sent(server: Server, api: Api) -> None:
    server.script = accept
    async with running(api) as events:
        await asyncio.sleep(1)
        for number in range(5):
            say(events, f"note {number}")
    assert len(server.requests) == 5


async def test_last_words_do_not_hold_up_the_end(server: Server, api: Api) -> None:
    async with running(api) as events:
        for number in range(5):
            say(events, f"note {number}")
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began <= 2.1


@pytest.mark.parametrize("note", ["", "x" * NOTE_BYTES, "x" * 5000, "é" * 5000, "\U0001f600" * 5000])
def test_a_note_fits(note: Any) -> None:
    short = shortened(note)
    assert len(short.encode()) <= NOTE_BYTES
    assert short == note or short.endswith("…")
