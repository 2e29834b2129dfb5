"""Implements `poolhouse rollout`: shows, pauses, promotes, repeats and undoes updates of a pool."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import click

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.cluster import Cluster, cluster_options
from poolhouse.cli.command_group import CommandGroup
from poolhouse.cli.differences import history_rows, summarize_changes
from poolhouse.cli.doctor import with_outage
from poolhouse.cli.output import (
    Column,
    Failed,
    Listing,
    Unreachable,
    field,
    is_structured,
    output_option,
    print_result,
    print_structured,
)
from poolhouse.cli.parameters import POOL, Duration
from poolhouse.cli.patience import until_answered
from poolhouse.cli.pools import get_pool, list_revisions, list_vms
from poolhouse.cli.undo import find_revision, plan_undo, undo_update
from poolhouse.cli.updates import (
    POLL_SECONDS,
    UNOBSERVED,
    State,
    abort_update,
    finished_vms,
    next_commands,
    progress,
    promote_update,
    restart_vms,
    retry_update,
    set_paused,
)
from poolhouse.service.progress_bar import ProgressBar

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api


T = TypeVar("T")

HISTORY = Listing(
    (
        field("REVISION", "revision"),
        field("CURRENT", "current"),
        field("VMS", "vms"),
        Column("OUTCOME", lambda row: f"{row['outcome']} ({row['reason']})" if row["reason"] else row["outcome"]),
        field("NAME", "name", wide=True),
        field("CREATED", "created", wide=True),
        field("ENDED", "ended", wide=True),
        Column("CHANGED", lambda row: summarize_changes(row["changes"])),
    ),
    name=lambda row: f"controllerrevision.apps/{row['name']}",
)
pool_argument = click.argument("pool", type=POOL)


@click.group(cls=CommandGroup)
def rollout() -> None:
    """Follow, pause, promote, abort, repeat and undo updates of a pool."""


@rollout.command()
@pool_argument
@click.option("--watch/--no-watch", default=True, show_default=True, help="Wait until the update completes or fails.")
@click.option(
    "--timeout", "seconds", type=Duration(), default="0s", show_default=True, help="Longest wait; 0 means no limit."
)
@output_option("text")
@cluster_options
def status(cluster: Cluster, pool: str, watch: bool, seconds: float, output: str) -> None:
    """Print the progress of an update. Exits with 1 if it failed, with 3 after --timeout.

    At a pause of its steps it prints the commands that end the pause, and waits for one of them, as `kubectl rollout
    status` does. In a terminal, a bar shows the VMs that are updated and available, and an estimate of the time left.
    """
    document, state, message = cluster.run(lambda api: _follow(api, cluster, pool, watch, seconds, output))
    if is_structured(output):
        print_structured(
            output, {"pool": pool, "state": state, "message": message, "status": document.get("status") or {}}
        )
    if state == "Failed":
        raise Failed(message, shown=True)
    if state == "Progressing" and watch:
        raise Unreachable(f"not complete after {seconds:g} s", shown=True)


async def _follow(
    api: Api, cluster: Cluster, pool: str, watch: bool, seconds: float, output: str
) -> tuple[Json, State, str]:
    """Returns the pool with the state of its update and a message, at once or when the update has ended. Prints
    meanwhile what changes."""
    last: tuple[Json, State, str] | None = None
    told = ""
    with suppress(TimeoutError), ProgressBar(pool, None, shown=output == "text" and watch) as bar:
        # The limit also ends a request that the API server does not answer.
        async with asyncio.timeout(seconds or None):
            document = await with_outage(api, cluster, get_pool(api, cluster, pool))
            while True:
                state, message = progress(document)
                if state == "Complete" and not await until_answered(api, partial(_counts_hold, api, document)):
                    state, message = "Progressing", f"{pool}: {UNOBSERVED}"
                # The error of a failed update contains the message.
                if output == "text" and state != "Failed" and (last is None or message != last[2]):
                    bar.echo(message)
                if output == "text" and (advice := next_commands(document)) and advice != told:
                    told = advice
                    bar.echo(advice)
                bar.update(*finished_vms(document))
                last = document, state, message
                if state != "Progressing" or not watch:
                    break
                await asyncio.sleep(POLL_SECONDS)
                document = await until_answered(api, lambda: get_pool(api, cluster, pool))
    if last is None:
        raise Unreachable(f"no answer of the API server within {seconds:g} s")
    return last


async def _counts_hold(api: Api, document: Json) -> bool:
    """Whether the pool has as many VMs as its status says: a VM that was just deleted, detached or attached is not in
    the status yet. True for a user who may not list VMs."""
    from poolhouse.runtime.errors import Forbidden

    status = document["status"]
    try:
        vms = await list_vms(api, document)
    except Forbidden:
        return True
    deleting = sum("deletionTimestamp" in each["metadata"] for each in vms)
    return (len(vms) - deleting, deleting) == (status.get("replicas", 0), status.get("terminatingReplicas", 0))


@rollout.command()
@pool_argument
@click.option("--revision", "number", type=int, help="Print the template of this revision.")
@HISTORY.option
@cluster_options
def history(cluster: Cluster, pool: str, number: int | None, output: str) -> None:
    """List the revisions of a pool's template: how their updates ended, and the changes between them."""

    async def read(api: Api) -> tuple[Json, list[Json], Counter[str]]:
        from poolhouse.api.kinds import meta

        document = await get_pool(api, cluster, pool)
        vms = [each for each in await list_vms(api, document) if "deletionTimestamp" not in each["metadata"]]
        counts = Counter((each["metadata"].get("labels") or {}).get(meta.REVISION, "") for each in vms)
        return document, await list_revisions(api, document), counts

    document, revisions, counts = cluster.run(read)
    rows = list(history_rows(document, revisions, counts))
    if number is not None:
        chosen = find_revision(revisions, number)
        if output != "name":
            print_structured(output if is_structured(output) else "yaml", chosen["data"])
            return
        rows = [row for row in rows if row["revision"] == number]
    HISTORY.show(output, rows, nothing=f"{pool} has no revisions yet")


def _change(cluster: Cluster, change: Callable[[Api], Awaitable[T]]) -> T:
    """Carries out the change of a pool. If no part of Poolhouse would act on it, a line on stderr says so."""
    return cluster.run(lambda api: with_outage(api, cluster, change(api)))


@rollout.command()
@pool_argument
@click.option(
    "--to-revision", "number", type=int, help="Default: the last one that all VMs had, before the current one."
)
@click.option(
    "--restore-snapshots",
    is_flag=True,
    help="Give each VM its disks of before the update, too. What its guest has written since then is lost.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing, and print what would happen to each VM, as `plan` does.")
@output_option("text")
@cluster_options
def undo(cluster: Cluster, pool: str, number: int | None, restore_snapshots: bool, dry_run: bool, output: str) -> None:
    """Give a pool the template of an earlier revision.

    With --restore-snapshots, the pool restores the snapshots of snapshotBeforeUpdate, within maxUnavailable. A VM
    without a snapshot of the revision only gets the template."""

    if dry_run:
        from poolhouse.cli.plan import show_plan

        show_plan(
            _change(cluster, lambda api: plan_undo(api, cluster, pool, number, restore_snapshots=restore_snapshots)),
            output,
        )
        return
    done = _change(cluster, lambda api: undo_update(api, cluster, pool, number, restore_snapshots=restore_snapshots))
    restored = {"vms": done.restored} if restore_snapshots else {}
    print_result(output, done.message, pool=pool, revision=done.revision, **restored)


@rollout.command()
@pool_argument
@output_option("text")
@cluster_options
def pause(cluster: Cluster, pool: str, output: str) -> None:
    """Pause a pool: its VMs are not created, changed, healed or deleted until you resume it."""
    _set_paused(cluster, pool, True, output)


@rollout.command()
@pool_argument
@output_option("text")
@cluster_options
def resume(cluster: Cluster, pool: str, output: str) -> None:
    """Resume a paused pool."""
    _set_paused(cluster, pool, False, output)


@rollout.command()
@pool_argument
@click.option("--full", is_flag=True, help="Skip all remaining steps, not only the present one.")
@click.option("--step", type=click.IntRange(1), help="End this step; refused if the update is past it already.")
@output_option("text")
@cluster_options
def promote(cluster: Cluster, pool: str, full: bool, step: int | None, output: str) -> None:
    """End the present step of an update, such as a pause, so that the update continues."""
    if full and step is not None:
        raise click.UsageError("--full ends all steps, --step ends one: name one of the two")
    place = _change(cluster, lambda api: promote_update(api, cluster, pool, full=full, step=step))
    print_result(output, f"{pool} is promoted past {place}", pool=pool, full=full)


@rollout.command()
@pool_argument
@output_option("text")
@cluster_options
def abort(cluster: Cluster, pool: str, output: str) -> None:
    """Abort an update: VMs get the last template again that all of them had. The pool's template stays."""

    _change(cluster, lambda api: abort_update(api, cluster, pool))
    print_result(output, f"{pool} returns to its former template", pool=pool)


@rollout.command()
@pool_argument
@output_option("text")
@cluster_options
def retry(cluster: Cluster, pool: str, output: str) -> None:
    """Try an update again that was aborted or rolled back."""

    _change(cluster, lambda api: retry_update(api, cluster, pool))
    print_result(output, f"{pool} is updated again", pool=pool)


@rollout.command()
@pool_argument
@output_option("text")
@cluster_options
def restart(cluster: Cluster, pool: str, output: str) -> None:
    """Restart all VMs of a pool, as an update without another change: within maxUnavailable, by steps if there are."""

    _change(cluster, lambda api: restart_vms(api, cluster, pool))
    print_result(output, f"{pool} restarts its VMs", pool=pool)


def _set_paused(cluster: Cluster, pool: str, paused: bool, output: str) -> None:
    _change(cluster, lambda api: set_paused(api, cluster, pool, paused))
    print_result(output, f"{pool} is {'paused' if paused else 'resumed'}", pool=pool, paused=paused)
