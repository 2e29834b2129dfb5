"""A kind that comes and goes, of a server that is scripted; times are virtual."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from poolhouse.runtime.api import Api
from poolhouse.runtime.optional_informer import POLL_SECONDS, OptionalInformer
from tests.runtime.faulty_server import THINGS, Hangup, Request, Server, status, thing, things

SERVED = {"resources": [{"name": "things"}]}
A_WHILE = 20 * POLL_SECONDS


class Kind:
    """Served or not, with its objects; away is a server that fails whatever it is asked, and forbidden one that refuses
    to list the objects."""

    def __init__(self, server: Server) -> None:
        self.served = True
        self.away = self.forbidden = False
        self.items = [thing("a", 1)]
        self._gone = asyncio.Event()
        server.script = self

    def goes(self) -> None:
        self.served = False
        self._gone.set()
        self._gone = asyncio.Event()

    async def __call__(self, request: Request) -> None:
        if self.away:
            await request.answer(500, status(500, "InternalError"))
        elif not self.served:
            await request.answer(404, status(404, "NotFound"))
        elif self.forbidden and request.path != "/apis/test.dev/v1":
            await request.answer(403, status(403, "Forbidden"))
        elif request.watching:
            await request.begin()
            await self._gone.wait()
            raise Hangup
        else:
            await request.answer(200, SERVED if request.path == "/apis/test.dev/v1" else things(10, *self.items))


@asynccontextmanager
async def looking(api: Api) -> AsyncIterator[tuple[OptionalInformer[str], list[bool]]]:
    optional: OptionalInformer[str] = OptionalInformer(api, THINGS, lambda document: str(document["metadata"]["name"]))
    told: list[bool] = []
    optional.subscribe(lambda: told.append(optional.served))
    task = asyncio.create_task(optional.run())
    try:
        yield optional, told
        assert not task.done(), "it looks for ever"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def seen(optional: OptionalInformer[Any]) -> tuple[bool, bool, list[str]]:
    return optional.known, optional.served, optional.all


async def test_a_resource_that_appears_disappears_and_appears_again(server: Server, api: Api) -> None:
    kind = Kind(server)
    kind.served = False
    async with looking(api) as (optional, told):
        assert seen(optional) == (False, False, [])
        assert await optional.settled(1), "it is known that the resource is not served"
        await asyncio.sleep(1)
        assert (seen(optional), told) == ((True, False, []), [False])
        kind.served = True
        await asyncio.sleep(A_WHILE)
        assert seen(optional) == (True, True, ["a"])
        assert optional.get("a", "n") == "a"
        kind.goes()
        await asyncio.sleep(A_WHILE)
        assert (seen(optional), told[-1]) == ((True, False, []), False)
        kind.items = [thing("b", 1)]
        kind.served = True
        await asyncio.sleep(A_WHILE)
        assert (seen(optional), told[-1]) == ((True, True, ["b"]), True)


async def test_who_asks_whether_a_resource_is_served_hears_of_no_object(server: Server, api: Api) -> None:
    Kind(server)
    served, objects = list[bool](), list[str | None]()
    async with looking(api) as (optional, told):
        optional.subscribe_served(lambda: served.append(optional.served))
        optional.subscribe_objects(lambda old, new: objects.append(new))
        await asyncio.sleep(1)
        assert (served, objects, told) == ([True], ["a"], [True, True])


async def test_a_resource_that_is_served_soon_is_found_soon(server: Server, api: Api) -> None:
    """A stack that starts serves its resources one after another."""
    kind = Kind(server)
    kind.served = False
    async with looking(api) as (optional, _):
        await asyncio.sleep(3)
        kind.served = True
        await asyncio.sleep(3)
        assert seen(optional) == (True, True, ["a"])


async def test_an_absent_resource_is_not_looked_for_often(server: Server, api: Api) -> None:
    kind = Kind(server)
    kind.served = False
    async with looking(api):
        await asyncio.sleep(A_WHILE)
        server.requests.clear()
        await asyncio.sleep(A_WHILE)
        assert len(server.requests) <= 1.5 * A_WHILE / POLL_SECONDS


async def test_a_failing_server_does_not_count_as_an_absent_resource(server: Server, api: Api) -> None:
    kind = Kind(server)
    async with looking(api) as (optional, told):
        await asyncio.sleep(1)
        kind.goes()
        kind.served, kind.away = True, True
        await asyncio.sleep(A_WHILE)
        assert seen(optional) == (True, True, ["a"])
        kind.away = False
        await asyncio.sleep(A_WHILE)
        assert seen(optional) == (True, True, ["a"])
        assert False not in told


async def test_nobody_waits_for_a_resource_without_the_right_to_list_it(server: Server, api: Api) -> None:
    kind = Kind(server)
    kind.forbidden = True
    async with looking(api) as (optional, _):
        began = asyncio.get_running_loop().time()
        assert not await optional.settled(60)
        assert asyncio.get_running_loop().time() - began < 1
        assert seen(optional) == (False, False, [])
        kind.forbidden = False
        await asyncio.sleep(A_WHILE)
        assert seen(optional) == (True, True, ["a"]), "somebody has granted the right"


async def test_users_that_share_it_have_one_watch_and_the_last_one_keeps_it(server: Server, api: Api) -> None:
    Kind(server)
    async with looking(api) as (optional, _):
        first = asyncio.create_task(optional.run())
        second = asyncio.create_task(optional.run())
        await asyncio.sleep(10)
        assert (seen(optional), len(server.watches)) == ((True, True, ["a"]), 1)
        first.cancel()
        await asyncio.sleep(10)
        assert len(server.watches) == 1, "the one that has the watch works on"
    await asyncio.sleep(1)
    assert seen(optional) == (True, True, ["a"]), "another user goes on"
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert seen(optional) == (False, False, [])


async def test_an_informer_that_runs_again_waits_for_its_new_list(server: Server, api: Api) -> None:
    kind = Kind(server)
    async with looking(api) as (optional, _):
        assert await optional.settled(60)
    kind.away = True
    task = asyncio.create_task(optional.run())
    try:
        assert not await optional.settled(1)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_synced_informer_needs_no_discovery(server: Server, api: Api) -> None:
    Kind(server)
    async with looking(api):
        await asyncio.sleep(1)
        server.requests.clear()
        await asyncio.sleep(A_WHILE)
        assert not [each for each in server.requests if each.path == "/apis/test.dev/v1"]


async def test_a_later_run_starts_without_objects(server: Server, api: Api) -> None:
    Kind(server)
    async with looking(api) as (optional, _):
        await asyncio.sleep(1)
        assert seen(optional) == (True, True, ["a"])
    assert seen(optional) == (False, False, [])


async def test_objects_are_found_by_an_index_and_followed(server: Server, api: Api) -> None:
    Kind(server)
    optional: OptionalInformer[str] = OptionalInformer(
        api, THINGS, lambda document: str(document["metadata"]["name"]), indexes={"first": lambda name: [name[0]]}
    )
    changes: list[tuple[str | None, str | None]] = []
    optional.subscribe_objects(lambda old, new: changes.append((old, new)))
    assert optional.by("first", "a") == []
    task = asyncio.create_task(optional.run())
    try:
        assert await optional.settled(60)
        assert (optional.by("first", "a"), optional.by("first", "b")) == (["a"], [])
        assert changes == [(None, "a")]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
