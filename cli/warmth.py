"""`poolhouse warmpool status` and `doctor`: how warm pools are, and what is wrong with them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from cli.cluster import Cluster, all_namespaces, cluster_options
from cli.names import names
from cli.output import Failed, counted, output_option, print_as, structured

if TYPE_CHECKING:
    from controllers.warm.doctor import Finding
    from runtime.api import Api

Json = dict[str, Any]

COUNTS = ("provisioning", "allocating", "claimed", "unhealthy", "unknown", "terminating", "orphaned")


@click.command()
@click.argument("pool", required=False, shell_complete=names("virtualmachinewarmpools"))
@output_option("text")
@cluster_options
def status(cluster: Cluster, pool: str | None, output: str) -> None:
    """Say what each warm pool has, wants and lacks, and who waits for it."""

    async def look(api: Api) -> list[Json]:
        from controllers.warm.pools import POOLS

        if pool:
            return [await api.get(POOLS, cluster.namespace, pool)]
        return (await api.list(POOLS, cluster.namespace))[0]

    found = cluster.run(look)
    if structured(output):
        print_as(output, [{"name": each["metadata"]["name"], **(each.get("status") or {})} for each in found])
        return
    if not found:
        click.echo(f"there is no warm pool in namespace {cluster.namespace}")
    for each in found:
        for line in said(each):
            click.echo(line)


def said(document: Json) -> list[str]:
    spec, now = document["spec"], document.get("status") or {}
    default = " (default)" if spec.get("default") else ""
    ready, wanted = now.get("availableReplicas", 0), spec.get("replicas", 1)
    queued = f", {counted(now['queuedClaims'], 'claim')} in line" if now.get("queuedClaims") else ""
    lines = [f"{document['metadata']['name']}{default}: {ready} of {wanted} ready{queued}"]
    rest = [f"{now[field]} {field}" for field in COUNTS if now.get(field)]
    if rest:
        lines.append(f"  {', '.join(rest)}")
    failures = now.get("failures") or {}
    if failures.get("consecutive"):
        lines.append(f"  {counted(failures['consecutive'], 'failure')}: {failures.get('lastMessage')}")
    for condition in now.get("conditions") or ():
        # These are bad news when they are True, all others when they are not; a pool need not be the default.
        bad = "True" if condition["type"] == "Degraded" else "False"
        if condition["status"] == bad and condition["type"] != "Default":
            lines.append(
                f"  {condition['type']} is {condition['status']}: {condition['message'] or condition['reason']}"
            )
    return lines


@click.command()
@click.option("--fix", is_flag=True, help="Delete the machines that nobody has and nobody will get.")
@output_option("text")
@all_namespaces
@cluster_options
def doctor(cluster: Cluster, fix: bool, output: str) -> None:
    """Find machines that belong to nobody, are locked or have two owners, and claims whose machine says otherwise.

    Exits with 1 while anything is found that is not fixed.
    """

    async def look(api: Api) -> list[tuple[str, Finding, bool]]:
        found = await examined(api, cluster.scope)
        return [(where, each, fix and await _fixed(api, each)) for where, each in found]

    found = cluster.run(look)
    if structured(output):
        print_as(output, [_plain(*each) for each in found])
    else:
        for where, each, done in found:
            cure = " (deleted)" if done else " (--fix deletes it)" if each.delete else ""
            name = f"{where}/{each.name}" if cluster.everywhere else each.name
            click.echo(f"{each.ailment:14} {name}: {each.says}{cure}")
        if not found:
            click.echo("all is well")
    if left := sum(not done for _, _, done in found):
        raise Failed(f"{counted(left, 'finding')} left")


def _plain(namespace: str, finding: Finding, fixed: bool) -> Json:
    said = {"ailment": finding.ailment, "name": finding.name, "says": finding.says, "fixed": fixed}
    return {"namespace": namespace, **said}


async def examined(api: Api, namespace: str | None) -> list[tuple[str, Finding]]:
    """What is found, and in which namespace."""
    from controllers.warm.claim.state import CLAIMS, claim
    from controllers.warm.doctor import findings
    from controllers.warm.machine import machine
    from controllers.warm.pools import POOLS, pool
    from controllers.warm.vm import MACHINES
    from kinds import meta

    # Machines first: a claim that is made meanwhile is then not found to be missing.
    machines, _ = await api.list(MACHINES, namespace, label_selector=meta.WARM_STATE)
    (claims, _), (pools, _) = await asyncio.gather(api.list(CLAIMS, namespace), api.list(POOLS, namespace))
    given, asked, kept = [*map(machine, machines)], [*map(claim, claims)], [*map(pool, pools)]
    found, now = [], datetime.now(UTC)
    for place in sorted({m.namespace for m in given} | {c.namespace for c in asked}):
        ms, cs = [m for m in given if m.namespace == place], [c for c in asked if c.namespace == place]
        found += [(place, each) for each in findings(ms, cs, [p for p in kept if p.namespace == place], now)]
    return found


async def _fixed(api: Api, finding: Finding) -> bool:
    from controllers.warm.vm import MACHINES
    from runtime.api import Conflict, NotFound

    if (m := finding.delete) is None:
        return False
    try:
        await api.delete(MACHINES, m.namespace, m.name, uid=m.uid, resource_version=m.resource_version)
    except NotFound:
        return True
    except Conflict:  # somebody does something about it
        return False
    return True
