"""`poolhouse disks`: lists retained disks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from poolhouse.api.apimachinery.quantity import for_people
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.cluster import Cluster, all_namespaces, cluster_options
from poolhouse.cli.output import Column, Listing, field
from poolhouse.cli.parameters import POOL, qualified_name

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api

LISTING = Listing(
    (
        field("DISK", "claim"),
        Column("SIZE", lambda row: for_people(row["size"])),
        field("VM", "vm"),
        Column("POOL", lambda row: row["pool"] or f"deleted ({row['retainedBy']})"),
        Column("EXPIRES", lambda row: row["expires"] if not row["usedAt"] else f"in use at {row['usedAt']}"),
        field("CAUSE", "cause", wide=True),
        field("RETAINED", "retained", wide=True),
        field("CREATED", "created", wide=True),
    ),
    name=lambda row: qualified_name("PersistentVolumeClaim", row["claim"]),
)


@click.command()
@click.argument("pool", type=POOL, required=False)
@LISTING.option
@all_namespaces
@cluster_options
def disks(cluster: Cluster, pool: str | None, output: str) -> None:
    """List the disks that pools retained, and the VM that gets each one back.

    A disk that was retained at scale-in returns to the next VM of the name. A disk that an update replaced returns if
    the update is undone; -o wide shows the cause.

    EXPIRES is the time at which the pool deletes a disk by its retainedDisks.ttlSeconds. A retained disk of a deleted
    pool stays until you delete its PersistentVolumeClaim.
    """
    rows = [row for row in cluster.run(lambda api: _rows(api, cluster.scope)) if pool is None or row["pool"] == pool]
    nothing = f"{pool} has no retained disks" if pool else "there are no retained disks"
    LISTING.show(output, rows, nothing=f"{nothing} in {cluster.place}", everywhere=cluster.everywhere)


async def _rows(api: Api, namespace: str | None) -> list[Json]:
    from poolhouse.api.kinds import meta
    from poolhouse.cli.resources import POOLS
    from poolhouse.runtime.resource import PVCS

    claims, _ = await api.list(PVCS, namespace, label_selector=meta.KEPT_BY)
    pools, _ = await api.list(POOLS, namespace)
    known = {each["metadata"]["uid"]: each for each in pools}
    rows = []
    for claim in claims:
        metadata, labels = claim["metadata"], claim["metadata"]["labels"]
        keeper = labels[meta.KEPT_BY]
        capacity = (claim.get("status") or {}).get("capacity") or claim["spec"].get("resources", {}).get("requests", {})
        rows.append(
            {
                "namespace": metadata["namespace"],
                "claim": metadata["name"],
                "vm": labels.get(meta.KEPT_FOR, ""),
                "pool": known[keeper]["metadata"]["name"] if keeper in known else None,
                "expires": _expiry(claim, known[keeper]) if keeper in known else None,
                "retained": (metadata.get("annotations") or {}).get(meta.RETAINED_AT),
                "usedAt": (metadata.get("annotations") or {}).get(meta.USED_AT),
                "cause": "update" if meta.REPLACED in labels else "scale-in",
                "retainedBy": labels[meta.KEPT_BY],
                "size": capacity.get("storage"),
                "created": metadata.get("creationTimestamp"),
            }
        )
    return rows


def _expiry(claim: Json, pool: Json) -> str | None:
    """Returns the time at which the pool deletes the disk, or None if it does not."""
    from controllers.pool.pools import Pool, parse_pool
    from controllers.pool.rules.retention import expires_at
    from controllers.shared.vm import parse_retained_disk
    from poolhouse.api.apimachinery.timestamps import format_time

    found = parse_pool(pool)
    end = expires_at(parse_retained_disk(claim), found.spec.retained_disks) if isinstance(found, Pool) else None
    return format_time(end) if end is not None else None
