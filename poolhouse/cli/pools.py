"""Reads a pool, its VMs and its revisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import resource_types
from poolhouse.cli.cluster import Cluster

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api

POOL_KIND = "VirtualMachinePool"
BURST = 250
"""the default of the controllers' POOLHOUSE_BURST, with which simulations run"""


def controlling_pool(document: Json) -> Json | None:
    """The owner reference to the pool that controls a VM; None if its controller is no pool of Poolhouse."""
    owner = controller_of(document)
    return owner if owner is not None and owner["kind"] == POOL_KIND and not _is_of_kubevirt(owner) else None


def describe_controller(owner: Json) -> str:
    """KubeVirt's own pools have a kind of the same name."""
    return f"KubeVirt's pool {owner['name']}" if _is_of_kubevirt(owner) else f"{owner['kind']} {owner['name']}"


def _is_of_kubevirt(owner: Json) -> bool:
    group = str(owner["apiVersion"]).partition("/")[0]
    return owner["kind"] == POOL_KIND and group != resource_types.POOLS.group


def is_controlled_by(document: Json, uid: str) -> bool:
    return (controller_of(document) or {}).get("uid") == uid


async def get_pool(api: Api, cluster: Cluster, name: str) -> Json:
    from poolhouse.cli.resources import POOLS

    return await api.get(POOLS, cluster.namespace, name)


async def get_vm(api: Api, cluster: Cluster, name: str) -> Json:
    from poolhouse.runtime.resource import VMS

    return await api.get(VMS, cluster.namespace, name)


async def list_vms(api: Api, pool: Json) -> list[Json]:
    """Returns the VMs that the pool controls."""
    from poolhouse.runtime.resource import VMS

    metadata = pool["metadata"]
    pages = api.pages(VMS, metadata["namespace"])
    return [each async for items, _ in pages for each in items if is_controlled_by(each, metadata["uid"])]


async def list_revisions(api: Api, pool: Json) -> list[Json]:
    """Returns the pool's revisions, the oldest first, also those whose owner somebody has removed."""
    from controllers.pool.revisions import parse_revision, without_owner
    from poolhouse.runtime.resource import CONTROLLER_REVISIONS

    metadata = pool["metadata"]
    items, _ = await api.list(CONTROLLER_REVISIONS, metadata["namespace"])
    free = map(parse_revision, (each for each in items if controller_of(each) is None))
    names = {each.name for each in without_owner(metadata["name"], metadata["uid"], free)}
    own = (each for each in items if is_controlled_by(each, metadata["uid"]) or each["metadata"]["name"] in names)
    return sorted(own, key=lambda each: int(each["revision"]))


def current_revision(pool: Json, revisions: list[Json]) -> str:
    """Returns the name of the revision that equals the pool's current spec, because the status may be older. Empty if
    the controller has not created the revision yet. Of revisions that differ only in what DataSources pointed at, it is
    the one in the status, or else the last."""
    from controllers.pool.revision_content import content, content_hash, of_spec
    from poolhouse.api.kinds.pool import PoolSpec

    namespace = pool["metadata"]["namespace"]
    wanted = content_hash(content(PoolSpec.model_validate(pool["spec"])), namespace)
    found = [each["metadata"]["name"] for each in revisions if content_hash(of_spec(each), namespace) == wanted]
    last = (pool.get("status") or {}).get("updateRevision")
    return str(last) if last in found else found[-1] if found else ""
