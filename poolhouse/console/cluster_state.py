"""Keeps views of the cluster's objects up to date by list and watch, with the user's own rights."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, NoReturn, ParamSpec, TypeVar

from controllers.pool import sources as pools
from controllers.pool.cluster import Cluster
from controllers.pool.known_revisions import REVISION_SOURCE, KnownRevisions
from controllers.pool.observe import observe
from controllers.pool.pools import InvalidPool
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.stores import Stores
from controllers.pool.vm_snapshots import RESTORE_SOURCE, SNAPSHOT_SOURCE, VM_SNAPSHOTS, SnapshotStores
from controllers.replicaset import observe as replica_sets
from controllers.shared.sources import NODE_SOURCE, ListedStore, Source
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import KINDS
from poolhouse.api.kinds.kind import Kind
from poolhouse.api.kinds.pool import POOL
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.cli.overview import HEALTH_SECONDS
from poolhouse.cli.pools import BURST
from poolhouse.cli.service_facts import brief_checks
from poolhouse.cli.service_health import summarize
from poolhouse.console.computations import Computations
from poolhouse.runtime.access_review import caller_may
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, Forbidden, NotFound, Unauthorized, Unavailable, Unreachable
from poolhouse.runtime.informer import Informer, shared_reflectors
from poolhouse.runtime.reflector import Reflector
from poolhouse.runtime.resource import Key, Resource, object_key

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")

LOOK_SECONDS = 0.25
Version = tuple[int, tuple[tuple[str, str], ...]]
FETCH_SECONDS = 3.0
ANSWER_SECONDS = 3.0
"""time for which a page waits for an answer; the views need none"""
MAX_FETCHED = 200
MAX_SAMPLES = 5_000
RIGHT_SECONDS = 60.0
"""time for which the answer to a question about the user's rights is used"""


@dataclass(frozen=True)
class Right:
    """A right that an act needs."""

    verb: str
    resource: Resource
    subresource: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource.plural}{f'/{self.subresource}' if self.subresource else ''}"


@dataclass(frozen=True, slots=True)
class Sample:
    """The size of a warm pool from a time on."""

    time: float
    available: int
    queued: int
    claimed: int

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.available, self.queued, self.claimed


class ClusterState:
    """The views of all objects in a namespace, or in all namespaces if `namespace` is None."""

    def __init__(
        self,
        api: Api,
        namespace: str | None,
        user: str,
        *,
        serves_snapshots: bool = False,
        own_namespace: str = "default",
        computations: Computations | None = None,
    ) -> None:
        """`own_namespace`: where dry runs show whether Poolhouse itself works, if all namespaces are shown."""
        self._computations = computations or Computations()
        self.api, self.namespace, self.user = api, namespace, user
        self.outage = ""
        """what does not work of Poolhouse itself"""
        self._own_namespace = namespace or own_namespace
        self._changes = 0
        self._fetched: dict[Hashable, tuple[float, Hashable, Any]] = {}
        self._rights: dict[tuple[Right, str], tuple[float, bool]] = {}
        self.informers: list[Informer[Any]] = []
        """all informers; several may have the same resource"""
        self.documents: dict[str, Informer[Json]] = {
            kind.kind: self._informer(Source(Resource.of(kind), without_noise)) for kind in KINDS
        }
        snapshots = SnapshotStores()
        if serves_snapshots:
            taken, restores = self._informer(SNAPSHOT_SOURCE).store, self._informer(RESTORE_SOURCE).store
            snapshots = SnapshotStores(ListedStore(taken, served=True), ListedStore(restores, served=True))
        self.pools = Stores(
            self._informer(pools.POOL_SOURCE).store,
            self._informer(pools.VM_SOURCE).store,
            KnownRevisions(self._informer(REVISION_SOURCE).store),
            self._informer(pools.VMI_SOURCE).store,
            self._informer(pools.DISK_SOURCE).store,
            snapshots,
            Cluster(self._informer(NODE_SOURCE).store),
        )
        self.replica_sets = replica_sets.Stores(
            self._informer(replica_sets.SET_SOURCE).store, self._informer(replica_sets.VMI_SOURCE).store
        )
        self._samples: dict[Key, deque[Sample]] = {}
        self.documents[WARM_POOL.kind].subscribe(self._sample)
        self._reflectors = shared_reflectors(self.informers)
        self.lost_right = asyncio.Event()
        """set once the API server refuses a resource that it has listed: the views have what the user may not see"""
        for each in self._reflectors:
            each.on_error.append(partial(self._failed, each))

    def _informer(self, source: Source[V]) -> Informer[V]:
        namespace = self.namespace if source.resource.namespaced else None
        informer = Informer(
            self.api,
            source.resource,
            source.view,
            namespace=namespace,
            indexes=source.indexes,
            label_selector=source.label_selector,
        )
        informer.subscribe(lambda old, new: self._note())
        self.informers.append(informer)
        return informer

    async def run(self) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            for each in self._reflectors:
                group.create_task(each.run(), name=f"reflector-{each.resource.plural}")
            group.create_task(self._watch_services(), name="services")
        raise AssertionError("a reflector has ended")

    async def _watch_services(self) -> NoReturn:
        while True:
            outage = summarize(await brief_checks(self.api, self._own_namespace))
            if outage != self.outage:
                self.outage = outage
                self._note()
            await asyncio.sleep(HEALTH_SECONDS)

    async def synced(self, timeout_seconds: float) -> None:
        """Waits until each resource is listed or has a problem, or for the timeout."""
        end = asyncio.get_running_loop().time() + timeout_seconds
        while asyncio.get_running_loop().time() < end:
            if all(i.is_synced or i.error is not None for i in self.informers):
                return
            await asyncio.sleep(0.05)

    def _failed(self, reflector: Reflector, error: ApiError) -> None:
        # A user may list and not watch. Who has lost both rights is refused the list that follows refused watches.
        refused = isinstance(error, Unauthorized) or (isinstance(error, Forbidden) and not error.of_watch)
        if refused and any(each.is_synced for each in self.informers if each.reflector is reflector):
            self.lost_right.set()

    @property
    def problems(self) -> Mapping[str, ApiError]:
        """Why a resource cannot be listed or watched now, by plural."""
        return {each.resource.plural: each.error for each in self._reflectors if each.error is not None}

    def unlisted(self, *kinds: Kind) -> list[str]:
        """The plurals of these kinds that the user may not list."""
        refused = {
            plural for plural, error in self.problems.items() if isinstance(error, Forbidden) and not error.of_watch
        }
        return [kind.plural for kind in kinds if kind.plural in refused]

    @property
    def version(self) -> Version:
        """A value that differs after each change of an object or of a connection."""
        return self._changes, tuple(sorted((plural, str(error)) for plural, error in self.problems.items()))

    async def wait(self, version: Version, seconds: float) -> None:
        """Waits until there is another version, or for some seconds. It looks at a number and sends no request."""
        for _ in range(round(seconds / LOOK_SECONDS)):
            if self.version != version:
                return
            await asyncio.sleep(LOOK_SECONDS)

    def _note(self) -> None:
        self._changes += 1

    async def read(self, resource: Resource, key: Key) -> Json:
        """The object as the API server gives it to the user now. Raises its error, also if an earlier read was
        allowed."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self.api.get(resource, *key)
        except TimeoutError:
            raise Unreachable(f"no answer within {ANSWER_SECONDS:g} s") from None

    async def remember(
        self, key: Hashable, stamp: Hashable, fetch: Callable[[], Awaitable[T]], seconds: float = FETCH_SECONDS
    ) -> T:
        """The result of the last `fetch` for the key. It is fetched again if the stamp has changed, at most every few
        seconds, so that an open page sends no request while nothing changes. The last result
        stays without an answer, and goes if the API server refuses it."""
        now = asyncio.get_running_loop().time()
        known = self._fetched.get(key)
        if known is None or (known[1] != stamp and now - known[0] >= seconds):
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    known = self._fetched[key] = now, stamp, await fetch()
            except TimeoutError:
                if known is None:
                    raise Unreachable(f"no answer within {ANSWER_SECONDS:g} s") from None
            except (NotFound, Forbidden, Unauthorized):
                self._fetched.pop(key, None)
                raise
            except ApiError:
                if known is None:
                    raise
            while len(self._fetched) > MAX_FETCHED:
                del self._fetched[next(iter(self._fetched))]
        found: T = known[2]
        return found

    def _sample(self, old: Json | None, new: Json | None) -> None:
        if new is None:
            if old is not None:
                self._samples.pop(object_key(old), None)
            return
        status, key = new.get("status") or {}, object_key(new)
        counts = (int(status.get(name) or 0) for name in ("availableReplicas", "queuedClaims", "claimed"))
        sample = Sample(self.now().timestamp(), *counts)
        samples = self._samples.setdefault(key, deque(maxlen=MAX_SAMPLES))
        if not samples or samples[-1].counts != sample.counts:
            samples.append(sample)

    # What pages read

    def samples(self, warm_pool: Key) -> list[Sample]:
        """The sizes of a warm pool since the console was started."""
        return list(self._samples.get(warm_pool, ()))

    def list(self, kind: Kind) -> list[Json]:
        found = self.documents[kind.kind].store.all()
        return sorted(found, key=lambda each: (each["metadata"].get("namespace") or "", each["metadata"]["name"]))

    def get(self, kind: str, key: Key) -> Json | None:
        return self.documents[kind].store.get(key) if kind in self.documents else None

    def pool(self, key: Key) -> PoolSnapshot | InvalidPool | None:
        return observe(self.pools, key, synced=True, failure=None, burst=BURST)

    def replica_set(self, key: Key) -> replica_sets.ReplicaSetSnapshot | replica_sets.InvalidReplicaSet | None:
        return replica_sets.observe(self.replica_sets, key, synced=True, failure=None, burst=BURST)

    def now(self) -> datetime:
        return self.api.now()

    async def compute(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """The result of a pure function whose cost grows with the objects, computed apart from the event loop. The
        function must not read this state, which the event loop changes. Raises what the function raises, or
        `TooExpensive`."""
        return await self._computations.run(self.user, function, *arguments, **named)

    async def missing_rights(self, rights: Iterable[Right], namespace: str) -> frozenset[Right]:
        """The rights that the user lacks. Without an answer, the API server decides about the act itself."""
        asked = dict.fromkeys(rights)
        answers = await asyncio.gather(*(self._may(each, namespace) for each in asked))
        return frozenset(each for each, allowed in zip(asked, answers, strict=True) if not allowed)

    async def _may(self, right: Right, namespace: str) -> bool:
        now = asyncio.get_running_loop().time()
        known = self._rights.get((right, namespace))
        if known is not None and now - known[0] < RIGHT_SECONDS:
            return known[1]
        resource = right.resource
        if right.subresource:
            resource = replace(resource, plural=f"{resource.plural}/{right.subresource}")
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                allowed = await caller_may(self.api, right.verb, resource, namespace)
        except (ApiError, TimeoutError):
            return True
        self._rights[right, namespace] = now, allowed
        return allowed


def without_noise(document: Json) -> Json:
    """The document without the parts that no page shows."""
    metadata = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
    return {**document, "metadata": metadata}


async def may_list_everywhere(api: Api) -> bool:
    """Whether the user may list pools in all namespaces."""
    return await caller_may(api, "list", Resource.of(POOL), "")


async def connect(api: Api, namespace: str | None, own_namespace: str, computations: Computations) -> ClusterState:
    """Learns the name of the user, and what the cluster serves. Raises the error of an API server that does not
    answer."""
    user, snapshots = await _user(api), await _serves_snapshots(api)
    return ClusterState(
        api, namespace, user, serves_snapshots=snapshots, own_namespace=own_namespace, computations=computations
    )


async def _user(api: Api) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await api.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=body)
    except (Unreachable, Unavailable):
        raise
    except ApiError:  # Kubernetes 1.27 and earlier do not have it
        return ""
    return str(answer["status"]["userInfo"].get("username") or "")


async def _serves_snapshots(api: Api) -> bool:
    try:
        await api.request("GET", f"/apis/{VM_SNAPSHOTS.api_version}")
    except ApiError:
        return False
    return True
