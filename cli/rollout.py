"""`poolhouse rollout`: how a pool's change goes, what it was before, and how to go back."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from cli.cluster import Cluster, cluster_options
from cli.diff import differences
from cli.duration import Duration
from cli.output import Failed, Unreachable, count_noun, is_structured, output_option, print_result, print_structured
from cli.pools import current_revision, get_pool, list_revisions, list_vms
from cli.resource_names import POOL, complete_names
from cli.table import Column, Listing, field

if TYPE_CHECKING:
    from runtime.api import Api

Json = dict[str, Any]

POLL_SECONDS = 0.5
CHANGES_SAID = 2
GIVEN_UP = ("ProgressDeadlineExceeded", "InvalidSpec", "DiskConflict")
"""Whatever else a pool doesn't get on for is tried again and again, and waited for until the pool's deadline: a full
quota, a server that was away."""

HISTORY = Listing(
    (
        field("REVISION", "revision"),
        field("CURRENT", "current"),
        field("VMS", "vms"),
        field("NAME", "name", wide=True),
        field("CREATED", "created", wide=True),
        Column("CHANGED", lambda row: summarize_changes(row["changes"])),
    ),
    name=lambda row: f"controllerrevision.apps/{row['name']}",
)


@click.group()
def rollout() -> None:
    """Follow, pause, resume and undo the changes of a pool."""


@rollout.command()
@click.argument("pool", type=POOL, shell_complete=complete_names("virtualmachinepools"))
@click.option("--watch/--no-watch", default=True, show_default=True, help="Stay until it is done or has failed.")
@click.option(
    "--timeout", "seconds", type=Duration(), default="1h", show_default=True, help="How long to stay at most."
)
@output_option("text")
@cluster_options
def status(cluster: Cluster, pool: str, watch: bool, seconds: float, output: str) -> None:
    """Say how far a change has come. Exits with 1 when it has failed, with 3 when it takes too long."""

    async def follow(api: Api) -> tuple[Json, str, str]:
        end, last = time.monotonic() + seconds, ""
        while True:
            document = await get_pool(api, cluster, pool)
            state, said = progress(document, api.now())
            if said != last and output == "text":
                click.echo(said)
            last = said
            if state != "going" or not watch or time.monotonic() > end:
                return document, state, said
            await asyncio.sleep(POLL_SECONDS)

    document, state, said = cluster.run(follow)
    if is_structured(output):
        print_structured(
            output, {"pool": pool, "state": state, "message": said, "status": document.get("status") or {}}
        )
    if state == "failed":
        raise Failed(said)
    if state == "going" and watch:
        raise Unreachable(f"not done within {seconds:g} s")


def progress(document: Json, at: datetime) -> tuple[str, str]:
    """("done", "going" or "failed", in words)."""
    metadata, spec, now = document["metadata"], document["spec"], document.get("status") or {}
    name, wanted = metadata["name"], spec["replicas"]
    conditions = {each["type"]: each for each in now.get("conditions") or ()}
    if now.get("observedGeneration", 0) < metadata["generation"]:
        return "going", f"{name}: the change has not been looked at yet"
    if spec.get("paused"):
        return "going", f"{name}: paused, until `rollout resume {name}`"
    stuck = conditions.get("Progressing", {})
    if stuck.get("status") == "False":
        over = stuck.get("reason") in GIVEN_UP or _too_long(spec, now, at)
        return "failed" if over else "going", f"{name}: {stuck.get('reason')}: {stuck.get('message')}"
    updated, available, have = (now.get(f"{each}Replicas", 0) for each in ("updated", "available", "ready"))
    total = now.get("replicas", 0)
    if updated < wanted or total < wanted:
        return "going", f"{name}: {updated} of {wanted} VMs have the new template"
    if total > wanted or now.get("terminatingReplicas", 0):
        leaving = max(total - wanted, 0) + now.get("terminatingReplicas", 0)
        return "going", f"{name}: {count_noun(leaving, 'VM')} {'is' if leaving == 1 else 'are'} still to go"
    if available < wanted:
        return "going", f"{name}: {available} of {wanted} VMs are available"
    return "done", f"{name}: {_all(wanted, have)}"


def _too_long(spec: Json, status: Json, at: datetime) -> bool:
    """It has not come nearer within the time that it was given."""
    last, seconds = status.get("lastProgressTime"), spec.get("progressDeadlineSeconds")
    if last is None or seconds is None:
        return False
    return at >= datetime.fromisoformat(last) + timedelta(seconds=seconds)


def _all(wanted: int, ready: int) -> str:
    match wanted:
        case 0:
            return "it has no VMs, and should have none"
        case 1:
            return f"its VM has the template, and is {'ready' if ready else 'not ready'}"
    return f"all {wanted} VMs have the template, {ready} are ready"


@rollout.command()
@click.argument("pool", type=POOL, shell_complete=complete_names("virtualmachinepools"))
@click.option("--revision", "number", type=int, help="Print the template of this one.")
@HISTORY.option
@cluster_options
def history(cluster: Cluster, pool: str, number: int | None, output: str) -> None:
    """List the templates that a pool has had, and what changed from one to the next."""

    async def look(api: Api) -> tuple[Json, list[Json], Counter[str]]:
        from kinds import meta

        document = await get_pool(api, cluster, pool)
        machines = await list_vms(api, document)
        labels = Counter((each["metadata"].get("labels") or {}).get(meta.REVISION, "") for each in machines)
        return document, await list_revisions(api, document), labels

    document, revisions, machines = cluster.run(look)
    rows = list(_rows(document, revisions, machines))
    if number is not None:
        chosen = _numbered(revisions, number)
        if output != "name":
            print_structured(output if is_structured(output) else "yaml", chosen["data"])
            return
        rows = [row for row in rows if row["revision"] == number]
    HISTORY.show(output, rows, nothing=f"no template of {pool} was written down yet")


def summarize_changes(every: Sequence[str]) -> str:
    """The first of the changes; all are told to programs."""
    more = len(every) - CHANGES_SAID
    return "; ".join([*every[:CHANGES_SAID], *([f"and {more} more"] if more > 0 else [])])


def _rows(document: Json, revisions: list[Json], machines: Counter[str]) -> Iterator[Json]:
    present = current_revision(document, revisions)
    before: Json | None = None
    for each in revisions:
        name = each["metadata"]["name"]
        yield {
            "revision": each["revision"],
            "name": name,
            "created": each["metadata"].get("creationTimestamp"),
            "vms": machines[name.rpartition("-")[2]],
            "current": name == present,
            "changes": [] if before is None else list(differences(before, each["data"])),
        }
        before = each["data"]


@rollout.command()
@click.argument("pool", type=POOL, shell_complete=complete_names("virtualmachinepools"))
@click.option("--to-revision", "number", type=int, help="Else the one before the present.")
@output_option("text")
@cluster_options
def undo(cluster: Cluster, pool: str, number: int | None, output: str) -> None:
    """Give a pool a template that it had before."""

    async def back(api: Api) -> Json:
        from controllers.pool.observe import POOLS

        document = await get_pool(api, cluster, pool)
        revisions = await list_revisions(api, document)
        chosen = _numbered(revisions, number) if number is not None else _previous(document, revisions)
        # With the generation that was looked at: an edit meanwhile must not be lost.
        patch = [{"op": "test", "path": "/metadata/generation", "value": document["metadata"]["generation"]}]
        patch += [{"op": "add", "path": f"/spec/{field}", "value": value} for field, value in chosen["data"].items()]
        await api.patch(POOLS, cluster.namespace, pool, patch, kind="json")
        return chosen

    chosen = cluster.run(back)
    number = chosen["revision"]
    print_result(output, f"{pool} has the template of revision {number} again", pool=pool, revision=number)


def _previous(document: Json, revisions: list[Json]) -> Json:
    present = current_revision(document, revisions)
    others = [each for each in revisions if each["metadata"]["name"] != present]
    if not others:
        raise Failed(f"{document['metadata']['name']} never had another template")
    return others[-1]


def _numbered(revisions: list[Json], number: int) -> Json:
    for each in revisions:
        if each["revision"] == number:
            return each
    known = ", ".join(str(each["revision"]) for each in revisions) or "none"
    raise Failed(f"there is no revision {number}; there are {known}")


@rollout.command()
@click.argument("pool", type=POOL, shell_complete=complete_names("virtualmachinepools"))
@output_option("text")
@cluster_options
def pause(cluster: Cluster, pool: str, output: str) -> None:
    """Leave a pool's VMs alone until it is resumed: none is made, changed, healed or deleted."""
    _set_paused(cluster, pool, True, output)


@rollout.command()
@click.argument("pool", type=POOL, shell_complete=complete_names("virtualmachinepools"))
@output_option("text")
@cluster_options
def resume(cluster: Cluster, pool: str, output: str) -> None:
    """Go on with a pool that was paused."""
    _set_paused(cluster, pool, False, output)


def _set_paused(cluster: Cluster, pool: str, paused: bool, output: str) -> None:
    async def write(api: Api) -> None:
        from controllers.pool.observe import POOLS

        await api.patch(POOLS, cluster.namespace, pool, {"spec": {"paused": paused}})

    cluster.run(write)
    print_result(output, f"{pool} is paused" if paused else f"{pool} goes on", pool=pool, paused=paused)
