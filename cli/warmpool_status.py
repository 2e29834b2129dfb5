"""`poolhouse warmpool status` and `doctor`: how warm pools are, and what is wrong with them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from cli.cluster import Cluster, all_namespaces, cluster_options
from cli.health import COLOURS, assess, format_age
from cli.output import Failed, count_noun
from cli.resource_names import WARM_POOL, complete_names, qualified_name
from cli.table import Column, Listing, field

if TYPE_CHECKING:
    from controllers.claim.doctor import Finding
    from runtime.api import Api

Json = dict[str, Any]

AGAIN_SECONDS = 3.0
"""Machines and claims are not listed at one moment, and people claim and release meanwhile: what is found is looked at
again, when all that was under way is done."""

COUNTS = ("provisioning", "allocating", "claimed", "unhealthy", "unknown", "terminating", "orphaned")

WARMTH = Listing(
    (
        field("NAME", "name"),
        field("DESIRED", "desired"),
        field("READY", "ready"),
        field("CLAIMED", "claimed"),
        field("QUEUED", "queuedClaims"),
        field("AGE", "age"),
        field("DEFAULT", "default", wide=True),
        Column(
            "MACHINES", lambda each: ", ".join(f"{each[count]} {count}" for count in COUNTS if each[count]), wide=True
        ),
        Column("FAILURES", lambda each: (each["failures"] or {}).get("consecutive"), wide=True),
        Column("STATE", lambda each: each["says"] or each["state"], colour=lambda each: COLOURS[each["state"]]),
    ),
    name=lambda each: qualified_name("VirtualMachineWarmPool", each["name"]),
)
FINDINGS = Listing(
    (
        field("AILMENT", "ailment"),
        field("NAME", "name"),
        Column("CURE", lambda each: "deleted" if each["fixed"] else "--fix deletes it" if each["fixable"] else None),
        field("SAYS", "says"),
    )
)


@click.command()
@click.argument("pool", type=WARM_POOL, required=False, shell_complete=complete_names("virtualmachinewarmpools"))
@WARMTH.option
@all_namespaces
@cluster_options
def status(cluster: Cluster, pool: str | None, output: str) -> None:
    """Say what each warm pool has, wants and lacks, and who waits for it."""

    async def look(api: Api) -> list[Json]:
        from controllers.warmpool.warm_pool import WARM_POOLS

        if pool:
            return [await api.get(WARM_POOLS, cluster.namespace, pool)]
        return (await api.list(WARM_POOLS, cluster.scope))[0]

    if pool and cluster.everywhere:
        raise click.UsageError("a pool of that name may be in many namespaces; leave out one of the name and -A")
    now = datetime.now(UTC)
    rows = [pool_row(each, now) for each in cluster.run(look)]
    where = "any namespace" if cluster.everywhere else f"namespace {cluster.namespace}"
    WARMTH.show(output, rows, nothing=f"there is no warm pool in {where}", everywhere=cluster.everywhere)


def pool_row(document: Json, now: datetime) -> Json:
    """One pool as it is shown, and as programs get it: all that its status says, zeros where it says nothing yet."""
    spec, known, judged = document["spec"], document.get("status") or {}, assess(document)
    return {
        "namespace": document["metadata"].get("namespace"),
        "name": document["metadata"]["name"],
        "default": bool(spec.get("default")),
        "desired": spec.get("replicas", 1),
        "ready": known.get("availableReplicas", 0),
        "age": format_age(document, now),
        "state": judged.mood,
        "says": judged.says,
        "failures": None,
        **dict.fromkeys((*COUNTS, "queuedClaims"), 0),
        **known,
    }


@click.command()
@click.option("--fix", is_flag=True, help="Delete the machines that nobody has and nobody will get.")
@FINDINGS.option
@all_namespaces
@cluster_options
def doctor(cluster: Cluster, fix: bool, output: str) -> None:
    """Find machines that belong to nobody, are locked or have two owners, and claims whose machine says otherwise.

    Exits with 1 while anything is found that is not fixed.
    """

    async def look(api: Api) -> list[tuple[str, Finding, bool]]:
        found = await examine(api, cluster.scope)
        return [(where, each, fix and await _fixed(api, each)) for where, each in found]

    found = cluster.run(look)
    FINDINGS.show(output, [_plain(*each) for each in found], nothing="all is well", everywhere=cluster.everywhere)
    if left := sum(not done for _, _, done in found):
        raise Failed(f"{count_noun(left, 'finding')} left")


def _plain(namespace: str, finding: Finding, fixed: bool) -> Json:
    said = {"ailment": finding.problem, "name": finding.name, "says": finding.message}
    return {"namespace": namespace, **said, "fixable": finding.delete is not None, "fixed": fixed}


async def examine(api: Api, namespace: str | None, again_seconds: float = AGAIN_SECONDS) -> list[tuple[str, Finding]]:
    """What is found in two looks, and in which namespace."""

    def what(where: str, each: Finding) -> tuple[str, str, str]:
        return where, each.problem, each.name

    if not (before := {what(*found) for found in await _look(api, namespace)}):
        return []
    await asyncio.sleep(again_seconds)
    return [found for found in await _look(api, namespace) if what(*found) in before]


async def _look(api: Api, namespace: str | None) -> list[tuple[str, Finding]]:
    from controllers.claim.doctor import findings
    from controllers.claim.snapshot import CLAIMS, parse_claim
    from controllers.warmpool.warm_pool import WARM_POOLS, parse_warm_pool
    from controllers.warmpool.warm_vm import parse_warm_vm
    from kinds import meta
    from runtime.resource import VMS

    # Machines first: a claim that is made meanwhile is then not found to be missing.
    machines, _ = await api.list(VMS, namespace, label_selector=meta.WARM_STATE)
    (claims, _), (pools, _) = await asyncio.gather(api.list(CLAIMS, namespace), api.list(WARM_POOLS, namespace))
    given, asked, kept = [*map(parse_warm_vm, machines)], [*map(parse_claim, claims)], [*map(parse_warm_pool, pools)]
    # By the clock that has dated what may be deleted: this machine's may be an hour ahead of it.
    found, now = [], api.now()
    for place in sorted({m.namespace for m in given} | {c.namespace for c in asked}):
        ms, cs = [m for m in given if m.namespace == place], [c for c in asked if c.namespace == place]
        found += [(place, each) for each in findings(ms, cs, [p for p in kept if p.namespace == place], now)]
    return found


async def _fixed(api: Api, finding: Finding) -> bool:
    from runtime.errors import Conflict, NotFound
    from runtime.resource import VMS

    if (m := finding.delete) is None:
        return False
    try:
        await api.delete(VMS, m.namespace, m.name, uid=m.uid, resource_version=m.resource_version)
    except NotFound:
        return True
    except Conflict:  # somebody does something about it
        return False
    return True
