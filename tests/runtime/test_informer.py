"""Informers keep views of objects, tell handlers about changes and share reflectors."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from poolhouse.runtime.api import Api
from poolhouse.runtime.informer import Informer, shared_reflectors
from tests.runtime.faulty_server import THINGS, Request, Server, thing
from tests.runtime.informers import Cluster, Seen, View, informer_of, names, running


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


async def test_a_change_outside_of_the_view_is_not_reported(server: Server, api: Api) -> None:
    cluster = Cluster(server, thing("a", 1, size=1))
    cluster.events = [("MODIFIED", thing("a", 11, size=1, heartbeat=1))]
    async with running(informer_of(api)) as seen:
        await asyncio.sleep(1)
        assert seen == [("new", "a")]


@pytest.mark.parametrize(
    ("answer", "ends"),
    [
        pytest.param((404, b"404 page not found"), True, id="the kind is not served"),
        pytest.param((503, b"etcd has no leader"), False, id="the API server fails"),
    ],
)
async def test_a_start_does_not_wait_for_kinds_that_are_not_served(
    server: Server, api: Api, answer: tuple[int, bytes], ends: bool
) -> None:
    async def script(request: Request) -> None:
        await request.answer(*answer)

    server.script = script
    informer = informer_of(api)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(informer.run())
        answered = group.create_task(informer.answered())
        await asyncio.sleep(5)
        assert (answered.done(), informer.is_synced) == (ends, False)
        for each in (running, answered):
            each.cancel()


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


async def test_an_object_that_no_index_can_read_does_not_stop_the_others(server: Server, api: Api) -> None:
    def by_size(view: View) -> list[Any]:
        if view.size == 2:
            raise TypeError("unhashable")
        return [view.size]

    cluster = Cluster(server, thing("a", 1, size=1), thing("b", 2, size=2))
    cluster.events = [
        ("MODIFIED", thing("a", 11, size=2)),
        ("ADDED", thing("c", 12, size=3)),
        ("DELETED", thing("a", 13, size=2)),
    ]
    informer = informer_of(api, indexes={"size": by_size})
    async with running(informer) as seen:
        await asyncio.sleep(1)
        assert seen == [("new", "a"), ("new", "c"), ("gone", "a")]
        assert [view.name for view in informer.store.by("size", 3)] == ["c"]
        assert informer.problem is None


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


async def test_informers_share_a_reflector_if_they_select_by_the_same_field(server: Server, api: Api) -> None:
    Cluster(server)
    async with together(*(informer_of(api, field_selector=each) for each in ("spec.node=a", "spec.node=a", None))):
        await asyncio.sleep(1)
        for requests in (server.lists, server.watches):
            assert sorted(each.query.get("fieldSelector", "") for each in requests) == ["", "spec.node=a"]


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
