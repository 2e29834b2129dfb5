"""Informers against a faulty server, in virtual time: how often they send requests, and what their stores hold."""

from __future__ import annotations

import asyncio
import gc
import json
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from runtime.api import Api
from runtime.informer import Informer, shared_reflectors
from runtime.reflector import is_older
from tests.runtime.faulty_server import THINGS, Hangup, Request, Server, bookmark, status, thing, things


@dataclass(frozen=True)
class View:
    name: str
    size: int


def view(document: dict[str, Any]) -> View:
    return View(document["metadata"]["name"], document["spec"].get("size", 0))


class Seen(list[tuple[str, str]]):
    """The changes that a handler got."""

    def __call__(self, old: View | None, new: View | None) -> None:
        what = "new" if old is None else "gone" if new is None else "changed"
        known = new or old
        assert known is not None
        self.append((what, known.name))


@asynccontextmanager
async def running(informer: Informer[View]) -> AsyncIterator[Seen]:
    seen = Seen()
    informer.subscribe(seen)
    task = asyncio.create_task(informer.run())
    try:
        yield seen
        assert not task.done(), "run() does not return"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def informer_of(api: Api, **options: Any) -> Informer[View]:
    return Informer(api, THINGS, view, **options)


def names(informer: Informer[View]) -> list[str]:
    return sorted(each.name for each in informer.store.all())


class Cluster:
    """A correct server, which a test makes wrong in one place. Watches send `events` and stay open."""

    def __init__(self, server: Server, *items: dict[str, Any], version: int = 10) -> None:
        self.items = list(items)
        self.version = version
        self.events: list[tuple[str, dict[str, Any]]] = []
        server.script = self

    async def __call__(self, request: Request) -> None:
        await (self.watch(request) if request.watching else self.list(request))

    async def list(self, request: Request) -> None:
        await request.answer(200, things(self.version, *self.items))

    async def watch(self, request: Request) -> None:
        await request.begin()
        for kind, document in self.events:
            await request.event(kind, document)
        await request.hang()


# What it should do


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


async def test_events_change_the_store_and_its_indexes(server: Server, api: Api) -> None:
    cluster = Cluster(server, thing("a", 1, size=1), thing("b", 2, size=1))
    cluster.events = [
        ("ADDED", thing("c", 11, size=2)),
        ("MODIFIED", thing("a", 12, size=2)),
        ("DELETED", thing("b", 13, size=1)),
    ]
    informer = informer_of(api, indexes={"size": lambda v: [v.size]})
    async with running(informer) as seen:
        await asyncio.sleep(1)
        assert sorted(v.name for v in informer.store.by("size", 2)) == ["a", "c"]
        assert informer.store.by("size", 1) == []
        assert informer.store.get(("n", "b")) is None
        assert seen[2:] == [("new", "c"), ("changed", "a"), ("gone", "b")]


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

    cluster.watch = watch  # type: ignore[method-assign]
    async with running(informer_of(api)):
        await asyncio.sleep(70)
        assert [request.query["resourceVersion"] for request in server.watches] == ["10", "500"]
        assert len(server.lists) == 1


async def test_a_change_outside_of_the_view_is_not_reported(server: Server, api: Api) -> None:
    cluster = Cluster(server, thing("a", 1, size=1))
    cluster.events = [("MODIFIED", thing("a", 11, size=1, heartbeat=1))]
    async with running(informer_of(api)) as seen:
        await asyncio.sleep(1)
        assert seen == [("new", "a")]


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


# A server that hangs up


async def test_a_watch_that_closes_at_once_is_not_a_hot_loop(server: Server, api: Api) -> None:
    cluster = Cluster(server, thing("a", 1))

    async def watch(request: Request) -> None:
        await request.begin()
        await request.end()

    cluster.watch = watch  # type: ignore[method-assign]
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

    cluster.watch = watch  # type: ignore[method-assign]
    informer = informer_of(api)
    async with running(informer):
        await asyncio.sleep(60)
    assert server.most_in(1) <= 4
    assert len(informer.store) == len(server.watches) >= 60, "the store keeps up at about two events a second"


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

    cluster.watch = watch  # type: ignore[method-assign]
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

    cluster.watch = watch  # type: ignore[method-assign]
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

    cluster.watch = watch  # type: ignore[method-assign]
    informer = informer_of(api)
    async with running(informer):
        await asyncio.sleep(1)
        assert names(informer) == ["a"]
        assert len(server.watches) == 1


# A server that says nothing


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

    cluster.list = list_  # type: ignore[method-assign]
    informer = informer_of(api)
    async with running(informer):
        await asyncio.sleep(16)
        assert informer.problem is not None
        assert "deadline" in informer.problem
        async with asyncio.timeout(30):
            await informer.synced()


# A server that refuses


async def test_status_410_causes_a_list(server: Server, api: Api) -> None:
    cluster = Cluster(server, thing("a", 1))

    async def watch(request: Request) -> None:
        if len(server.watches) == 1:
            cluster.items, cluster.version = [thing("b", 20)], 30
            await request.answer(410, status(410, "Expired", "too old resource version"))
            return
        await request.begin()
        await request.hang()

    cluster.watch = watch  # type: ignore[method-assign]
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

    cluster.watch = watch  # type: ignore[method-assign]
    informer = informer_of(api)
    async with running(informer):
        await asyncio.sleep(5)
        assert names(informer) == ["a", "b"]


async def test_repeated_410_causes_few_lists(server: Server, api: Api) -> None:
    cluster = Cluster(server, thing("a", 1))

    async def watch(request: Request) -> None:
        await request.answer(410, status(410, "Expired"))

    cluster.watch = watch  # type: ignore[method-assign]
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

    cluster.list = list_  # type: ignore[method-assign]
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

    cluster.list = list_  # type: ignore[method-assign]
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


async def test_views_stay_while_the_kind_is_not_served(server: Server, api: Api) -> None:
    """An upgrade of KubeVirt replaces its CRDs. An empty store would make every pool replace its VMs."""
    cluster = Cluster(server, thing("a", 1))
    gone = False

    async def script(request: Request) -> None:
        if gone:
            await request.answer(404, b"404 page not found")
        elif request.watching:
            await request.begin()
            await asyncio.sleep(40)
            await request.end()
        else:
            await cluster.list(request)

    server.script = script
    informer = informer_of(api)
    async with running(informer) as seen:
        await asyncio.sleep(20)
        gone = True
        await asyncio.sleep(300)
        assert names(informer) == ["a"]
        assert informer.problem is not None
        gone = False
        await asyncio.sleep(60)
        assert informer.problem is None
        assert seen == [("new", "a")]


# A server that is wrong


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

    cluster.watch = watch  # type: ignore[method-assign]
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

    cluster.watch = watch  # type: ignore[method-assign]
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


async def test_an_unreadable_object_does_not_hide_others(server: Server, api: Api) -> None:
    cluster = Cluster(server, thing("a", 1), thing("bad", 2, size=None), {"metadata": None}, thing("b", 3))

    def strict(document: dict[str, Any]) -> View:
        return View(document["metadata"]["name"], document["spec"].get("size", 0) + 0)

    cluster.events = [("MODIFIED", thing("a", 11, size=None)), ("ADDED", thing("c", 12))]
    informer = Informer(api, THINGS, strict)
    async with running(informer) as seen:
        await asyncio.sleep(1)
        assert names(informer) == ["a", "b", "c"], "the last readable view of it stays"
        cluster.items = [thing("a", 11, size=None), thing("b", 3), thing("c", 12)]
        await asyncio.sleep(3600)
        assert names(informer) == ["a", "b", "c"]
        assert ("gone", "a") not in seen


async def test_a_failing_handler_stops_neither_others_nor_the_informer(server: Server, api: Api) -> None:
    Cluster(server, thing("a", 1)).events = [("ADDED", thing("b", 11))]
    informer = informer_of(api)

    def failing(old: View | None, new: View | None) -> None:
        raise RuntimeError("no")

    informer.subscribe(failing)
    async with running(informer) as seen:
        await asyncio.sleep(1)
        assert seen == [("new", "a"), ("new", "b")]


async def test_a_late_handler_is_told_about_all_views(server: Server, api: Api) -> None:
    Cluster(server, thing("a", 1), thing("b", 2))
    informer = informer_of(api)
    async with running(informer):
        await informer.synced()
        late = Seen()
        informer.subscribe(late)
        assert late == [("new", "a"), ("new", "b")]


# Several who share


@asynccontextmanager
async def together(*informers: Informer[Any]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(feed.run()) for feed in shared_reflectors(informers)]
    try:
        yield
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def labelled(name: str, version: int, **labels: str) -> dict[str, Any]:
    document = thing(name, version)
    document["metadata"]["labels"] = labels
    return document


def size(document: dict[str, Any]) -> int:
    return int(document["spec"].get("size", 0))


async def test_informers_that_share_a_reflector_keep_their_own_views(server: Server, api: Api) -> None:
    cluster = Cluster(server, thing("a", 1, size=1))
    cluster.events = [("MODIFIED", thing("a", 11, size=2)), ("ADDED", thing("b", 12)), ("DELETED", thing("b", 13))]
    views, sizes = informer_of(api), Informer(api, THINGS, size)
    seen = Seen()
    views.subscribe(seen)
    async with together(views, sizes):
        await asyncio.gather(views.synced(), sizes.synced())
        await asyncio.sleep(1)
        assert (len(server.lists), len(server.watches)) == (1, 1)
        assert views.store.all() == [View("a", 2)]
        assert sizes.store.all() == [2]
        assert seen == [("new", "a"), ("changed", "a"), ("new", "b"), ("gone", "b")]
        assert views.problem is sizes.problem is None


async def test_an_object_without_the_label_leaves_the_selecting_informer(server: Server, api: Api) -> None:
    cluster = Cluster(server, labelled("a", 1, warm="yes"), labelled("b", 2))
    cluster.events = [
        ("MODIFIED", labelled("a", 11)),
        ("MODIFIED", labelled("b", 12, warm="yes")),
        ("ADDED", labelled("c", 13)),
        ("DELETED", labelled("c", 14)),
    ]
    every, warm = informer_of(api), informer_of(api, label_selector="warm")
    seen = Seen()
    warm.subscribe(seen)
    async with together(every, warm):
        await asyncio.sleep(1)
        assert "labelSelector" not in server.watches[0].query
        assert names(every) == ["a", "b"]
        assert names(warm) == ["b"]
        assert seen == [("new", "a"), ("gone", "a"), ("new", "b")]


async def test_the_next_list_finds_a_lost_label(server: Server, api: Api) -> None:
    cluster = Cluster(server, labelled("a", 1, warm="yes"))
    every, warm = informer_of(api), informer_of(api, label_selector="warm")
    async with together(every, warm):
        await asyncio.sleep(60)
        cluster.items, cluster.version = [labelled("a", 20)], 30
        await asyncio.sleep(3600)
        assert names(every) == ["a"]
        assert names(warm) == []


@pytest.mark.parametrize(
    ("selectors", "asked"),
    [
        pytest.param([None, None, "warm"], [None], id="one informer wants all objects"),
        pytest.param(["warm", "warm"], ["warm"], id="all informers select the same objects"),
        pytest.param(["warm", "cold"], ["cold", "warm"], id="informers select different objects"),
    ],
)
async def test_the_server_selects_if_no_informer_wants_all_objects(
    server: Server, api: Api, selectors: list[str | None], asked: list[str | None]
) -> None:
    Cluster(server)
    async with together(*(informer_of(api, label_selector=each) for each in selectors)):
        await asyncio.sleep(1)
        for requests in (server.lists, server.watches):
            assert sorted((each.query.get("labelSelector") for each in requests), key=str) == asked


async def test_an_informer_of_one_object_requests_only_that_object(server: Server, api: Api) -> None:
    Cluster(server)
    async with together(informer_of(api), informer_of(api, name="a")):
        await asyncio.sleep(1)
        for requests in (server.lists, server.watches):
            assert sorted(each.query.get("fieldSelector", "") for each in requests) == ["", "metadata.name=a"]


async def test_a_failing_view_does_not_affect_sharing_informers(server: Server, api: Api) -> None:
    cluster = Cluster(server, thing("a", 1), thing("bad", 2, size="x"))
    cluster.events = [("MODIFIED", thing("a", 11, size="y")), ("ADDED", thing("c", 12))]
    sizes, views = Informer(api, THINGS, size), informer_of(api)
    async with together(sizes, views):
        await asyncio.sleep(1)
        assert names(views) == ["a", "bad", "c"]
        assert len(sizes.store) == 2, "the last readable view of a stays, and c is there"


async def test_documents_are_not_kept(server: Server, api: Api) -> None:
    class Document(dict[str, Any]):
        """A document that can be weakly referenced."""

    held = [Document(labelled("a", 1, warm="yes"))]
    end = weakref.ref(held[0])
    every, warm = informer_of(api), informer_of(api, label_selector="warm")
    shared_reflectors([every, warm])
    for informer in (every, warm):
        informer.change(("n", "a"), held[0])
    held.clear()
    assert names(every) == names(warm) == ["a"]
    assert end() is None


# Size


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

    cluster.watch = watch  # type: ignore[method-assign]
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

    cluster.watch = watch  # type: ignore[method-assign]
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
