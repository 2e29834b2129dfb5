"""`poolhouse overview`: all objects of Poolhouse in a namespace, with their health."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.timestamps import parse_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.resource_types import OURS, ResourceType
from poolhouse.cli.cluster import Cluster, all_namespaces, cluster_options, list_visible
from poolhouse.cli.health import COLOURS, assess, format_age
from poolhouse.cli.live import LiveLines
from poolhouse.cli.output import Column, Failed, Listing, echo, field, is_structured
from poolhouse.cli.parameters import qualified_name, short_name
from poolhouse.runtime.resource import Resource

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api

POLL_SECONDS = 2.0
FAILURE_SHOWN = timedelta(hours=1)
"""time for which an object that failed for good is shown"""
STATE = Column("STATE", lambda row: row["state"], colour=lambda row: COLOURS[row["state"]])
LISTING = Listing(
    (
        Column("NAME", lambda row: f"{short_name(row['kind'])}/{row['name']}"),
        field("DESIRED", "desired"),
        field("READY", "ready"),
        field("UPDATED", "updated"),
        field("AGE", "age"),
        STATE,
        field("MESSAGE", "message"),
        field("DETAIL", "detail", wide=True),
    ),
    name=lambda row: qualified_name(row["kind"], row["name"]),
)


@click.command()
@click.option("--wrong", is_flag=True, help="Show only degraded objects; exit with 1 if there are any.")
@click.option(
    "--watch", "-w", is_flag=True, help="Follow the changes until Ctrl-C: in place in a terminal, else as a new list."
)
@LISTING.option
@all_namespaces
@cluster_options
def overview(cluster: Cluster, wrong: bool, watch: bool, output: str) -> None:
    """Show all pools, replica sets, warm pools, claims and migration policies, with their health.

    The state is Healthy, Progressing, Suspended or Degraded, by the conditions Ready, Reconciling and Stalled, as in
    Argo CD. Finished claims are left out.
    """
    nothing = f"no object is degraded in {cluster.place}" if wrong else f"no objects of Poolhouse in {cluster.place}"

    async def read(api: Api) -> list[Json]:
        rows = await _rows(api, cluster.scope, datetime.now(UTC))
        return [row for row in rows if row["state"] == "Degraded"] if wrong else rows

    def show(rows: list[Json]) -> None:
        LISTING.show(output, rows, nothing=nothing, everywhere=cluster.everywhere)

    async def follow(api: Api) -> list[Json]:
        before: list[Json] | None = None
        with LiveLines() as view:
            while True:
                rows = await read(api)
                if is_structured(output):
                    if before is None or _without_age(before) != _without_age(rows):
                        if before is not None and output == "yaml":
                            echo("---")
                        show(rows)
                    before = rows
                else:
                    lines = LISTING.lines(output, rows, everywhere=cluster.everywhere) if rows else [nothing]
                    view.show([*lines], str(_without_age(rows)))
                await asyncio.sleep(POLL_SECONDS)

    if watch:
        cluster.run(follow)
    rows = cluster.run(read)
    show(rows)
    if wrong and rows:
        raise Failed(f"{count_noun(len(rows), 'degraded object')}", shown=True)


def object_row(kind: ResourceType, document: Json, now: datetime) -> Json:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    health = assess(document)
    scales = spec.get("replicas") is not None
    return {
        "kind": kind.kind,
        "namespace": document["metadata"].get("namespace"),
        "name": document["metadata"]["name"],
        "desired": status.get("desiredReplicas", spec.get("replicas")),
        "ready": int(status.get(kind.ready_replicas) or 0) if scales else None,
        "updated": int(status.get(kind.updated_replicas) or 0) if scales and kind.updated_replicas else None,
        "age": format_age(document, now),
        "state": health.state,
        "message": health.message,
        "detail": _detail(status),
    }


def _detail(status: Json) -> str:
    """Returns the VM of a claim, the counts of claims and disks of a pool, or the count of VMIs of a policy."""
    vm = (status.get("vmRef") or {}).get("name") or (status.get("instanceRef") or {}).get("id")
    addresses = ", ".join(status.get("addresses") or ())
    parts = (
        (f"{vm}{f' at {addresses}' if addresses else ''}") if vm else "",
        f"{count_noun(status['queuedClaims'], 'claim')} queued" if status.get("queuedClaims") else "",
        f"{status['claimed']} claimed" if status.get("claimed") else "",
        f"{count_noun(status['retainedDisks'], 'disk')} retained" if status.get("retainedDisks") else "",
        f"applies to {count_noun(status['wins'], 'VMI')}" if status.get("wins") else "",
    )
    return "; ".join(part for part in parts if part)


def _without_age(rows: Sequence[Json]) -> list[Json]:
    return [{**row, "age": ""} for row in rows]


async def _rows(api: Api, namespace: str | None, now: datetime) -> list[Json]:
    lists = await asyncio.gather(*(list_visible(api, Resource.of(kind), namespace) for kind in OURS))
    if hidden := [kind.plural for kind, found in zip(OURS, lists, strict=True) if found is None]:
        if len(hidden) == len(OURS):
            where = f"namespace {namespace}" if namespace else "all namespaces; choose one with -n"
            raise Failed(f"you may not list any kind of Poolhouse in {where}")
        echo(f"not shown, because you may not list them: {', '.join(hidden)}", err=True)
    return [
        object_row(kind, each, now)
        for kind, found in zip(OURS, lists, strict=True)
        for each in current(found or (), kind, now)
    ]


def current(found: Sequence[Json], kind: ResourceType, now: datetime) -> Iterator[Json]:
    """The objects in order of their names, without finished ones, and without those that failed an hour ago."""
    finished, failed = (kind.phases.finished, kind.phases.failed) if kind.phases else ((), None)
    for each in sorted(found, key=lambda each: (each["metadata"].get("namespace") or "", each["metadata"]["name"])):
        status = each.get("status") or {}
        end = status.get("finishedAt") if status.get("phase") == failed else None
        past = end is not None and now - parse_time(end) >= FAILURE_SHOWN
        if status.get("phase") not in finished and not past:
            yield each
