"""`poolhouse plan`: what a change would do to which VM, in order, without doing it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import yaml

from cli.cluster import Cluster, cluster_options
from cli.output import Failed, counted, output_option, print_json

if TYPE_CHECKING:
    from runtime.api import Api

Json = dict[str, Any]

MOST_STEPS = 1000


@click.command()
@click.argument("pool", required=False)
@click.option("-f", "--filename", "source", type=click.File("rb"), help="A manifest of pools; - for standard input.")
@click.option(
    "--burst", type=click.IntRange(1), default=250, show_default=True, help="The controllers' POOLHOUSE_BURST."
)
@output_option("text")
@cluster_options
def plan(cluster: Cluster, pool: str | None, source: Any, burst: int, output: str) -> None:
    """Print what would be done to which VM, in order, if all went well.

    With -f, if the pools in the file were applied; with the name of a POOL, what is still to be done for it. Nothing is
    changed: VMs are read with your own rights, and the controllers' own decisions are made here.
    """
    if (pool is None) == (source is None):
        raise click.UsageError("give the name of a pool, or -f FILE")
    documents = [_checked(each, cluster.namespace) for each in _documents(source)] if source is not None else []

    async def foresee(api: Api) -> list[Json]:
        if pool is not None:
            from cli.pooled import pool_named

            documents.append(await pool_named(api, cluster, pool))
        return [await _foreseen(api, each, burst) for each in documents]

    answers = cluster.run(foresee)
    if output == "json":
        print_json(answers[0] if len(answers) == 1 else answers)
        return
    for each in answers:
        _say(each)


def _documents(source: Any) -> list[Json]:
    try:
        loaded = [each for each in yaml.safe_load_all(source.read()) if each is not None]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Failed(f"no YAML: {error}") from None
    pools = [each for each in loaded if isinstance(each, dict) and each.get("kind") == "VirtualMachinePool"]
    if not pools:
        raise Failed("there is no VirtualMachinePool in it")
    return pools


def _checked(document: Json, namespace: str) -> Json:
    """As it would be stored. Says every problem at once."""
    from kinds.pool import POOL

    document = POOL.normalize(document)
    if problems := POOL.problems(document):
        raise Failed("\n  ".join(["it would be refused:", *(f"{p.path}: {p.message}" for p in problems)]))
    return {**document, "metadata": {"namespace": namespace, **document["metadata"]}}


async def _foreseen(api: Api, document: Json, burst: int) -> Json:
    from controllers.pool.ask import imagined
    from controllers.pool.foresee import foresee, rows
    from controllers.pool.look import look
    from controllers.pool.state import Misfit

    metadata = document["metadata"]
    state = imagined(await look(api, metadata["namespace"]), document, burst)
    if isinstance(state, Misfit):
        raise Failed(f"{metadata['name']}: {state.problem}")
    found = foresee(state, datetime.now(UTC), MOST_STEPS)
    waits = [{"vm": each.name, "reason": each.reason} for each in found.waits]
    return {
        "pool": metadata["name"],
        "plan": list(rows(found)),
        "waits": waits,
        "blocked": found.blocked,
        "refused": found.refused,
        "complete": found.complete,
    }


def _say(answer: Json) -> None:
    if not answer["plan"]:
        click.echo(f"{answer['pool']}: nothing would be done")
    else:
        steps = answer["plan"][-1]["step"]
        click.echo(
            f"{answer['pool']}: {counted(len(answer['plan']), 'action')} in {counted(steps, 'round')}, if all goes well"
        )
    width = max((len(row["vm"]) for row in answer["plan"]), default=0)
    for row in answer["plan"]:
        click.echo(f"  {row['step']:>4}  {row['action']:<12}  {row['vm']:<{width}}  {row['reason']}")
    if not answer["complete"]:
        click.echo("  and so on")
    for wait in answer["waits"]:
        click.echo(f"  {wait['vm']} waits: {wait['reason']}")
    for reason in (answer["blocked"], answer["refused"]):
        if reason:
            click.echo(f"  {reason}")
