"""`poolhouse plan`: simulates what a change of a pool or replica set would do to its VMs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.unstructured import Json, typed
from poolhouse.cli.apply import dry_run_server_side, read_change, send
from poolhouse.cli.cluster import Cluster, cluster_options
from poolhouse.cli.completion import complete_names
from poolhouse.cli.manifests import Manifest, read_manifests
from poolhouse.cli.output import Failed, Listing, echo, field, is_structured, print_structured
from poolhouse.cli.parameters import parse_name, qualified_name
from poolhouse.cli.pools import BURST, POOL_KIND

if TYPE_CHECKING:
    from controllers.pool.snapshot import PoolSnapshot
    from controllers.replicaset.observe import ReplicaSetSnapshot
    from controllers.shared.invalid_spec import InvalidSpec
    from poolhouse.api.kinds.kind import Kind
    from poolhouse.runtime.api import Api

S = TypeVar("S")
MAX_STEPS = 1000
SERVER_ERROR = 500
STEPS = Listing(
    (field("ROUND", "step"), field("ACTION", "action"), field("VM", "vm"), field("REASON", "reason")),
    name=lambda row: qualified_name(row["kind"], row["vm"]),
)


def planned_kinds() -> tuple[Kind, ...]:
    from poolhouse.api.kinds import KINDS

    return tuple(kind for kind in KINDS if kind.plan_path)


@click.command()
@click.argument("name", required=False, shell_complete=complete_names("virtualmachinepools", prefixes=planned_kinds))
@click.option(
    "-f", "--filename", "source", type=click.File("rb"), help="Manifest with pools and replica sets; - reads stdin."
)
@click.option(
    "--burst", type=click.IntRange(1), default=BURST, show_default=True, help="POOLHOUSE_BURST of the controllers."
)
@click.option("--server-side", is_flag=True, help="With -f: plan `kubectl apply --server-side`.")
@click.option("--force-conflicts", is_flag=True, help="With --server-side: take fields over from other managers.")
@STEPS.option
@cluster_options
def plan(
    cluster: Cluster,
    name: str | None,
    source: Any,
    burst: int,
    server_side: bool,
    force_conflicts: bool,
    output: str,
) -> None:
    """Print the actions on each VM, in order, if all of them succeed. Nothing is changed.

    With -f, simulate `kubectl apply` of the pools and replica sets in the file: fields that the file does not have keep
    their values, unless an earlier `kubectl apply` has set them. The API server answers a dry run of it. With the NAME
    of a pool, or vmirs/NAME of a replica set, print its remaining actions. The simulation runs here, with the
    controllers' code and your rights.
    """
    if (name is None) == (source is None):
        raise click.UsageError("give the name of a pool, vmirs/NAME of a replica set, or -f FILE")
    if server_side and source is None:
        raise click.UsageError("--server-side needs -f FILE")
    if force_conflicts and not server_side:
        raise click.UsageError("--force-conflicts needs --server-side")
    manifests = [_in_namespace(each, cluster) for each in _read(source)] if source is not None else []

    async def simulate(api: Api) -> list[Json]:
        if name is not None:
            found = await _get(api, cluster, *parse_name(name, *(kind.kind for kind in planned_kinds())))
            return [await _simulate(api, found, burst)]
        changes = [await _applied(api, each, server_side, force_conflicts) for each in manifests]
        return [{**await _simulate(api, each, burst), "warnings": warnings} for each, warnings in changes]

    answers = cluster.run(simulate)
    show_plan(answers[0] if len(answers) == 1 else answers, output)


def show_plan(answer: Json | list[Json], output: str) -> None:
    """Prints the answer for an object, or those for several."""
    if is_structured(output):
        print_structured(output, answer)
        return
    for each in answer if isinstance(answer, list) else [answer]:
        _print(each, output)


def _read(source: Any) -> list[Manifest]:
    """Returns the pools and replica sets of a file, and ignores other objects."""
    every, kinds = read_manifests(source), [kind.kind for kind in planned_kinds()]
    found = [each for each in every if each.document.get("kind") in kinds]
    if not found:
        present = ", ".join(dict.fromkeys(map(str, every)))
        raise Failed(f"{every[0].file}: must contain a {' or a '.join(kinds)}, and contains only {present}")
    return found


async def _get(api: Api, cluster: Cluster, kind: str, name: str) -> Json:
    if kind == POOL_KIND:
        from poolhouse.cli.pools import get_pool

        return await get_pool(api, cluster, name)
    from poolhouse.cli.resources import REPLICA_SETS

    return await api.get(REPLICA_SETS, cluster.namespace, name)


def _in_namespace(manifest: Manifest, cluster: Cluster) -> Manifest:
    """Returns the object with its namespace. Raises `Failed` for an object without a name, and for one of another
    namespace than that of `-n`, as kubectl does."""
    metadata = typed(dict, manifest.document, "metadata") or {}
    if not typed(str, metadata, "name"):
        from poolhouse.api.kinds.checks.metadata import name_problem

        raise Failed(f"{manifest.place}: metadata.name: {name_problem(metadata.get('name'))}")
    metadata = {**metadata, "namespace": metadata.get("namespace") or cluster.namespace}
    if cluster.requested_namespace not in (None, metadata["namespace"]):
        raise Failed(
            f"{manifest.place}: metadata.namespace is {metadata['namespace']}, and -n is {cluster.requested_namespace};"
            " leave one of them out, or give the same"
        )
    return replace(manifest, document={**manifest.document, "metadata": metadata})


async def _applied(api: Api, manifest: Manifest, server_side: bool, force: bool) -> tuple[Json, list[str]]:
    """Returns the object as the API server would store it after `kubectl apply`, and the warnings. Raises `Failed` with
    all problems."""
    from poolhouse.runtime.errors import ApiError, Forbidden, NotFound, Unauthorized

    kind = next(kind for kind in planned_kinds() if kind.kind == manifest.document["kind"])
    change = await read_change(api, kind, manifest.document)
    if not server_side and (problems := change.problems()):
        raise _refused(manifest, [f"{each.path}: {each.message}" for each in problems])
    warnings: list[str] = []
    try:
        if server_side:
            return await dry_run_server_side(api, change, force=force, warnings=warnings), warnings
        return await send(api, change, dry_run=True, warnings=warnings), warnings
    except (Forbidden, NotFound) as error:
        # A reviewer without the right to write, or a namespace that the same file creates.
        if server_side:
            raise
        warnings.append(f"{manifest.place}: the plan is without a dry run by the API server: {error.message}")
        return change.merged, warnings
    except Unauthorized:
        raise
    except ApiError as error:
        if not error.status or error.status >= SERVER_ERROR:
            raise
        causes = [f"{each.get('field') or kind.short_name}: {each.get('message')}" for each in error.causes]
        raise _refused(manifest, causes or [error.message]) from None
    finally:
        for each in warnings:
            echo(f"Warning: {each}", err=True)


def _refused(manifest: Manifest, problems: list[str]) -> Failed:
    return Failed("\n  ".join([f"{manifest.place}: `kubectl apply` would fail:", *problems]))


async def _simulate(api: Api, document: Json, burst: int) -> Json:
    return await (plan_pool if document["kind"] == POOL_KIND else _simulate_replica_set)(api, document, burst)


async def _simulate_replica_set(api: Api, document: Json, burst: int) -> Json:
    from controllers.replicaset.observe import list_stores
    from controllers.replicaset.simulate import hypothetical_snapshot
    from poolhouse.cli.foreign_kinds import refuse_foreign_replica_sets

    await refuse_foreign_replica_sets(api)
    stores = await list_stores(api, document["metadata"]["namespace"])
    return replica_set_answer(valid(hypothetical_snapshot(stores, document, burst)), datetime.now(UTC))


def valid(snapshot: S | InvalidSpec[Any]) -> S:
    """The snapshot. Raises `Failed` for an invalid spec."""
    from controllers.shared.invalid_spec import InvalidSpec

    if isinstance(snapshot, InvalidSpec):
        raise Failed(f"{snapshot.name}: {snapshot.problem}")
    return snapshot


def replica_set_answer(snapshot: ReplicaSetSnapshot, now: datetime, max_actions: int | None = None) -> Json:
    from controllers.replicaset.plan import plan as decide
    from controllers.replicaset.simulate import rows, simulate

    found = simulate(snapshot, now, max_actions)
    return {
        "replicaSet": snapshot.replica_set.name,
        "plan": list(rows(snapshot, found)),
        "waits": [{"vm": each.vmi.name, "reason": each.why} for each in decide(snapshot, now).waits],
        "blocked": "spec.paused is true" if snapshot.replica_set.spec.paused else "",
        "refused": "",
        "complete": found.complete,
    }


async def plan_pool(api: Api, document: Json, burst: int) -> Json:
    from controllers.pool.hypothetical_snapshot import hypothetical_snapshot
    from controllers.pool.list_stores import list_stores

    stores = await list_stores(api, document["metadata"]["namespace"])
    await stores.instancetypes.read(valid(hypothetical_snapshot(stores, document, burst)))
    return pool_answer(valid(hypothetical_snapshot(stores, document, burst)), datetime.now(UTC))


def pool_answer(snapshot: PoolSnapshot, now: datetime, max_actions: int | None = None) -> Json:
    from controllers.pool.describe import describe_update
    from controllers.pool.disk_fates import disk_fates, disk_lines
    from controllers.pool.rollback import with_abort
    from controllers.pool.simulate import rows, simulate

    found = simulate(snapshot, now, MAX_STEPS, max_actions)
    disks = disk_fates(snapshot, found)
    return {
        "pool": snapshot.pool.name,
        "plan": list(rows(found)),
        "waits": [{"vm": each.name, "reason": each.reason} for each in found.waits],
        "blocked": found.blocked,
        "refused": found.refused,
        "complete": found.complete,
        "update": describe_update(with_abort(snapshot, now), now),
        "disks": disks,
        "notes": list(disk_lines(disks, snapshot.pool.spec.retained_disks)),
    }


def update_lines(update: Json) -> Iterator[str]:
    """Yields lines about the steps, the partition, the analysis and the rollback of an update."""
    if aborted := update.get("aborted"):
        yield aborted
    steps = update.get("steps") or ()
    for number, step in enumerate(steps, start=1):
        yield f"step {number} of {len(steps)}{' (done)' if number <= update['stepsDone'] else ''}: {step}"
    if update.get("partition"):
        yield f"partition: the old template stays on {count_noun(update['partition'], 'VM')}"
    for check in update.get("analysis") or ():
        yield f"analysis: {check}"
    if triggers := update.get("rollback"):
        yield f"rollback: if {', or if '.join(triggers)}"
    elif steps:
        yield f"rollback: never; without progress for {update['deadlineSeconds']} s the update stops"


def _print(answer: Json, output: str) -> None:
    name, kind = answer.get("pool"), "VirtualMachine"
    if name is None:
        name, kind = answer["replicaSet"], "VirtualMachineInstance"
    shown = (row for row in answer["plan"] if row["vm"] or output != "name")
    lines = STEPS.lines(output, [{**row, "kind": kind} for row in shown])
    if output == "name":
        for line in lines:
            echo(line)
        return
    if not answer["plan"]:
        echo(f"{name}: no actions")
    else:
        actions, rounds = count_noun(len(answer["plan"]), "action"), count_noun(answer["plan"][-1]["step"], "round")
        first = "" if answer["complete"] else "the first "
        echo(f"{name}: {first}{actions} in {rounds}, if all succeed")
        for line in lines:
            echo(f"  {line}")
    if not answer["complete"]:
        echo("  more actions follow; the simulation ends here")
    for line in (*answer.get("notes", ()), *update_lines(answer.get("update") or {})):
        echo(f"  {line}")
    for wait in answer["waits"]:
        echo(f"  {wait['vm']} waits: {wait['reason']}")
    for reason in (answer["blocked"], answer["refused"]):
        if reason:
            echo(f"  {reason}")
