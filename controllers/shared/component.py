"""The interface between a package of controllers and `main`: what `main` gives, and what it gets."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from prometheus_client import CollectorRegistry

from controllers.shared.creation import DefaultingCreator
from controllers.shared.data_sources import DATA_SOURCES, DataSource, parse_data_source
from controllers.shared.evictions import BUDGET_SOURCE, EvictionBudget
from controllers.shared.image_sources import ImageSources
from controllers.shared.planner import Planner
from controllers.shared.reference_rights import ReferenceRights
from controllers.shared.replica_limits import ReplicaLimits, unknown_limit
from defaulter.contract import Defaulter
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings, excerpt
from poolhouse.runtime.api import Api
from poolhouse.runtime.events import EventRecorder
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.optional_informer import OptionalInformer
from poolhouse.runtime.resource import KUBEVIRTS, Resource
from poolhouse.service.json_api import Endpoint


@dataclass(frozen=True, kw_only=True)
class ControllerContext:
    """What the components of a process share."""

    api: Api
    events: EventRecorder
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    planner: Planner = field(default_factory=Planner)
    defaulter: Defaulter | None = None
    """None if VMs get no hardware defaults"""
    seed: str = ""
    """of the MAC addresses and UUIDs of VMs: POOLHOUSE_IDENTITY_SEED"""
    burst: int = 250
    """VMs that one pool creates or updates at the same time"""
    limits: ReplicaLimits | None = None
    """None if there is no limit of replicas"""

    @property
    def replica_limit(self) -> Callable[[str], int | None]:
        """What returns the limit of a namespace."""
        return self.limits.of if self.limits is not None else unknown_limit

    @cached_property
    def reference_rights(self) -> ReferenceRights:
        return ReferenceRights(self.api)

    # Several components run these informers, whose resources the cluster may not serve.

    @cached_property
    def data_sources(self) -> OptionalInformer[DataSource]:
        return OptionalInformer(self.api, DATA_SOURCES, parse_data_source)

    @cached_property
    def image_sources(self) -> ImageSources:
        return ImageSources(lambda key: self.data_sources.get(key[1], key[0]), self.reference_rights)

    @cached_property
    def kubevirts(self) -> OptionalInformer[Json]:
        return OptionalInformer(self.api, KUBEVIRTS, excerpt)

    def cluster_settings(self) -> ClusterSettings | None:
        """None if they are unknown."""
        return ClusterSettings.chosen(self.kubevirts.all)

    @cached_property
    def budgets(self) -> OptionalInformer[EvictionBudget]:
        return BUDGET_SOURCE.optional_informer(self.api)

    def creator(self, resource: Resource, api: Api | None = None) -> DefaultingCreator:
        """Creates VMs or VMIs, with another client if one is given."""
        api = api or self.api
        return DefaultingCreator(api, resource, self.defaulter, self.seed, api.monotonic)


@dataclass(frozen=True)
class Component:
    name: str
    informers: tuple[Informer[Any], ...]
    """Every replica runs the informers, so that a new leader starts with full stores."""
    work: Callable[[], Coroutine[Any, Any, None]]
    """The leader runs the coroutine once the stores are full, until it is cancelled."""
    answers: Mapping[str, Endpoint] = field(default_factory=dict)
    """HTTP endpoints of every replica, by path."""
