"""Informers of things, and a server that lists and watches them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from poolhouse.runtime.api import Api
from poolhouse.runtime.informer import Informer
from tests.runtime.faulty_server import THINGS, Request, Server, things


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
