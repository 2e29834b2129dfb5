"""A reflector against a faulty server, in virtual time: how often it sends requests, and what its consumers get."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from typing import Any

import pytest

from poolhouse.runtime.api import Api
from poolhouse.runtime.reflector import is_older
from tests.runtime.faulty_server import Hangup, Request, Server, bookmark, status, thing, things
from tests.runtime.informers import Cluster, View, informer_of, names, running


async def test_a_list_is_read_in_pages_and_watched_from_its_version(server: Server, api: Api) -> None:
    async def script(request: Request) -> None:
        if request.watching:
            await request.begin()
            await request.hang()
        if "continue" in request.query:
            assert request.query["continue"] == "two"
            await request.answer(200, things(10, thing("c", 3)))
        else:
            assert request.query["limit"] == "2"
            await request.answer(200, things(10, thing("a", 1), thing("b", 2), more="two"))

    server.script = script
    informer = informer_of(api, page=2)
    async with running(informer) as seen:
        await informer.synced()
        assert names(informer) == ["a", "b", "c"]
        assert seen == [("new", "a"), ("new", "b"), ("new", "c")]
        await asyncio.sleep(1)
        assert server.watches[0].query["resourceVersion"] == "10"
        assert server.watches[0].query["allowWatchBookmarks"] == "true"


async def test_a_watch_resumes_from_the_last_bookmark(server: Server, api: Api) -> None:
    cluster = Cluster(server, thing("a", 1))

    async def watch(request: Request) -> None:
        await request.begin()
        if len(server.watches) == 1:
            await request.event("BOOKMARK", bookmark(500))
            await asyncio.sleep(60)
            await request.end()
            return
        await request.hang()

    cluster.watch = watch
    async with running(informer_of(api)):
        await asyncio.sleep(70)
        assert [request.query["resourceVersion"] for request in server.watches] == ["10", "500"]
        assert len(server.lists) == 1


async def test_the_next_full_list_finds_missed_events(server: Server, api: Api) -> None:
    cluster = Cluster(server, thing("a", 1), thing("b", 2))
    informer = informer_of(api)
    async with running(informer) as seen:
        await asyncio.sleep(60)
        cluster.items, cluster.version = [thing("b", 2), thing("c", 20)], 30
        await asyncio.sleep(3600)
        assert names(informer) == ["b", "c"]
        assert seen[2:] == [("gone", "a"), ("new", "c")]
        assert len(server.lists) <= 3


async def test_a_watch_that_closes_at_once_is_not_a_hot_loop(server: Server, api: Api) -> None:
    cluster = Cluster(server, thing("a", 1))

    async def watch(request: Request) -> None:
        await request.begin()
        await request.end()

    cluster.watch = watch
    async with running(informer_of(api)):
        await asyncio.sleep(600)
    assert server.most_in(1) <= 4
    assert server.most_in(60) <= 14
    assert len(server.lists) == 1, "an early end causes no list"


async def test_a_watch_that_closes_after_one_event_is_not_a_hot_loop(server: Server, api: Api) -> None:
    cluster = Cluster(server)

    async def watch(request: Request) -> None:
        last = int(request.query["resourceVersion"])
        await request.begin()
        await request.event("ADDED", thing(f"t{last + 1}", last + 1))
        await request.end()

    cluster.watch = watch
    informer = informer_of(api)
    async with running(informer):
        await asyncio.sleep(60)
    assert server.most_in(1) <= 4
    assert len(informer.store) == len(server.watches) >= 60, "the store keeps up at about two events a second"


async def test_a_refusal_is_over_when_the_next_watch_is_accepted(server: Server, api: Api) -> None:
    cluster = Cluster(server, thing("a", 1))

    async def watch(request: Request) -> None:
        if len(server.watches) == 1:
            await request.answer(403, {"kind": "Status", "code": 403, "message": "the rights are not loaded yet"})
            return
        await request.begin()
        await request.hang()

    cluster.watch = watch
    informer = informer_of(api)
    async with running(informer):
        await asyncio.sleep(0.1)
        assert "the rights are not loaded yet" in (informer.problem or "")
        await asyncio.sleep(10)
        assert informer.problem is None, "nothing happens in the cluster, and no bookmark has come"


async def test_a_watch_resumes_after_a_reset(server: Server, api: Api) -> None:
    cluster = Cluster(server, thing("a", 1))

    async def watch(request: Request) -> None:
        await request.begin()
        if len(server.watches) == 1:
            await request.event("ADDED", thing("b", 11))
            await request.chunk(b'{"type":"ADDED","object":{"metadata":{"na')
            await asyncio.sleep(1)
            request.reset()
            raise Hangup
        await request.event("ADDED", thing("c", 12))
        await request.hang()

    cluster.watch = watch
    informer = informer_of(api)
    async with running(informer):
        await asyncio.sleep(10)
        assert names(informer) == ["a", "b", "c"]
        assert server.watches[1].query["resourceVersion"] == "11"
        assert len(server.lists) == 1


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"type":"ADDED","object":{"metadata":{"na', id="truncated"),
        pytest.param(b"<html>Bad gateway</html>\n", id="html"),
        pytest.param(b"null\n", id="null"),
        pytest.param(b'{"type":"ADDED"}\n', id="without an object"),
        pytest.param(
            b'{"type":"ADDED","object":{"metadata":{"name":"x","namespace":"n"}}}\n', id="without a resourceVersion"
        ),
        pytest.param(b'{"type":"BOOKMARK","object":{"metadata":null}}\n', id="bookmark without metadata"),
        pytest.param(b"\xff\xfe\n", id="not UTF-8"),
    ],
)
async def test_an_invalid_line_ends_only_its_watch(server: Server, api: Api, line: bytes) -> None:
    cluster = Cluster(server, thing("a", 1))

    async def watch(request: Request) -> None:
        await request.begin()
        if len(server.watches) <= 3:
            await request.chunk(line)
            await request.end()
            return
        await request.event("ADDED", thing("b", 12))
        await request.hang()

    cluster.watch = watch
    informer = informer_of(api)
    async with running(informer):
        await asyncio.sleep(1)
        assert informer.problem
        await asyncio.sleep(20)
        assert names(informer) == ["a", "b"]
        assert server.most_in(1) <= 4
        assert informer.problem is None


async def test_an_empty_line_is_ignored(server: Server, api: Api) -> None:
    cluster = Cluster(server)

    async def watch(request: Request) -> None:
        await request.begin()
        await request.chunk(b"\n\r\n")
        await request.event("ADDED", thing("a", 11))
        await request.hang()

    cluster.watch = watch
    informer = informer_of(api)
    async with running(informer):
        await asyncio.sleep(1)
        assert names(informer) == ["a"]
        assert len(server.watches) == 1


async def test_a_silent_watch_is_resumed(server: Server, api: Api) -> None:
    """A half-open connection: the server is gone and no bookmark comes."""
    Cluster(server, thing("a", 1))
    async with running(informer_of(api)):
        await asyncio.sleep(600)
    assert 4 <= len(server.watches) <= 8
    assert {request.query["resourceVersion"] for request in server.watches} == {"10"}
    assert len(server.lists) == 1


async def test_a_hanging_list_is_retried(server: Server, api: Api) -> None:
    cluster = Cluster(server, thing("a", 1))

    async def list_(request: Request) -> None:
        if len(server.lists) <= 2:
            await request.hang()
        await request.answer(200, things(10, thing("a", 1)))

    cluster.list = list_
    informer = informer_of(api)
    async with running(informer):
        await asyncio.sleep(16)
        assert informer.problem is not None
        assert "deadline" in informer.problem
        async with asyncio.timeout(30):
            await informer.synced()


async def test_status_410_causes_a_list(server: Server, api: Api) -> None:
    cluster = Cluster(server, thing("a", 1))

    async def watch(request: Request) -> None:
        if len(server.watches) == 1:
            cluster.items, cluster.version = [thing("b", 20)], 30
            await request.answer(410, status(410, "Expired", "too old resource version"))
            return
        await request.begin()
        await request.hang()

    cluster.watch = watch
    informer = informer_of(api)
    async with running(informer) as seen:
        await asyncio.sleep(5)
        assert names(informer) == ["b"]
        assert seen[1:] == [("gone", "a"), ("new", "b")]
        assert server.watches[1].query["resourceVersion"] == "30"


@pytest.mark.parametrize("reason", ["Expired", "Gone"])
async def test_an_event_410_causes_a_list(server: Server, api: Api, reason: str) -> None:
    cluster = Cluster(server, thing("a", 1))

    async def watch(request: Request) -> None:
        await request.begin()
        if len(server.watches) == 1:
            cluster.items, cluster.version = [thing("a", 1), thing("b", 20)], 30
            await request.event("ERROR", status(410, reason))
        await request.hang()

    cluster.watch = watch
    informer = informer_of(api)
    async with running(informer):
        await asyncio.sleep(5)
        assert names(informer) == ["a", "b"]


async def test_repeated_410_causes_few_lists(server: Server, api: Api) -> None:
    cluster = Cluster(server, thing("a", 1))

    async def watch(request: Request) -> None:
        await request.answer(410, status(410, "Expired"))

    cluster.watch = watch
    async with running(informer_of(api)):
        await asyncio.sleep(600)
    assert server.most_in(1) <= 4
    assert server.most_in(60) <= 20


async def test_410_between_two_pages_restarts_the_list(server: Server, api: Api) -> None:
    async def script(request: Request) -> None:
        if request.watching:
            await request.begin()
            await request.hang()
        if "continue" in request.query and len(server.lists) == 2:
            await request.answer(410, status(410, "Expired", "the continue token is too old"))
        elif "continue" in request.query:
            await request.answer(200, things(20, thing("b", 2)))
        else:
            await request.answer(200, things(20, thing("a", 1), more="two"))

    server.script = script
    informer = informer_of(api)
    async with running(informer) as seen:
        await asyncio.sleep(5)
        assert names(informer) == ["a", "b"]
        assert seen == [("new", "a"), ("new", "b")], "an incomplete list changes nothing"


async def test_repeated_500_is_retried_with_growing_pauses(server: Server, api: Api) -> None:
    cluster = Cluster(server, thing("a", 1))
    healthy = cluster.list

    async def list_(request: Request) -> None:
        if request.at < 1000 + 120:
            await request.answer(500, b"etcdserver: leader changed")
        else:
            await healthy(request)

    cluster.list = list_
    informer = informer_of(api)
    async with running(informer):
        await asyncio.sleep(100)
        assert informer.problem is not None
        assert "etcdserver: leader changed" in informer.problem
        assert len(server.requests) <= 16
        assert server.most_in(1) <= 2
        await asyncio.sleep(60)
        assert names(informer) == ["a"]


async def test_retry_after_is_respected(server: Server, api: Api) -> None:
    cluster = Cluster(server, thing("a", 1))
    healthy = cluster.list

    async def list_(request: Request) -> None:
        if len(server.lists) == 1:
            await request.answer(429, status(429, "TooManyRequests"), {"Retry-After": "17"})
        else:
            await healthy(request)

    cluster.list = list_
    async with running(informer_of(api)):
        await asyncio.sleep(60)
    first, second = server.lists
    assert 17 <= second.at - first.at < 18


@pytest.mark.parametrize(
    ("code", "body"),
    [
        pytest.param(403, status(403, "Forbidden", "things is forbidden"), id="forbidden"),
        pytest.param(404, b"404 page not found", id="its CRD is missing"),
        pytest.param(200, {}, id="an empty object"),
        pytest.param(200, b"", id="an empty body"),
        pytest.param(200, things(""), id="a list without a resourceVersion"),
        pytest.param(200, {"metadata": {"resourceVersion": "1"}, "items": "many"}, id="items of the wrong type"),
        pytest.param(200, [], id="a list that is an array"),
        pytest.param(302, b"", id="a redirect"),
    ],
)
async def test_an_answer_that_is_not_a_list_is_retried_with_pauses(
    server: Server, api: Api, code: int, body: Any
) -> None:
    async def script(request: Request) -> None:
        await request.answer(code, body, {"Location": server.url + "/elsewhere"} if code == 302 else None)

    server.script = script
    informer = informer_of(api)
    async with running(informer):
        await asyncio.sleep(600)
        assert not informer.is_synced
        assert informer.problem
    assert server.most_in(1) <= 2
    assert server.most_in(60) <= 14


async def test_a_server_restored_from_a_backup_is_listed(server: Server, api: Api) -> None:
    """etcd was restored from a backup: it does not know our resourceVersion."""
    cluster = Cluster(server, thing("a", 900), version=1000)

    async def watch(request: Request) -> None:
        if int(request.query["resourceVersion"]) > cluster.version:
            causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
            await request.answer(504, status(504, "Timeout", "Too large resource version: 1000", causes=causes))
            return
        await request.begin()
        await request.event("ADDED", thing("c", cluster.version + 1))
        await asyncio.sleep(50)
        await request.end()

    cluster.watch = watch
    informer = informer_of(api)
    async with running(informer):
        await asyncio.sleep(10)
        cluster.items, cluster.version = [thing("a", 90, size=7), thing("b", 95)], 100
        await asyncio.sleep(120)
        assert names(informer) == ["a", "b", "c"]
        assert informer.store.get(("n", "a")) == View("a", 7), "a list counts, however old its versions are"


async def test_repeated_refusals_of_a_watch_cause_a_list(server: Server, api: Api) -> None:
    cluster = Cluster(server, thing("a", 1))

    async def watch(request: Request) -> None:
        await request.answer(500, status(500, "InternalError", "cannot decode your resourceVersion"))

    cluster.watch = watch
    async with running(informer_of(api)):
        await asyncio.sleep(120)
    assert len(server.lists) >= 2
    assert server.most_in(60) <= 20


@pytest.mark.parametrize(
    ("events", "left"),
    [
        pytest.param([("ADDED", 11, 1), ("ADDED", 11, 1)], 1, id="the same twice"),
        pytest.param([("ADDED", 12, 2), ("MODIFIED", 11, 1)], 2, id="a late change"),
        pytest.param(
            [("ADDED", 11, 1), ("DELETED", 13, 1), ("MODIFIED", 12, 2)], None, id="a change after the deletion"
        ),
        pytest.param([("ADDED", 11, 1), ("DELETED", 12, 1), ("DELETED", 12, 1)], None, id="deleted twice"),
        pytest.param([("ADDED", 11, 1), ("ADDED", 15, 5), ("DELETED", 12, 1)], 5, id="a late deletion"),
        pytest.param([("DELETED", 11, 0)], None, id="the deletion of an unknown object"),
        pytest.param([("MODIFIED", 11, 3)], 3, id="a change of an unknown object"),
        pytest.param([("ADDED", 11, 1), ("DELETED", 12, 1), ("ADDED", 13, 4)], 4, id="created again"),
    ],
)
async def test_repeated_and_reordered_events_end_in_the_right_state(
    server: Server, api: Api, events: list[tuple[str, int, int]], left: int | None
) -> None:
    cluster = Cluster(server)
    cluster.events = [(kind, thing("a", version, size=size)) for kind, version, size in events]
    informer = informer_of(api)
    async with running(informer):
        await asyncio.sleep(1)
        found = informer.store.get(("n", "a"))
        assert (found.size if found else None) == left


@pytest.mark.parametrize(
    ("number", "than", "expected"),
    [("9", "10", True), ("10", "9", False), ("10", "10", False), ("abc", "10", False), ("9", "x1", False)],
)
def test_only_numeric_versions_are_compared(number: str, than: str, expected: bool) -> None:
    assert is_older(number, than) is expected


async def test_an_object_of_three_megabytes_in_a_thousand_pieces(server: Server, api: Api) -> None:
    cluster = Cluster(server)
    big = thing("big", 11, size=1, text="x" * 3_000_000)

    async def watch(request: Request) -> None:
        line = json.dumps({"type": "ADDED", "object": big}).encode() + b"\n"
        await request.begin()
        for start in range(0, len(line), 3001):
            await request.chunk(line[start : start + 3001])
        await request.event("ADDED", thing("after", 12))
        await request.hang()

    cluster.watch = watch
    informer = informer_of(api)
    async with running(informer):
        await asyncio.sleep(5)
        assert names(informer) == ["after", "big"]


async def test_a_line_without_end_ends_the_watch(server: Server, api: Api) -> None:
    cluster = Cluster(server)

    async def watch(request: Request) -> None:
        await request.begin()
        while True:
            await request.chunk(b"x" * 2**20)

    cluster.watch = watch
    informer = informer_of(api)
    async with running(informer):
        async with asyncio.timeout(600):
            while "longer than" not in str(informer.problem):  # noqa: ASYNC110
                await asyncio.sleep(0.2)


async def test_ten_thousand_objects_neither_block_the_loop_nor_stay_in_memory(server: Server, api: Api) -> None:
    """Measures the CPU time of each step of the event loop: it continues between pages, and documents are freed."""
    document = thing("x", 1, filler=["some text that is not small"] * 150)  # 5 KB
    gap = 0.0

    async def script(request: Request) -> None:
        if request.watching:
            await request.begin()
            await request.hang()
        start = int(request.query.get("continue", 0))
        end = start + int(request.query["limit"])
        items = [document | {"metadata": thing(f"t{i}", i + 1)["metadata"]} for i in range(start, end)]
        await request.answer(200, things(20_000, *items, more=str(end) if end < 10_000 else ""))

    async def tick() -> None:
        nonlocal gap
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            gap, last = max(gap, now - last), now

    server.script = script
    informer = informer_of(api)
    ticking = asyncio.create_task(tick())
    async with running(informer):
        await informer.synced()
        ticking.cancel()
        assert len(informer.store) == 10_000
        assert gap < 1.0
        gc.collect()
        kept = sum(1 for each in gc.get_objects() if isinstance(each, dict) and "filler" in each)
        assert kept < 10


async def test_only_a_running_informer_has_the_metric_of_its_last_contact(server: Server, api: Api) -> None:
    def shown() -> set[str]:
        metrics = (api.metrics.informer_contact, api.metrics.informer_objects)
        return {sample.name for each in metrics for family in each.collect() for sample in family.samples}

    Cluster(server, thing("a", 1))
    informer = informer_of(api)
    assert shown() == set(), "a standby never runs what only a leader follows"
    async with running(informer):
        await informer.synced()
        assert len(shown()) == 2
    assert shown() == set(), "one that does not run any more is not stale"


async def test_an_informer_without_contact_is_stale_since_its_start(server: Server, api: Api) -> None:
    async def script(request: Request) -> None:
        await request.answer(403, status(403, "Forbidden"))

    server.script = script
    began = time.time()
    async with running(informer_of(api)):
        await asyncio.sleep(1)
        (sample,) = next(iter(api.metrics.informer_contact.collect())).samples
        assert began <= sample.value <= time.time()


async def test_metrics_of_two_informers_of_one_plural(server: Server, api: Api) -> None:
    class Ticking(Cluster):
        async def watch(self, request: Request) -> None:
            await request.begin()
            while True:
                await asyncio.sleep(60)
                await request.event("BOOKMARK", bookmark(self.version))

    Ticking(server, thing("a", 1))
    async with running(informer_of(api)):
        async with running(informer_of(api)):
            await asyncio.sleep(1)
        await asyncio.sleep(61)
        (sample,) = next(iter(api.metrics.informer_contact.collect())).samples
        assert sample.labels == {"resource": "things"}
