"""The resources that controllers read, with the views and indexes of their objects."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.meta import KUBEVIRT_DRAIN_TAINT
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.optional_informer import OptionalInformer
from poolhouse.runtime.resource import NODES, Key, Resource, object_key
from poolhouse.runtime.store import Store

DATA_VOLUMES = Resource("cdi.kubevirt.io", "v1beta1", "datavolumes", "DataVolume")
JOBS = Resource("batch", "v1", "jobs", "Job")
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob")
DRAIN_TAINTS = frozenset({KUBEVIRT_DRAIN_TAINT, "karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler"})
"""Taints of a node that is drained. Karpenter sets its own in place of a cordon, as the cluster-autoscaler may."""


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    labels: Mapping[str, str]
    ready: bool = True
    leaving: bool = False


def parse_node(document: Json) -> Node:
    """A node, without the hundreds of labels with which KubeVirt describes its CPU."""
    metadata = document["metadata"]
    labels = (metadata.get("labels") or {}).items()
    kept = {key: value for key, value in labels if ".node.kubevirt.io/" not in key}
    return Node(metadata["name"], kept, node_is_ready(document), node_is_leaving(document))


def node_is_ready(document: Json) -> bool:
    """Whether the condition Ready of the node is True. A new node does not have it yet, and runs no VM."""
    conditions = (document.get("status") or {}).get("conditions") or ()
    return bool(next((each.get("status") for each in conditions if each.get("type") == "Ready"), "True") == "True")


def node_is_leaving(document: Json) -> bool:
    """Whether the node is cordoned or drained."""
    spec = document.get("spec") or {}
    return bool(spec.get("unschedulable")) or any(each.get("key") in DRAIN_TAINTS for each in spec.get("taints") or ())


V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)


class OptionalStore(Protocol[V_co]):
    """The store of a resource that the cluster may not serve."""

    @property
    def served(self) -> bool: ...

    def by(self, index: str, value: Hashable) -> Iterable[V_co]: ...


@dataclass(frozen=True)
class ListedStore(Generic[V]):
    """An `OptionalStore` that is not kept up to date. The resource is not served by default."""

    store: Store[V] = field(default_factory=Store)
    served: bool = False

    def by(self, index: str, value: Hashable) -> Iterable[V]:
        return self.store.by(index, value) if self.served else ()


class Keyed(Protocol):
    @property
    def key(self) -> Key: ...


def key_of(old: Keyed | None, new: Keyed | None) -> Key:
    """The namespace and name of an object that has changed. One of the views may be missing."""
    return next(each.key for each in (new, old) if each is not None)


@dataclass(frozen=True)
class Source(Generic[V]):
    resource: Resource
    view: Callable[[Json], V]
    indexes: Mapping[str, Callable[[V], Iterable[Hashable]]] = field(default_factory=dict)
    label_selector: str | None = None

    def store(self) -> Store[V]:
        return Store(self.indexes)

    def informer(self, api: Api) -> Informer[V]:
        """A store that list-and-watch keeps up to date."""
        return Informer(api, self.resource, self.view, indexes=self.indexes, label_selector=self.label_selector)

    def optional_informer(self, api: Api) -> OptionalInformer[V]:
        """A store of a resource that the cluster may not serve."""
        return OptionalInformer(api, self.resource, self.view, indexes=self.indexes, label_selector=self.label_selector)

    async def list(self, api: Api, namespace: str) -> Store[V]:
        """A store with the objects that the namespace has now. Raises the API server's error."""
        store = self.store()
        async for items, _ in api.pages(self.resource, namespace, label_selector=self.label_selector):
            for document in items:
                store.put(object_key(document), self.view(document))
        return store

    async def list_optional(self, api: Api, namespace: str) -> ListedStore[V]:
        """Like `list`, for a resource that the cluster may not serve."""
        try:
            return ListedStore(await self.list(api, namespace), served=True)
        except NotFound:
            return ListedStore()


NODE_SOURCE = Source(NODES, parse_node)
