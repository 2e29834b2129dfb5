"""`poolhouse overview`: everything of ours in a namespace on one screen, and what is wrong with it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from cli.cluster import Cluster, all_namespaces, cluster_options, list_visible
from cli.health import COLOURS, assess, assess_phase, format_age
from cli.output import Failed, count_noun
from cli.resource_names import qualified_name, short_name
from cli.table import Column, Listing, field

if TYPE_CHECKING:
    from kinds.kind import Kind
    from runtime.api import Api

Json = dict[str, Any]

EVERY_SECONDS = 2.0
LISTING = Listing(
    (
        Column("NAME", lambda each: f"{short_name(each['kind'])}/{each['name']}"),
        field("DESIRED", "desired"),
        field("READY", "ready"),
        field("UPDATED", "updated"),
        field("AGE", "age"),
        Column("STATE", lambda each: each["says"] or each["state"], colour=lambda each: COLOURS[each["state"]]),
        field("DETAIL", "detail", wide=True),
    ),
    name=lambda each: qualified_name(each["kind"], each["name"]),
)


@click.command()
@click.option("--wrong", is_flag=True, help="Only what is wrong; exits with 1 while there is anything.")
@click.option("--watch", "-w", is_flag=True, help="Print it again whenever it has changed, until Ctrl-C.")
@LISTING.option
@all_namespaces
@cluster_options
def overview(cluster: Cluster, wrong: bool, watch: bool, output: str) -> None:
    """Show all pools, replica sets, warm pools and claims of a namespace, and the migration policies.

    The state is what the objects' conditions say. Claims that are over are left out.
    """

    async def follow(api: Api) -> list[Json]:
        before: list[Json] | None = None
        while True:
            found = await _rows(api, cluster.scope, datetime.now(UTC))
            if wrong:
                found = [each for each in found if each["state"] == "wrong"]
            if before is None or _lasting(before) != _lasting(found):
                if before is not None:
                    click.echo("---" if output == "yaml" else "")
                _print(output, found, cluster, wrong)
            before = found
            if not watch:
                return found
            await asyncio.sleep(EVERY_SECONDS)

    found = cluster.run(follow)
    if wrong and found:
        raise Failed(f"{count_noun(len(found), 'object')} not as it should be")


def object_row(kind: Kind, document: Json, now: datetime) -> Json:
    """One object as it is shown and as programs get it."""
    spec, status = document.get("spec") or {}, document.get("status") or {}
    judged = assess_phase(document, kind.phases) if kind.phases else assess(document)
    counts = "replicas" in spec
    return {
        "kind": kind.kind,
        "namespace": document["metadata"].get("namespace"),
        "name": document["metadata"]["name"],
        "desired": spec.get("replicas"),
        "ready": int(status.get(kind.ready_replicas) or 0) if counts else None,
        "updated": int(status.get(kind.updated_replicas) or 0) if counts and kind.updated_replicas else None,
        "age": format_age(document, now),
        "state": judged.mood,
        "says": judged.says,
        "detail": _detail(status),
    }


def _detail(status: Json) -> str:
    """What a wide line has beside: whose a claim is, who waits for a pool, how many obey a policy."""
    vm = (status.get("vmRef") or {}).get("name") or (status.get("instanceRef") or {}).get("id")
    addresses = ", ".join(status.get("addresses") or ())
    parts = (
        (f"{vm}{f' at {addresses}' if addresses else ''}") if vm else "",
        f"{count_noun(status['queuedClaims'], 'claim')} in line" if status.get("queuedClaims") else "",
        f"{status['claimed']} claimed" if status.get("claimed") else "",
        f"{count_noun(status['keptDisks'], 'disk')} kept" if status.get("keptDisks") else "",
        f"{count_noun(status['wins'], 'VMI')} obey it" if status.get("wins") else "",
    )
    return "; ".join(part for part in parts if part)


def _print(output: str, rows: Sequence[Json], cluster: Cluster, wrong: bool) -> None:
    where = "any namespace" if cluster.everywhere else f"namespace {cluster.namespace}"
    nothing = f"nothing is wrong in {where}" if wrong else f"there is nothing of Poolhouse's in {where}"
    LISTING.show(output, rows, nothing=nothing, everywhere=cluster.everywhere)


def _lasting(rows: Sequence[Json]) -> list[Json]:
    return [{**each, "age": ""} for each in rows]


async def _rows(api: Api, namespace: str | None, now: datetime) -> list[Json]:
    from kinds import KINDS
    from runtime.resource import Resource

    listed = await asyncio.gather(*(list_visible(api, Resource.of(kind), namespace) for kind in KINDS))
    if hidden := [kind.plural for kind, found in zip(KINDS, listed, strict=True) if found is None]:
        if len(hidden) == len(KINDS):
            where = f"namespace {namespace}" if namespace else "all namespaces at once; ask in one, with -n"
            raise Failed(f"you may list nothing of Poolhouse's in {where}")
        click.echo(f"not shown, because you may not list them: {', '.join(hidden)}", err=True)
    return [
        object_row(kind, each, now)
        for kind, found in zip(KINDS, listed, strict=True)
        for each in _present(found or (), kind)
    ]


def _present(found: Sequence[Json], kind: Kind) -> Iterator[Json]:
    finished = kind.phases.finished if kind.phases else ()
    for each in sorted(found, key=lambda each: (each["metadata"].get("namespace") or "", each["metadata"]["name"])):
        if (each.get("status") or {}).get("phase") not in finished:
            yield each
