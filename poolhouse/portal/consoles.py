"""The consoles of users who have signed in: which are open, for which session and namespace, and when each ends.

A console keeps views of objects by watches with the rights of its user. No two sessions share one, also not two of the
same user, whose tokens may have different groups.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from poolhouse.cli.cluster import Cluster
from poolhouse.console.app import Console, Frame
from poolhouse.console.cluster_state import connect
from poolhouse.console.computations import Computations
from poolhouse.console.context import Context
from poolhouse.portal.queries import Queries
from poolhouse.portal.session import Session
from poolhouse.portal.users import Users, is_due
from poolhouse.runtime.errors import ApiError, Unavailable

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from poolhouse.runtime.api import Api

log = logging.getLogger(__name__)

IDLE_SECONDS = 300.0
"""time after which a console without a request ends. A visible page has a request: its stream of changes"""
PER_USER = 3
MAX_REQUESTS = 16
"""how many requests one console answers at once; each visible page has one, its stream of changes"""
SWEEP_SECONDS = 2.0
SYNC_SECONDS = 5.0
"""time for which the first page waits for the first lists; then it shows what is there"""
MAX_FORM_BYTES = 128 * 1024
"""A text of this size is parsed for three seconds."""
ALL_NAMESPACES = "-"
GONE = "This page is no longer up to date: the portal does not answer, or your session has ended. Reload the page."
Key = tuple[str, str]
"""the ID of a session, and the namespace that the console shows, or `ALL_NAMESPACES`"""


class Full(Exception):
    """A sentence for the user about why no console can be opened now."""


class _Scope(Cluster):
    """Where a console looks. A connection of its own would have the rights of the portal, so that it has none."""

    async def connect(self) -> AbstractAsyncContextManager[Api]:
        raise AssertionError("the console of a user connects to nothing by itself")


def new_scope(namespace: str) -> Cluster:
    everywhere = namespace == ALL_NAMESPACES
    return _Scope(None, "default" if everywhere else namespace, everywhere=everywhere)


def new_frame(namespace: str) -> Frame:
    return Frame(f"/console/{namespace}", gone=GONE, in_portal=True, max_body_bytes=MAX_FORM_BYTES, keeps_drafts=False)


@dataclass(eq=False)
class Entry:
    """A console, or one that is being opened."""

    session: Session
    """the session as of the last request, with the newest ID token"""
    namespace: str
    used: float
    opened: asyncio.Future[Console]
    uses: int = 0
    """how many requests are being answered"""
    told: int = 0
    """the end of the ID token for which streams were ended, so that browsers connect again and renew the session"""

    @property
    def key(self) -> Key:
        return self.session.id, self.namespace

    def is_of(self, session: Session) -> bool:
        """Whether the console has the rights of this session. With impersonation, a renewed one may have others."""
        return (self.session.user, self.session.groups) == (session.user, session.groups)

    def must_end(self, now: float) -> bool:
        return not self.session.is_valid(now) or (not self.uses and now - self.used >= IDLE_SECONDS)

    def must_renew(self, now: float) -> bool:
        return is_due(self.session, now) and self.told != self.session.expires


def room(entries: Iterable[Entry], session: Session, limit: int) -> Entry | None:
    """The console that has to end so that this user can open another; None if there is room. Raises `Full`."""
    found = sorted(entries, key=lambda each: each.used)
    mine = [each for each in found if each.session.subject == session.subject]
    if len(mine) < PER_USER and len(found) < limit:
        return None
    unused = [each for each in (mine if len(mine) >= PER_USER else found) if not each.uses]
    if unused:
        return unused[0]
    if len(mine) >= PER_USER:
        names = ", ".join("all namespaces" if each.namespace == ALL_NAMESPACES else each.namespace for each in mine)
        raise Full(f"You have the console open for {names}. Close the pages of one of them first.")
    raise Full(f"{limit} consoles are open, which is the most that the portal allows. Try again in a few minutes.")


class Consoles:
    def __init__(self, users: Users, limit: int, now: Callable[[], float], queries: Queries | None = None) -> None:
        self._users, self._limit, self._now, self._queries = users, limit, now, queries
        self._computations = Computations()
        self._entries: dict[Key, Entry] = {}
        self._tasks: dict[Entry, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> NoReturn:
        """Runs the watches of all consoles. Without it, none can be opened."""
        try:
            async with asyncio.TaskGroup() as self._group:
                while True:
                    await asyncio.sleep(SWEEP_SECONDS)
                    self.sweep()
        finally:
            self._group = None

    def sweep(self) -> None:
        now = self._now()
        for each in [*self._entries.values()]:
            if each.must_end(now):
                self._end(each)
            elif each.must_renew(now):
                each.told = each.session.expires
                _end_streams(each)

    def end_session(self, session: Session) -> None:
        """Ends the consoles of a user who signs out."""
        for each in [*self._entries.values()]:
            if each.session.id == session.id:
                self._end(each)

    @asynccontextmanager
    async def use(self, session: Session, namespace: str) -> AsyncIterator[Console]:
        """The console of a session for a namespace, which stays open meanwhile. Raises `Full`, or the error of an API
        server that does not answer."""
        entry = self._entry(session, namespace)
        if entry.uses >= MAX_REQUESTS:
            raise Full(f"You have {MAX_REQUESTS} pages of this console open. Close some of them first.")
        entry.uses += 1
        try:
            yield await asyncio.shield(entry.opened)
        finally:
            entry.uses -= 1
            entry.used = self._now()

    def _entry(self, session: Session, namespace: str) -> Entry:
        found = self._entries.get((session.id, namespace))
        if found is not None and found.is_of(session):
            if session.expires > found.session.expires:  # a request may come with the cookies of before
                found.session = session
            return found
        if found is not None:
            self._end(found)
        if self._group is None:
            raise Unavailable("the portal ends")
        if ends := room(self._entries.values(), session, self._limit):
            self._end(ends)
        entry = Entry(session, namespace, self._now(), asyncio.get_running_loop().create_future())
        self._entries[entry.key] = entry
        self._tasks[entry] = self._group.create_task(self._watch(entry), name="console")
        log.info("%s opens the console for %s", session.user, namespace)
        return entry

    async def _watch(self, entry: Entry) -> None:
        """Opens a console, and watches until it is cancelled, or until the user has lost a right."""
        scope, api = new_scope(entry.namespace), self._users.lasting_client(lambda: entry.session)
        try:
            state = await connect(api, scope.scope, scope.namespace, self._computations)
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(state.run(), name="informers")
                await state.synced(SYNC_SECONDS)
                if not entry.opened.done():
                    metrics = self._queries.of(entry.session.subject) if self._queries else None
                    context = Context(state, scope, metrics=metrics)
                    entry.opened.set_result(Console(context, new_frame(entry.namespace)))
                await state.lost_right.wait()
                watching.cancel()
        except ApiError as error:
            _fail(entry, error)
        except Exception:
            log.exception("the console of %s has failed", entry.session.user)
        finally:
            self._end(entry)

    def _end(self, entry: Entry) -> None:
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]
        if task := self._tasks.pop(entry, None):
            task.cancel()
            _end_streams(entry)
            _fail(entry, Full("The console has been closed. Open it again."))


def _fail(entry: Entry, error: Exception) -> None:
    """Tells those who wait for the console why it does not open."""
    if not entry.opened.done():
        entry.opened.set_exception(error)
        entry.opened.exception()  # which is logged otherwise if nobody waits for it


def _end_streams(entry: Entry) -> None:
    if entry.opened.done() and not entry.opened.exception():
        entry.opened.result().end_streams()
