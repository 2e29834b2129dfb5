"""`poolhouse disks`: the disks that scale-in has kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cli.cluster import Cluster, all_namespaces, cluster_options
from cli.resource_names import POOL, complete_names, qualified_name
from cli.table import Column, Listing, field

if TYPE_CHECKING:
    from runtime.api import Api

Json = dict[str, Any]

LISTING = Listing(
    (
        field("DISK", "claim"),
        field("SIZE", "size"),
        field("VM", "vm"),
        Column("POOL", lambda row: row["pool"] or f"a pool that is gone ({row['keptBy']})"),
        field("CREATED", "created", wide=True),
    ),
    name=lambda row: qualified_name("PersistentVolumeClaim", row["claim"]),
)


@click.command()
@click.argument("pool", type=POOL, required=False, shell_complete=complete_names("virtualmachinepools"))
@LISTING.option
@all_namespaces
@cluster_options
def disks(cluster: Cluster, pool: str | None, output: str) -> None:
    """List the disks that scale-in has kept, and which VM each comes back to.

    A disk whose pool is gone stays until somebody deletes its PersistentVolumeClaim.
    """
    rows = cluster.run(lambda api: _rows(api, cluster.scope))
    chosen = [row for row in rows if pool is None or row["pool"] == pool]
    nothing = f"no disks of {pool} are kept" if pool else "no disks are kept"
    LISTING.show(output, chosen, nothing=nothing, everywhere=cluster.everywhere)


async def _rows(api: Api, namespace: str | None) -> list[Json]:
    from controllers.pool.observe import POOLS
    from controllers.shared.sources import PVCS
    from kinds import meta

    claims, _ = await api.list(PVCS, namespace, label_selector=meta.KEPT_BY)
    pools, _ = await api.list(POOLS, namespace)
    pool_names = {each["metadata"]["uid"]: each["metadata"]["name"] for each in pools}
    found = []
    for claim in claims:
        metadata = claim["metadata"]
        labels = metadata["labels"]
        capacity = (claim.get("status") or {}).get("capacity") or claim["spec"].get("resources", {}).get("requests", {})
        found.append(
            {
                "namespace": metadata["namespace"],
                "claim": metadata["name"],
                "vm": labels.get(meta.KEPT_FOR, ""),
                "pool": pool_names.get(labels[meta.KEPT_BY]),
                "keptBy": labels[meta.KEPT_BY],
                "size": capacity.get("storage"),
                "created": metadata.get("creationTimestamp"),
            }
        )
    return found
