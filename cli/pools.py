"""Reading a pool and what belongs to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli.cluster import Cluster

if TYPE_CHECKING:
    from runtime.api import Api

Json = dict[str, Any]

KIND = "VirtualMachinePool"


def controller_of(document: Json) -> Json | None:
    """The owner reference of whoever controls an object."""
    references = document["metadata"].get("ownerReferences") or ()
    return next((each for each in references if each.get("controller")), None)


def is_controlled_by(document: Json, uid: str) -> bool:
    return (controller_of(document) or {}).get("uid") == uid


async def get_pool(api: Api, cluster: Cluster, name: str) -> Json:
    from controllers.pool.observe import POOLS

    return await api.get(POOLS, cluster.namespace, name)


async def get_vm(api: Api, cluster: Cluster, name: str) -> Json:
    from runtime.resource import VMS

    return await api.get(VMS, cluster.namespace, name)


async def list_vms(api: Api, pool: Json) -> list[Json]:
    """All VMs that the pool owns."""
    from runtime.resource import VMS

    metadata = pool["metadata"]
    found: list[Json] = []
    async for items, _ in api.pages(VMS, metadata["namespace"]):
        found += [each for each in items if is_controlled_by(each, metadata["uid"])]
    return found


async def list_revisions(api: Api, pool: Json) -> list[Json]:
    """The templates that this very pool has had, the oldest first."""
    from controllers.pool.observe import REVISIONS

    metadata = pool["metadata"]
    items, _ = await api.list(REVISIONS, metadata["namespace"])
    return sorted(
        (each for each in items if is_controlled_by(each, metadata["uid"])), key=lambda each: int(each["revision"])
    )


def current_revision(pool: Json, revisions: list[Json]) -> str:
    """The name of the revision that the pool's spec says now, which its status may not say yet; empty when it was not
    written down yet."""
    from controllers.pool.revisions import content, content_hash, parse_revision
    from kinds.pool import PoolSpec

    wanted = content_hash(content(PoolSpec.model_validate(pool["spec"])))
    return next((each["metadata"]["name"] for each in revisions if parse_revision(each).template_hash == wanted), "")
