"""Lists and watches one resource for all consumers in the process, like client-go's `Reflector`.

Receiving and parsing objects is expensive, so all consumers share it. If the API server omits an event, the next full
list repairs the stores. If it sends an event late, the resourceVersion shows that the event is old.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any, NoReturn, Protocol

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.backoff import Backoff, hash_fraction
from poolhouse.runtime.errors import ApiError, Expired, Unreachable
from poolhouse.runtime.resource import Key, Resource, object_key

log = logging.getLogger(__name__)

PAUSES = Backoff(base_seconds=0.5, cap_seconds=10)
# Pauses between lists if the API server reports each list as expired: lists are expensive.
LIST_PAUSES = Backoff(base_seconds=0.5, cap_seconds=60)
# A watch of at least this length resets the count of failures.
GOOD_WATCH_SECONDS = 30.0
WATCH_SECONDS = 300.0
# Interval of full lists, because watches can lose events (bugs of caches, etcd restored from a backup).
RELIST_SECONDS = 1800.0
# After this many refused watches in a row the reflector lists again: the resourceVersion may be the reason.
MAX_REFUSED_WATCHES = 3
# Measured with 1,000 VMs of 6 KB: pages of 500 objects keep 30 MB and block the event loop for 0.15 s, pages of 200
# keep 13 MB and block it for 0.05 s.
PAGE_SIZE = 200


class ReflectorConsumer(Protocol):
    """Receives the objects of a reflector. A consumer must not keep the documents."""

    def gather(self, key: Key, document: Json, gathered: dict[Key, Any], *, known: bool) -> None:
        """Adds an object of an unfinished list to `gathered`. The consumer has a `known` object in this version."""

    def replace(self, gathered: dict[Key, Any]) -> None:
        """Replaces all objects by those of a complete list."""

    def change(self, key: Key, document: Json) -> None: ...

    def forget(self, key: Key) -> None: ...


class Reflector:
    def __init__(
        self,
        api: Api,
        resource: Resource,
        consumers: Sequence[ReflectorConsumer],
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        name: str | None = None,
        page: int = PAGE_SIZE,
    ) -> None:
        """`label_selector`, `field_selector` and `name` limit the objects for all consumers."""
        self.resource = resource
        self.error: ApiError | None = None
        """why the reflector cannot list or watch now; None if it can, or has not tried yet"""
        self.on_error: list[Callable[[ApiError], None]] = []
        """called with each error"""
        self._has_listed = False
        self._api = api
        self._consumers = tuple(consumers)
        self._namespace, self._label_selector = namespace, label_selector
        # RBAC rules with `resourceNames` allow a list only with this field selector.
        self._field_selector = f"metadata.name={name}" if name else field_selector
        self._page = page
        self._identity = f"{api.identity}/{resource.plural}"
        self._version: str | None = None  # resourceVersion to watch from; None when a list is needed
        self._listed_at = 0.0
        # resourceVersions of all objects, and of objects deleted since the last bookmark, to ignore older events.
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

    @property
    def problem(self) -> str | None:
        """Why the reflector cannot list or watch now, for /readyz; None if it can."""
        if self.error is not None:
            return str(self.error)
        return None if self._has_listed else "not listed yet"

    async def run(self) -> NoReturn:
        # The metrics exist only while the reflector runs, because the metrics of a standby replica would be stale.
        self._contact.labels(self.resource.plural).set(time.time())
        try:
            while True:
                pause = await self._list_and_watch()
                await asyncio.sleep(pause)
        finally:
            for gauge in (self._count, self._contact):
                with suppress(KeyError):  # another reflector of the same plural may have removed it
                    gauge.remove(self.resource.plural)

    async def _list_and_watch(self) -> float:
        """Lists if needed, then watches until the watch ends. Returns the seconds until the next call."""
        loop = asyncio.get_running_loop()
        watching_since: float | None = None
        events = 0
        error: ApiError | None = None
        try:
            if self._version is None or loop.time() - self._listed_at > self._relist_seconds():
                await self._list()
            watching_since = loop.time()
            events = await self._watch()
        except ApiError as caught:
            error = caught
            self._failed(error)
        # The length of the watch decides, not its events: a watch that ends after one event needs a pause too.
        if watching_since is not None and loop.time() - watching_since >= GOOD_WATCH_SECONDS:
            self._failures = self._refused = self._expired = 0
        else:
            self._failures = 1 if events and error is None else self._failures + 1
        pause = PAUSES.delay(self._failures, self._identity)
        if error is not None:
            pause = max(pause, LIST_PAUSES.delay(self._expired, self._identity), error.retry_after_seconds or 0.0)
            log.warning("%s: %s; retry in %.1f s", self.resource.plural, error, pause)
        return pause

    def _failed(self, error: ApiError) -> None:
        """Decides whether the next call continues the watch or lists again."""
        self.error = error
        for tell in self.on_error:
            tell(error)
        if isinstance(error, Expired):
            self._version = None
            self._expired += 1
        elif not isinstance(error, Unreachable):
            # The API server has never had this resourceVersion, because its etcd was restored from a backup.
            too_large = any(cause.get("reason") == "ResourceVersionTooLarge" for cause in error.causes)
            self._refused += 1
            if too_large or self._refused >= MAX_REFUSED_WATCHES:
                self._version, self._refused = None, 0

    async def _list(self) -> None:
        versions: dict[Key, str] = {}
        gathered: list[dict[Key, Any]] = [{} for _ in self._consumers]
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
                    del items  # frees the page before the next request
            outcome = "done"
        finally:
            self._lists.labels(self.resource.plural, outcome).inc()
        self._version = version
        self._listed_at = asyncio.get_running_loop().time()
        self._versions = versions
        self._deleted.clear()
        for consumer, found in zip(self._consumers, gathered, strict=True):
            consumer.replace(found)
        self._contacted()

    def _gather(self, document: Json, versions: dict[Key, str], gathered: list[dict[Key, Any]]) -> None:
        try:
            key = object_key(document)
            version = str(document["metadata"].get("resourceVersion") or "")
        except Exception:
            log_unreadable(self.resource, document)
            return
        known = bool(version) and self._versions.get(key) == version
        versions[key] = version
        for consumer, found in zip(self._consumers, gathered, strict=True):
            consumer.gather(key, document, found, known=known)

    def _relist_seconds(self) -> float:
        return RELIST_SECONDS * (1 + 0.2 * hash_fraction(f"{self._identity}:relist"))

    async def _watch(self) -> int:
        """Applies the events of one watch until it ends; returns their number."""
        assert self._version is not None
        self._watches += 1
        # The jitter lets watches that started together end at different times.
        seconds = WATCH_SECONDS * (1 - 0.3 * hash_fraction(f"{self._identity}#{self._watches}"))
        count = 0
        events = self._api.watch(
            self.resource,
            self._namespace,
            resource_version=self._version,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            timeout_seconds=seconds,
            opened=self._contacted,
        )
        async with aclosing(events):
            async for kind, document in events:
                self._apply(kind, document)
                self._events.labels(self.resource.plural, kind).inc()
                count += 1
        self._contacted()
        return count

    def _apply(self, kind: str, document: Json) -> None:
        metadata = document.get("metadata")
        version = str(metadata.get("resourceVersion") or "") if isinstance(metadata, dict) else ""
        if not version:
            raise Unreachable(f"an event {kind} without a resourceVersion", call=f"watch {self.resource.plural}")
        if kind == "BOOKMARK":
            self._deleted.clear()  # no older event can come after a bookmark
        else:
            self._change(kind, version, document)
        if self._version is None or not is_older(version, self._version):
            self._version = version
        self._contacted()

    def _change(self, kind: str, version: str, document: Json) -> None:
        try:
            key = object_key(document)
        except Exception:
            log_unreadable(self.resource, document)
            return
        last = self._versions.get(key) or self._deleted.get(key)
        if last is not None and is_older(version, last):
            return
        if kind == "DELETED":
            self._versions.pop(key, None)
            self._deleted[key] = version
            for consumer in self._consumers:
                consumer.forget(key)
        elif self._deleted.get(key) != version:
            self._deleted.pop(key, None)
            self._versions[key] = version
            for consumer in self._consumers:
                consumer.change(key, document)

    def _contacted(self) -> None:
        self.error, self._has_listed = None, True
        self._count.labels(self.resource.plural).set(len(self._versions))
        self._contact.labels(self.resource.plural).set(time.time())


def log_unreadable(resource: Resource, document: Json) -> None:
    """Logs that the reflector ignores an object because its document is invalid."""
    metadata = document.get("metadata")
    name = {k: metadata.get(k) for k in ("namespace", "name")} if isinstance(metadata, dict) else repr(document)[:200]
    log.exception("%s: cannot read %s", resource.plural, name)


def is_older(version: str, than: str) -> bool:
    """Whether a resourceVersion is certainly older than another. False if one of them is not a number, which aggregated
    API servers may use."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
