"""`poolhouse overview`: all objects of Poolhouse in a namespace, with their health."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NoReturn

import click

from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.timestamps import parse_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.resource_types import OURS, ResourceType
from poolhouse.cli.claim_status import vm_of
from poolhouse.cli.cluster import Cluster, all_namespaces, cluster_options, list_kinds
from poolhouse.cli.health import COLOURS, assess, format_age
from poolhouse.cli.live import LiveLines
from poolhouse.cli.output import Column, Failed, Listing, echo, field, is_structured, style
from poolhouse.cli.parameters import qualified_name, short_name
from poolhouse.cli.patience import until_answered
from poolhouse.cli.service_facts import brief_checks
from poolhouse.cli.service_health import Check, describe_unknown, failed, summarize

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api

POLL_SECONDS = 2.0
HEALTH_SECONDS = 20.0
"""pause between the questions of `--watch` whether Poolhouse itself works"""
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
@click.option(
    "--wrong", is_flag=True, help="Show only degraded objects; exit with 1 if there are any, or if Poolhouse is down."
)
@click.option(
    "--watch", "-w", is_flag=True, help="Follow the changes until Ctrl-C: in place in a terminal, else as a new list."
)
@LISTING.option
@all_namespaces
@cluster_options
def overview(cluster: Cluster, wrong: bool, watch: bool, output: str) -> None:
    """Show all pools, replica sets, warm pools, claims and migration policies, with their health.

    The state is Healthy, Progressing, Suspended or Degraded, by the conditions Ready, Reconciling and Stalled, as in
    Argo CD. Claims are left out once they are released or expired, and an hour after they failed. If Poolhouse itself
    does not work, a line on stderr says so.
    """
    view = View(cluster, wrong, output)
    if watch:
        cluster.run(view.follow)
    rows, checks = cluster.run(view.read_all)
    outage = summarize(checks)
    if outage:
        echo(style(outage, "red"), err=True)
    if rows or not (wrong and outage) or is_structured(output):
        view.show(rows, describe_unknown(checks))
    if wrong and (rows or outage):
        down = ", ".join(each.name for each in failed(checks))
        parts = (f"an outage of Poolhouse itself ({down})" if down else "", _degraded(len(rows)))
        raise Failed("; ".join(filter(None, parts)), shown=True)


def _degraded(number: int) -> str:
    return count_noun(number, "degraded object") if number else ""


@dataclass(frozen=True)
class View:
    """What the command reads and prints."""

    cluster: Cluster
    wrong: bool
    output: str

    @property
    def nothing(self) -> str:
        place = self.cluster.place
        return f"no object is degraded in {place}" if self.wrong else f"no objects of Poolhouse in {place}"

    async def read(self, api: Api) -> list[Json]:
        rows = await _rows(api, self.cluster.scope, datetime.now(UTC))
        return [row for row in rows if row["state"] == "Degraded"] if self.wrong else rows

    async def read_all(self, api: Api) -> tuple[list[Json], list[Check]]:
        return await asyncio.gather(self.read(api), brief_checks(api, self.cluster.namespace))

    def show(self, rows: list[Json], unknown: str = "") -> None:
        nothing = f"{self.nothing}; {unknown}" if self.wrong and unknown else self.nothing
        LISTING.show(self.output, rows, nothing=nothing, everywhere=self.cluster.everywhere)

    async def follow(self, api: Api) -> NoReturn:
        before: list[Json] | None = None
        health = HealthLine(api, self.cluster.namespace)
        with LiveLines() as view:
            rows, line = await asyncio.gather(self.read(api), health.read())
            while True:
                if is_structured(self.output):
                    if before is None or _without_age(before) != _without_age(rows):
                        if before is not None and self.output == "yaml":
                            echo("---")
                        self.show(rows)
                    before = rows
                else:
                    view.show(list(self._lines(rows, line)), f"{line}{_without_age(rows)}")
                await asyncio.sleep(POLL_SECONDS)
                rows = await until_answered(api, lambda: self.read(api))
                line = await health.read()

    def _lines(self, rows: list[Json], outage: str) -> Iterator[str]:
        if outage:
            yield outage
        if rows:
            yield from LISTING.lines(self.output, rows, everywhere=self.cluster.everywhere)
        elif not (self.wrong and outage):
            yield self.nothing


class HealthLine:
    """The line about an outage of Poolhouse, which is read again after some time."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self._line, self._read_at = "", float("-inf")

    async def read(self) -> str:
        if self._api.monotonic() - self._read_at >= HEALTH_SECONDS:
            self._line = summarize(await brief_checks(self._api, self._namespace))
            self._read_at = self._api.monotonic()
        return self._line


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
    vm = vm_of(status)
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
    objects, hidden = await list_kinds(api, OURS, namespace)
    if hidden:
        if len(hidden) == len(OURS):
            where = f"namespace {namespace}" if namespace else "all namespaces; choose one with -n"
            raise Failed(f"you may not list any kind of Poolhouse in {where}")
        echo(f"not shown, because you may not list them: {', '.join(each.plural for each in hidden)}", err=True)
    return [
        object_row(kind, each, now)
        for kind in OURS
        for each in current([each for each in objects if each["kind"] == kind.kind], kind, now)
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
