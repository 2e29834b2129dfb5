"""One list and one watch of a resource, for ever, for all who keep something of its objects.

Most of what an object costs is sending and parsing it, so it is sent and parsed once, however many views are kept of
it. Readers are never behind by more than a watch's delay for long, whatever the server does: an event that was missed
is found by the next full list, one that comes twice changes nothing, and one that comes late is known by its
resourceVersion.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import Any, NoReturn, Protocol

from runtime.api import Api
from runtime.backoff import Backoff, hash_fraction
from runtime.errors import ApiError, Expired, Unreachable
from runtime.resource import Key, Resource, object_key

log = logging.getLogger(__name__)

# The cap is what a store may be late after the API server was away for long.
PAUSES = Backoff(base_seconds=0.5, cap_seconds=10)
# A server that calls each of its own lists expired is not asked for the next one so soon: lists are dear.
LISTS = Backoff(base_seconds=0.5, cap_seconds=60)
# A watch that lived this long was a good one: the next failure is again a first one.
GOOD_SECONDS = 30.0
WATCH_SECONDS = 300.0
# Watches have lost events before (bugs of caches, etcd restored from a backup). What no event will ever repair is
# repaired by a full list, so rarely that it costs nothing.
RELIST_SECONDS = 1800.0
# So many watches in a row that the server refused: perhaps it is our resourceVersion that it can't serve.
REFUSED_LIMIT = 3
# Of 1,000 VMs of 6 KB: with 500 to a page the process keeps 30 MB that it needed once and the loop stands still for
# 0.15 s; with 200 it's 13 MB and 0.05 s.
PAGE = 200

Document = dict[str, Any]


class ReflectorConsumer(Protocol):
    """Keeps what it wants of each object. The document is let go when the call returns, so that is all it keeps."""

    def gather(self, key: Key, document: Document, gathered: dict[Key, Any], *, known: bool) -> None:
        """Adds what it keeps of an object of a list that may yet fail. What is `known` it was shown before."""

    def replace(self, gathered: dict[Key, Any]) -> None:
        """What it gathered is all there is."""

    def change(self, key: Key, document: Document) -> None: ...

    def forget(self, key: Key) -> None: ...


class Reflector:
    def __init__(
        self,
        api: Api,
        resource: Resource,
        readers: Sequence[ReflectorConsumer],
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        name: str | None = None,
        page: int = PAGE,
    ) -> None:
        """`label_selector` is what the server leaves out, for all of the readers; with `name` it is all but one."""
        self.resource = resource
        self.problem: str | None = "not listed yet"
        """Why it cannot see the server now, for whoever asks whether the service is ready."""
        self._api = api
        self._readers = tuple(readers)
        self._namespace = namespace
        self._label_selector = label_selector
        # The one form that a right with `resourceNames` covers.
        self._field_selector = f"metadata.name={name}" if name else None
        self._page = page
        self._identity = f"{api.identity}/{resource.plural}"
        # The version to watch from; None when only a list will do.
        self._version: str | None = None
        self._listed_at = 0.0
        # Of every object there is, and of those deleted since the last bookmark: an event with a lower one is an old
        # one.
        self._versions: dict[Key, str] = {}
        self._deleted: dict[Key, str] = {}
        self._failures = 0
        self._refused = 0
        self._expired = 0
        self._watches = 0
        metrics = api.metrics
        self._count = metrics.informer_objects
        self._lists = metrics.informer_lists
        self._events = metrics.informer_events
        self._contact = metrics.informer_contact

    async def run(self) -> NoReturn:
        # Only while it runs: where another replica leads, what is seen by the leader alone would seem to be stale.
        self._contact.labels(self.resource.plural).set(time.time())
        try:
            while True:
                pause = await self.turn()
                await asyncio.sleep(pause)
        finally:
            for gauge in (self._count, self._contact):
                # Another feed of the same plural may have ended before; one that goes on shows it again soon.
                with suppress(KeyError):
                    gauge.remove(self.resource.plural)

    async def turn(self) -> float:
        """One list if one is needed, one watch to its end; returns how long to pause before the next turn."""
        loop = asyncio.get_running_loop()
        watching_since: float | None = None
        seen = 0
        problem: ApiError | None = None
        try:
            if self._version is None or loop.time() - self._listed_at > self._relist_seconds():
                await self._list()
            watching_since = loop.time()
            seen = await self._follow()
        except ApiError as error:
            problem = error
            self._answer(error)
        # Not for having seen something: a server that gives one event and hangs up would be asked without a pause.
        if watching_since is not None and loop.time() - watching_since >= GOOD_SECONDS:
            self._failures = self._refused = self._expired = 0
        else:
            self._failures = 1 if seen and problem is None else self._failures + 1
        pause = PAUSES.delay(self._failures, self._identity)
        if problem is not None:
            pause = max(pause, LISTS.delay(self._expired, self._identity), problem.retry_after_seconds or 0.0)
            log.warning("%s: %s; again in %.1f s", self.resource.plural, problem, pause)
        return pause

    def _answer(self, error: ApiError) -> None:
        """What an error means for where to go on from."""
        self.problem = str(error)
        if isinstance(error, Expired):
            self._version = None
            self._expired += 1
        elif not isinstance(error, Unreachable):
            # 504 with this cause is how the server says that it has never heard of our version: it has gone back in
            # time.
            future = any(cause.get("reason") == "ResourceVersionTooLarge" for cause in error.causes)
            self._refused += 1
            if future or self._refused >= REFUSED_LIMIT:
                self._version, self._refused = None, 0

    # List

    async def _list(self) -> None:
        versions: dict[Key, str] = {}
        gathered: list[dict[Key, Any]] = [{} for _ in self._readers]
        version = ""
        outcome = "failed"
        try:
            pages = self._api.pages(
                self.resource,
                self._namespace,
                label_selector=self._label_selector,
                field_selector=self._field_selector,
                page=self._page,
            )
            async with aclosing(pages):
                async for items, version in pages:  # noqa: B007
                    for document in items:
                        self._gather(document, versions, gathered)
                    del items  # the page is let go before the next one is asked for
            outcome = "done"
        finally:
            self._lists.labels(self.resource.plural, outcome).inc()
        self._version = version
        self._listed_at = asyncio.get_running_loop().time()
        self._versions = versions
        self._deleted.clear()
        for reader, found in zip(self._readers, gathered, strict=True):
            reader.replace(found)
        self._seen()

    def _gather(self, document: Document, versions: dict[Key, str], gathered: list[dict[Key, Any]]) -> None:
        try:
            key = object_key(document)
            number = str(document["metadata"].get("resourceVersion") or "")
        except Exception:
            log_unreadable(self.resource, document)
            return
        # The same version is the same object: what is kept of it serves, and nobody needs to hear of it.
        known = bool(number) and self._versions.get(key) == number
        versions[key] = number
        for reader, found in zip(self._readers, gathered, strict=True):
            reader.gather(key, document, found, known=known)

    def _relist_seconds(self) -> float:
        return RELIST_SECONDS * (1 + 0.2 * hash_fraction(f"{self._identity}:relist"))

    # Watch

    async def _follow(self) -> int:
        """Applies a watch's events until it ends; returns how many there were."""
        assert self._version is not None
        self._watches += 1
        # Ends are spread, or all the watches that began together would all be renewed together.
        seconds = WATCH_SECONDS * (1 - 0.3 * hash_fraction(f"{self._identity}#{self._watches}"))
        seen = 0
        events = self._api.watch(
            self.resource,
            self._namespace,
            resource_version=self._version,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            timeout_seconds=seconds,
        )
        async with aclosing(events):
            async for kind, document in events:
                self._apply(kind, document)
                self._events.labels(self.resource.plural, kind).inc()
                seen += 1
        self._seen()
        return seen

    def _apply(self, kind: str, document: Document) -> None:
        metadata = document.get("metadata")
        number = str(metadata.get("resourceVersion") or "") if isinstance(metadata, dict) else ""
        if not number:
            raise Unreachable(f"an event {kind} without a resourceVersion", call=f"watch {self.resource.plural}")
        if kind == "BOOKMARK":
            # Everything up to here was sent, so nothing older can still come.
            self._deleted.clear()
        else:
            self._change(kind, number, document)
        if self._version is None or not is_older(number, self._version):
            self._version = number
        self._seen()

    def _change(self, kind: str, number: str, document: Document) -> None:
        try:
            key = object_key(document)
        except Exception:
            log_unreadable(self.resource, document)
            return
        last = self._versions.get(key) or self._deleted.get(key)
        if last is not None and is_older(number, last):
            return
        if kind == "DELETED":
            self._versions.pop(key, None)
            self._deleted[key] = number
            for reader in self._readers:
                reader.forget(key)
        elif self._deleted.get(key) != number:
            self._deleted.pop(key, None)
            self._versions[key] = number
            for reader in self._readers:
                reader.change(key, document)

    def _seen(self) -> None:
        self.problem = None
        self._count.labels(self.resource.plural).set(len(self._versions))
        self._contact.labels(self.resource.plural).set(time.time())


def log_unreadable(resource: Resource, document: Document) -> None:
    """One object that nothing can be made of must not blind us to all the others."""
    metadata = document.get("metadata")
    name = {k: metadata.get(k) for k in ("namespace", "name")} if isinstance(metadata, dict) else repr(document)[:200]
    log.exception("%s: cannot read %s", resource.plural, name)


def is_older(number: str, than: str) -> bool:
    """Whether a resourceVersion is certainly the older one. Those of the API server are numbers that grow; what an
    aggregated server makes of them is its own affair and is taken as it comes."""
    return number.isdecimal() and than.isdecimal() and int(number) < int(than)
