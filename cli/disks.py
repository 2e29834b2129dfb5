"""`poolhouse disks`: the disks that scale-in has kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cli.cluster import Cluster, cluster_options
from cli.names import names
from cli.output import output_option, print_as, structured

if TYPE_CHECKING:
    from runtime.api import Api

Json = dict[str, Any]


@click.command()
@click.argument("pool", required=False, shell_complete=names("virtualmachinepools"))
@output_option("text")
@cluster_options
def disks(cluster: Cluster, pool: str | None, output: str) -> None:
    """List the disks that scale-in has kept, and which VM each comes back to.

    A disk whose pool is gone stays until somebody deletes its PersistentVolumeClaim.
    """
    rows = cluster.run(lambda api: _rows(api, cluster.namespace))
    if pool is not None:
        rows = [row for row in rows if row["pool"] == pool]
    if structured(output):
        print_as(output, rows)
        return
    if not rows:
        click.echo("no disks are kept")
    for row in rows:
        owner = row["pool"] or f"a pool that is gone ({row['keptBy']})"
        click.echo(f"{row['claim']}  {row['size'] or '?'}  for {row['vm']} of {owner}")


async def _rows(api: Api, namespace: str) -> list[Json]:
    from controllers.pool.stores import CLAIMS, POOLS
    from kinds import meta

    claims, _ = await api.list(CLAIMS, namespace, label_selector=meta.KEPT_BY)
    pools, _ = await api.list(POOLS, namespace)
    names = {each["metadata"]["uid"]: each["metadata"]["name"] for each in pools}
    found = []
    for claim in claims:
        metadata = claim["metadata"]
        labels = metadata["labels"]
        capacity = (claim.get("status") or {}).get("capacity") or claim["spec"].get("resources", {}).get("requests", {})
        found.append(
            {
                "claim": metadata["name"],
                "vm": labels.get(meta.KEPT_FOR, ""),
                "pool": names.get(labels[meta.KEPT_BY]),
                "keptBy": labels[meta.KEPT_BY],
                "size": capacity.get("storage"),
                "created": metadata.get("creationTimestamp"),
            }
        )
    return found
