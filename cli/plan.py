"""`poolhouse plan`: what a change would do to which VM, in order, without doing it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from cli.cluster import Cluster, cluster_options
from cli.manifests import Manifest, read_manifests
from cli.output import Failed, count_noun, is_structured, print_structured
from cli.resource_names import complete_names, parse_name, qualified_name
from cli.table import Listing, field

if TYPE_CHECKING:
    from kinds.kind import Kind
    from runtime.api import Api

Json = dict[str, Any]

MOST_STEPS = 1000


POOL = "VirtualMachinePool"
STEPS = Listing(
    (field("ROUND", "step"), field("ACTION", "action"), field("VM", "vm"), field("REASON", "reason")),
    name=lambda row: qualified_name(row["kind"], row["vm"]),
)


def planned_kinds() -> tuple[Kind, ...]:
    from kinds import KINDS

    return tuple(kind for kind in KINDS if kind.plan_path)


@click.command()
@click.argument("name", required=False, shell_complete=complete_names("virtualmachinepools", prefixes=planned_kinds))
@click.option(
    "-f", "--filename", "source", type=click.File("rb"), help="A manifest of pools and sets; - for standard input."
)
@click.option(
    "--burst", type=click.IntRange(1), default=250, show_default=True, help="The controllers' POOLHOUSE_BURST."
)
@STEPS.option
@cluster_options
def plan(cluster: Cluster, name: str | None, source: Any, burst: int, output: str) -> None:
    """Print what would be done to which VM, in order, if all went well.

    With -f, if the pools and replica sets in the file were applied; with the NAME of a pool, or vmirs/NAME of a replica
    set, what is still to be done for it. Nothing is changed: VMs are read with your own rights, and the controllers'
    own decisions are made here.
    """
    if (name is None) == (source is None):
        raise click.UsageError("give the name of a pool, vmirs/NAME of a replica set, or -f FILE")
    documents = [_checked(each, cluster.namespace) for each in _planned(source)] if source is not None else []

    async def foresee(api: Api) -> list[Json]:
        if name is not None:
            documents.append(await _named(api, cluster, *parse_name(name, *(kind.kind for kind in planned_kinds()))))
        return [await _foreseen(api, each, burst) for each in documents]

    answers = cluster.run(foresee)
    if is_structured(output):
        print_structured(output, answers[0] if len(answers) == 1 else answers)
        return
    for each in answers:
        _say(each, output)


def _planned(source: Any) -> list[Manifest]:
    """Those of a file that have plans; the others are none of ours."""
    every, planned = read_manifests(source), [kind.kind for kind in planned_kinds()]
    found = [each for each in every if each.document.get("kind") in planned]
    if not found:
        there = ", ".join(dict.fromkeys(map(str, every)))
        raise Failed(f"{every[0].file}: there is no {' and no '.join(planned)} in it, only {there}")
    return found


async def _named(api: Api, cluster: Cluster, kind: str, name: str) -> Json:
    if kind == POOL:
        from cli.pools import get_pool

        return await get_pool(api, cluster, name)
    from controllers.replicaset.observe import REPLICA_SETS

    return await api.get(REPLICA_SETS, cluster.namespace, name)


def _checked(manifest: Manifest, namespace: str) -> Json:
    """As it would be stored. Says every problem at once."""
    document = manifest.document
    kind = next(kind for kind in planned_kinds() if kind.kind == document["kind"])
    document = kind.normalize(document)
    if problems := kind.problems(document):
        raise Failed(
            "\n  ".join([f"{manifest.place}: it would be refused:", *(f"{p.path}: {p.message}" for p in problems)])
        )
    return {**document, "metadata": {"namespace": namespace, **document["metadata"]}}


async def _foreseen(api: Api, document: Json, burst: int) -> Json:
    of_kind = _pool_foreseen if document["kind"] == POOL else _set_foreseen
    return await of_kind(api, document, burst)


async def _set_foreseen(api: Api, document: Json, burst: int) -> Json:
    from controllers.replicaset.observe import list_stores
    from controllers.replicaset.plan import plan as decide
    from controllers.replicaset.simulate import hypothetical_snapshot, simulate
    from controllers.shared.invalid_spec import InvalidSpec

    metadata, now = document["metadata"], datetime.now(UTC)
    state = hypothetical_snapshot(await list_stores(api, metadata["namespace"]), document, burst)
    if isinstance(state, InvalidSpec):
        raise Failed(f"{metadata['name']}: {state.problem}")
    waits = [{"vm": each.vmi.name, "reason": each.why} for each in decide(state, now).waits]
    return {
        "replicaSet": metadata["name"],
        "plan": list(simulate(state, now)),
        "waits": waits,
        "blocked": "spec.paused is true" if state.replica_set.spec.paused else "",
        "refused": "",
        "complete": True,
    }


async def _pool_foreseen(api: Api, document: Json, burst: int) -> Json:
    from controllers.pool.observe import list_stores
    from controllers.pool.simulate import hypothetical_snapshot, rows, simulate
    from controllers.shared.invalid_spec import InvalidSpec

    metadata = document["metadata"]
    state = hypothetical_snapshot(await list_stores(api, metadata["namespace"]), document, burst)
    if isinstance(state, InvalidSpec):
        raise Failed(f"{metadata['name']}: {state.problem}")
    found = simulate(state, datetime.now(UTC), MOST_STEPS)
    waits = [{"vm": each.name, "reason": each.reason} for each in found.waits]
    return {
        "pool": metadata["name"],
        "plan": list(rows(found)),
        "waits": waits,
        "blocked": found.blocked,
        "refused": found.refused,
        "complete": found.complete,
    }


def _say(answer: Json, output: str) -> None:
    name, kind = answer.get("pool"), "VirtualMachine"
    if name is None:
        name, kind = answer["replicaSet"], "VirtualMachineInstance"
    table = STEPS.lines(output, [{**row, "kind": kind} for row in answer["plan"]])
    if output == "name":
        click.echo("".join(f"{line}\n" for line in table), nl=False)
        return
    if not answer["plan"]:
        click.echo(f"{name}: nothing would be done")
    else:
        steps = answer["plan"][-1]["step"]
        click.echo(
            f"{name}: {count_noun(len(answer['plan']), 'action')} in {count_noun(steps, 'round')}, if all goes well"
        )
        for line in table:
            click.echo(f"  {line}")
    if not answer["complete"]:
        click.echo("  and so on")
    for wait in answer["waits"]:
        click.echo(f"  {wait['vm']} waits: {wait['reason']}")
    for reason in (answer["blocked"], answer["refused"]):
        if reason:
            click.echo(f"  {reason}")
