"""The resources that controllers read, with the views and indexes of their objects."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.optional_informer import OptionalInformer
from poolhouse.runtime.resource import NODES, Resource, object_key
from poolhouse.runtime.store import Store

DATA_VOLUMES = Resource("cdi.kubevirt.io", "v1beta1", "datavolumes", "DataVolume")
PODS = Resource("", "v1", "pods", "Pod")
JOBS = Resource("batch", "v1", "jobs", "Job")
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob")


@dataclass(frozen=True, slots=True)
class NodeLabels:
    name: str
    labels: Mapping[str, str]


def parse_node_labels(document: Json) -> NodeLabels:
    """A node's labels, without the hundreds with which KubeVirt describes its CPU."""
    metadata = document["metadata"]
    labels = (metadata.get("labels") or {}).items()
    return NodeLabels(metadata["name"], {key: value for key, value in labels if ".node.kubevirt.io/" not in key})


V = TypeVar("V")


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


NODE_LABELS = Source(NODES, parse_node_labels)
