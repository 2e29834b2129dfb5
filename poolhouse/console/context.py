"""What every page may use, and how it reads an object that no view has as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.cluster import Cluster
from poolhouse.console import change, vm_usage
from poolhouse.console.cluster_state import ClusterState
from poolhouse.runtime.errors import Forbidden, NotFound
from poolhouse.runtime.resource import VMIS, VMS, Key, Resource


@dataclass(frozen=True)
class Context:
    """What every page may use."""

    state: ClusterState
    cluster: Cluster
    drafts: change.Drafts = field(default_factory=change.Drafts)
    metrics: vm_usage.Metrics | None = None


class Missing(Exception):
    """There is no such page or object."""


async def read_document(state: ClusterState, resource: Resource, key: Key) -> Json:
    view = (state.pools.vms if resource is VMS else state.pools.vmis).get(key)
    # Without the right to list, no watch tells of a change.
    stamp: object = view.resource_version if view is not None else object()
    try:
        return await state.remember((resource.plural, key), stamp, lambda: state.api.get(resource, *key))
    except NotFound:
        raise Missing(f"There is no {resource.kind} {key[1]} in namespace {key[0]}.") from None


async def read_guest(state: ClusterState, key: Key) -> Json | None:
    """The VMI; None if there is none, or if the user may not get it."""
    try:
        return await read_document(state, VMIS, key)
    except (Missing, Forbidden):
        return None
