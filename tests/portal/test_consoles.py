"""Which consoles are open, for whom, and when they end, as tables. An API server that is away answers all requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from poolhouse.portal.console_pages import is_namespace
from poolhouse.portal.consoles import (
    ALL_NAMESPACES,
    IDLE_SECONDS,
    MAX_REQUESTS,
    PER_USER,
    Consoles,
    Entry,
    Full,
    new_frame,
    new_scope,
    room,
)
from poolhouse.portal.session import Session
from poolhouse.portal.settings import Settings
from poolhouse.portal.users import Users
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Unavailable, Unreachable
from tests.portal.test_decisions import read
from tests.runtime.faulty_server import Request, Server, status
from tests.waiting import eventually

NOW = 1_800_000_000
ANN = Session("oidc:ann", "ann", ("oidc:students",), NOW + 300, NOW + 3600, "token-1", id="a")
BOB = replace(ANN, user="oidc:bob", subject="bob", id="b")


def entry(session: Session = ANN, namespace: str = "shop", used: float = NOW, uses: int = 0) -> Entry:
    return Entry(session, namespace, used, asyncio.Future(loop=asyncio.new_event_loop()), uses)


@pytest.mark.parametrize(
    ("found", "now", "ends"),
    [
        pytest.param(entry(), NOW + 10, False, id="just used"),
        pytest.param(entry(), NOW + IDLE_SECONDS - 1, False, id="idle for a while"),
        pytest.param(entry(), NOW + IDLE_SECONDS, True, id="idle for too long"),
        pytest.param(entry(replace(ANN, expires=NOW + 9000), uses=1), NOW + 3000, False, id="a page is open"),
        pytest.param(entry(uses=1), NOW + 300, True, id="no watch outlives its ID token"),
        pytest.param(entry(replace(ANN, expires=NOW + 9000), uses=1), NOW + 3600, True, id="it ends with the session"),
    ],
)
def test_a_console_ends(found: Entry, now: float, ends: bool) -> None:
    assert found.must_end(now) is ends


def test_browsers_renew_the_session_once_before_its_token_ends() -> None:
    found = entry()
    assert not found.must_renew(ANN.expires - 61)
    assert found.must_renew(ANN.expires - 60)
    found.told = ANN.expires
    assert not found.must_renew(ANN.expires - 10)
    found.session = replace(ANN, expires=NOW + 600)
    assert found.must_renew(NOW + 595)


MINE = [entry(namespace=str(number), used=NOW + number) for number in range(PER_USER)]
BUSY = [replace(each, uses=1) for each in MINE]
OTHERS = [entry(replace(BOB, subject=str(number)), used=NOW + number, uses=1) for number in range(5)]


@pytest.mark.parametrize(
    ("entries", "limit", "ends"),
    [
        pytest.param([], 1, None, id="the first"),
        pytest.param(MINE[1:], 9, None, id="there is room"),
        pytest.param(MINE, 9, MINE[0], id="the user's own that was not used for longest"),
        pytest.param([BUSY[0], *MINE[1:]], 9, MINE[1], id="not one whose page is open"),
        pytest.param(BUSY, 9, f"open for {', '.join(each.namespace for each in MINE)}", id="all pages are open"),
        pytest.param([*OTHERS, MINE[1]], 6, MINE[1], id="one that nobody looks at"),
        pytest.param(OTHERS, 5, "5 consoles are open", id="all are looked at"),
        pytest.param([*BUSY, entry(BOB)], 4, "You have the console open", id="a user displaces none of another"),
    ],
)
def test_a_console_needs_room(entries: list[Entry], limit: int, ends: Entry | str | None) -> None:
    if isinstance(ends, str):
        with pytest.raises(Full, match=ends):
            room(entries, ANN, limit)
    else:
        assert room(entries, ANN, limit) is ends


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        *((text, True) for text in ("shop", "a", "a-1", "a" * 63)),
        *((text, False) for text in ("", "-", "..", "a.b", "A", "a-", "a" * 64, "a/b", "a\n", "%2e")),
    ],
)
def test_a_namespace_is_one_label_of_a_path(text: str, allowed: bool) -> None:
    assert is_namespace(text) is allowed


def test_a_console_has_no_connection_but_that_of_its_user() -> None:
    with pytest.raises(AssertionError):
        asyncio.run(new_scope("shop").connect())
    assert new_scope(ALL_NAMESPACES).scope is None
    assert new_frame("shop").root == "/console/shop"


@dataclass
class Place:
    consoles: Consoles
    users: Users
    now: float = NOW

    def entries(self) -> list[Entry]:
        return [*self.consoles._entries.values()]

    async def open(self, session: Session = ANN, namespace: str = "shop") -> None:
        async with self.consoles.use(session, namespace):
            pass


class Open(Users):
    """Users whose API server never answers, so that consoles stay while they are opened."""

    def __init__(self, api: Api, settings: Settings, now: Any) -> None:
        super().__init__(api, None, settings, now)
        self.sessions: list[Any] = []

    def lasting_client(self, session: Any) -> Api:
        self.sessions.append(session)
        return Silent()


class Silent:
    async def request(self, *arguments: Any, **options: Any) -> None:
        await asyncio.Event().wait()


@pytest_asyncio.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Place]:
    """Consoles of which at most four are open."""
    (tmp_path / "sessionKey").write_text("k" * 32)
    users = Open(None, read(tmp_path), lambda: found.now)
    found = Place(Consoles(users, 4, lambda: found.now), users)
    running = asyncio.create_task(found.consoles.run())
    await asyncio.sleep(0)
    yield found
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_each_session_has_its_own(opened: Place) -> None:
    """Two sessions of one user may have different groups, so that not even they share what is read."""
    asking = [asyncio.create_task(opened.open(each)) for each in (ANN, BOB, replace(ANN, id="c"), ANN)]
    await asyncio.sleep(0.01)
    assert [each.key for each in opened.entries()] == [("a", "shop"), ("b", "shop"), ("c", "shop")]
    opened.consoles.end_session(ANN)
    assert [each.key for each in opened.entries()] == [("b", "shop"), ("c", "shop")]
    for each in (asking[0], asking[3]):
        with pytest.raises(Full, match="has been closed"):
            await each
    for each in asking:
        each.cancel()


async def test_a_console_has_the_newest_token_of_its_session(opened: Place) -> None:
    first = asyncio.create_task(opened.open())
    await asyncio.sleep(0.01)
    renewed = replace(ANN, token="token-2", expires=NOW + 600)
    more = [asyncio.create_task(opened.open(each)) for each in (renewed, ANN)]  # which was sent before
    await asyncio.sleep(0.01)
    (current,) = opened.users.sessions
    assert current().token == "token-2"
    for each in (first, *more):
        each.cancel()


async def test_a_console_answers_so_many_requests_at_once(opened: Place) -> None:
    asking = [asyncio.create_task(opened.open()) for _ in range(MAX_REQUESTS)]
    await asyncio.sleep(0.01)
    with pytest.raises(Full, match="16 pages of this console"):
        await opened.open()
    asking.pop().cancel()
    await asyncio.sleep(0.01)
    asking.append(asyncio.create_task(opened.open()))
    await asyncio.sleep(0.01)
    assert not asking[-1].done()
    for each in asking:
        each.cancel()


async def test_a_renewed_session_with_other_groups_gets_another_console(opened: Place) -> None:
    first = asyncio.create_task(opened.open())
    await asyncio.sleep(0.01)
    (before,) = opened.entries()
    second = asyncio.create_task(opened.open(replace(ANN, groups=(), expires=NOW + 600)))
    await asyncio.sleep(0.01)
    (after,) = opened.entries()
    assert after is not before
    assert after.session.groups == ()
    with pytest.raises(Full):
        await first
    second.cancel()


async def test_what_was_not_used_or_has_no_token_ends(opened: Place) -> None:
    asking = [asyncio.create_task(opened.open(each)) for each in (ANN, replace(BOB, expires=NOW + 9000))]
    await asyncio.sleep(0.01)
    opened.now = NOW + 300
    opened.consoles.sweep()
    assert [each.session.user for each in opened.entries()] == ["oidc:bob"]
    asking[1].cancel()
    await asyncio.wait(asking)
    opened.now += IDLE_SECONDS
    opened.consoles.sweep()
    assert opened.entries() == []


async def test_an_api_server_that_is_away_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "sessionKey").write_text("k" * 32)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        '{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "clusters": '
        '[{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "users": [{"name": "u", "user": {}}]}'
    )
    async with await Api.connect(kubeconfig, user_agent="tests", timeout_seconds=2) as api:
        users = Users(api, None, read(tmp_path), lambda: NOW)
        place = Place(Consoles(users, 4, lambda: NOW), users)
        with pytest.raises(Unavailable):  # the portal does not run yet, or ends
            await place.open()
        running = asyncio.create_task(place.consoles.run())
        await asyncio.sleep(0)
        with pytest.raises(Unreachable):
            await place.open()
        assert place.entries() == []
        running.cancel()
        await asyncio.wait([running])


# What the API server gets


class Cluster:
    """An API server with empty lists, whose watches end, and are refused then, once the test says so."""

    def __init__(self) -> None:
        self.ends, self.refuses = asyncio.Event(), False

    async def answer(self, request: Request) -> None:
        if request.path.endswith("/selfsubjectreviews"):
            await request.answer(201, {"status": {"userInfo": {"username": "oidc:ann"}}})
        elif request.method == "GET" and not request.watching:
            await request.answer(200, {"metadata": {"resourceVersion": "1"}, "items": []})
        elif not request.watching or self.refuses:
            await request.answer(403, status(403, "Forbidden"))
        else:
            await request.begin()
            await self.ends.wait()
            await request.end()


@dataclass
class Served:
    consoles: Consoles
    cluster: Cluster
    server: Server

    async def open(self, session: Session = ANN) -> None:
        async with self.consoles.use(session, "shop"):
            pass


@asynccontextmanager
async def served(folder: Path, mode: str) -> AsyncIterator[Served]:
    (folder / "sessionKey").write_text("k" * 32)
    cluster = Cluster()
    async with Server() as server, await server.connect(folder) as api:
        server.script = cluster.answer
        users = Users(api, None, read(folder, POOLHOUSE_PORTAL_MODE=mode), lambda: NOW)
        consoles = Consoles(users, 4, lambda: NOW)
        running = asyncio.create_task(consoles.run())
        await asyncio.sleep(0)
        yield Served(consoles, cluster, server)
        running.cancel()
        await asyncio.wait([running])


async def test_each_request_of_a_console_has_the_present_token_of_its_user(tmp_path: Path) -> None:
    async with served(tmp_path, "token") as found:
        await found.open()
        assert {each.headers["authorization"] for each in found.server.requests} == {"Bearer token-1"}
        await eventually(lambda: found.server.watches)
        await found.open(replace(ANN, token="token-2", expires=NOW + 600))
        before = len(found.server.requests)
        found.cluster.ends.set()
        await eventually(lambda: any(each.watching for each in found.server.requests[before:]))
        assert {each.headers["authorization"] for each in found.server.requests[before:]} == {"Bearer token-2"}
        assert not [each for each in found.server.requests if "impersonate-user" in each.headers]


async def test_no_request_of_a_console_has_the_rights_of_the_portal(tmp_path: Path) -> None:
    async with served(tmp_path, "impersonate") as found:
        await found.open()
        await eventually(lambda: found.server.watches)
        sent = {
            (each.headers.get("impersonate-user"), each.headers.get("impersonate-group"))
            for each in found.server.requests
        }
        assert sent == {("oidc:ann", "oidc:students")}


async def test_a_user_who_has_lost_a_right_has_nothing_that_was_read_with_it(tmp_path: Path) -> None:
    async with served(tmp_path, "token") as found:
        await found.open()
        (first,) = found.consoles._entries.values()
        await eventually(lambda: found.server.watches)
        found.cluster.refuses = True
        found.cluster.ends.set()
        await eventually(lambda: not found.consoles._entries)
        await found.open()
        (second,) = found.consoles._entries.values()
        assert second is not first
