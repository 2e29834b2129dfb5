"""`poolhouse import pool`: makes a pool of KubeVirt a pool of Poolhouse, with its running VMs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.documentation import IMPORT_RIGHTS
from poolhouse.cli.cluster import Cluster, cluster_options
from poolhouse.cli.command_group import CommandGroup
from poolhouse.cli.completion import KUBEVIRT_POOLS, complete_names
from poolhouse.cli.output import Failed, Unreachable, confirm, echo, is_structured, output_option, print_result
from poolhouse.cli.parameters import Duration

if TYPE_CHECKING:
    from controllers.pool.import_steps import CannotImport, Observed, Wait, Write
    from poolhouse.runtime.api import Api
    from poolhouse.runtime.resource import Resource

    Rights = tuple[tuple[Resource, tuple[str, ...]], ...]

POLL_SECONDS = 0.5
REFUSED_AT_MOST = 50
"""Rounds in which another client was faster. KubeVirt writes the status of VMs all the time."""


@click.group("import", cls=CommandGroup)
def import_() -> None:
    """Import pools of KubeVirt."""


@import_.command("pool")
@click.argument("name", shell_complete=complete_names(KUBEVIRT_POOLS))
@click.option("--dry-run", is_flag=True, help="Print what would change, field by field, and change nothing.")
@click.option(
    "--drop",
    "drops",
    metavar="FIELD",
    multiple=True,
    help="Import without this field, which Poolhouse does not have. With --back: lose the change of this field."
    " Can be given several times.",
)
@click.option("--back", is_flag=True, help="Take the import back, also a completed one: KubeVirt gets the pool again.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--timeout",
    "wait_seconds",
    type=Duration(),
    default="2m",
    show_default=True,
    help="How long to wait for a controller.",
)
@output_option("text")
@cluster_options
def import_pool(
    cluster: Cluster,
    name: str,
    dry_run: bool,
    drops: tuple[str, ...],
    back: bool,
    yes: bool,
    wait_seconds: float,
    output: str,
) -> None:
    """Make a pool of KubeVirt (pool.kubevirt.io) a pool of Poolhouse, with its VMs and disks.

    The VMs keep running. Their numbers stay, from NAME-0 on. If the command is interrupted, run it again to continue,
    or with --back, which makes the pool one of KubeVirt again.
    """
    checked, carry_out = (prepare_back, take_back_pool) if back else (prepare, import_pool_of_kubevirt)
    found = cluster.run(lambda api: checked(api, cluster.namespace, name, drops))
    for line in () if is_structured(output) else found.lines:
        echo(line, err=not dry_run)
    summary = f"{count_noun(len(found.vms), 'VM', 'changes', 'change')} the controller"
    if dry_run:
        print_result(output, summary, pool=name, changes=found.changes, vms=found.vms)
        return
    question = f"Take the import of pool {name} back?" if back else f"Import pool {name}?"
    _ask(f"{summary}. {question}", yes=yes, output=output)
    cluster.run(lambda api: carry_out(api, cluster.namespace, name, drops, wait_seconds))
    imported = f"{name} is a pool of Poolhouse; {count_noun(len(found.vms), 'VM')} imported"
    print_result(output, f"{name} is a pool of KubeVirt again" if back else imported, pool=name, vms=found.vms)


@dataclass(frozen=True)
class Preparation:
    """What the command will do."""

    vms: list[str]
    lines: list[str]
    changes: Sequence[Any]
    """the lines, in JSON and YAML"""


def _names(members: Iterable[Json]) -> list[str]:
    return sorted(each["metadata"]["name"] for each in members)


def _ask(question: str, *, yes: bool, output: str) -> None:
    if yes:
        return
    if not sys.stdin.isatty() or is_structured(output):
        raise Failed("the command asks before it writes; give --yes")
    confirm(question)


async def prepare(api: Api, namespace: str, name: str, drops: tuple[str, ...]) -> Preparation:
    """Checks everything before the first write."""
    from controllers.pool.import_check import check
    from controllers.pool.import_plan import new_pool, plan
    from controllers.pool.import_steps import RIGHTS, CannotImport
    from poolhouse.cli.resources import POOLS

    await _check_rights(api, namespace, RIGHTS)
    observed = await observe(api, namespace, name)
    vms = [] if observed.source is None else _names(observed.owned(observed.source["metadata"]["uid"]))
    try:
        if observed.record is not None:
            if not plan(observed, drops):
                raise Failed(f"{name} is imported already")
            return Preparation(vms, ["the import has begun and continues"], [])
        found = check(observed, drops)
        steps = plan(observed, drops)
    except CannotImport as error:
        raise _failed(error) from None
    assert isinstance(steps, list)
    await api.create(POOLS, new_pool(observed, steps[0].body["data"]), dry_run=True, strict=True)
    return Preparation(vms, [*map(str, found.changes)], [vars(each) for each in found.changes])


async def import_pool_of_kubevirt(
    api: Api, namespace: str, name: str, drops: tuple[str, ...] = (), timeout_seconds: float = 120
) -> None:
    """Carries the plan out until no write is left."""
    from controllers.pool.import_plan import plan

    await _carry_out(api, namespace, name, lambda observed: plan(observed, drops), timeout_seconds)


async def prepare_back(api: Api, namespace: str, name: str, drops: tuple[str, ...]) -> Preparation:
    """Checks the way back before the first write."""
    from controllers.pool.import_return import give_back, is_imported, kubevirt_pool
    from controllers.pool.import_return_check import check_return
    from controllers.pool.import_steps import RETURN_RIGHTS, RIGHTS, CannotImport, kubevirt_resource
    from controllers.pool.import_take_back import take_back

    await _check_rights(api, namespace, RIGHTS)
    observed = await observe(api, namespace, name)
    target = observed.target
    vms = [] if target is None else _names(observed.owned(target["metadata"]["uid"]))
    try:
        if not is_imported(observed):
            if observed.record is None:
                raise Failed(f"no import of pool {name} has begun, or its way back is complete")
            if drops:
                raise Failed("--drop: only the way back from a completed import takes it")
            take_back(observed)
            return _told(vms, "the import has not ended, and is taken back")
        await _check_rights(api, namespace, RETURN_RIGHTS)
        if observed.returns:
            give_back(observed, drops)
            return _told(vms, "the way back has begun and continues; without --back, the pool stays")
        found = check_return(observed, drops)
    except CannotImport as error:
        raise _failed(error) from None
    body = kubevirt_pool(observed, found.data)
    await api.create(kubevirt_resource(body), body, dry_run=True, strict=True)
    return _told(vms, *map(str, found.changes), *found.notes)


def _told(vms: list[str], *lines: str) -> Preparation:
    return Preparation(vms, [*lines], lines)


async def take_back_pool(
    api: Api, namespace: str, name: str, drops: tuple[str, ...] = (), timeout_seconds: float = 120
) -> None:
    """Takes an import back, whether it is complete or not."""
    from controllers.pool.import_return import give_back, is_imported
    from controllers.pool.import_take_back import take_back

    await prepare_back(api, namespace, name, drops)

    def planned(observed: Observed) -> list[Write] | Wait:
        return give_back(observed, drops) if is_imported(observed) else take_back(observed)

    await _carry_out(api, namespace, name, planned, timeout_seconds)


async def _carry_out(
    api: Api,
    namespace: str,
    name: str,
    planned: Callable[[Observed], list[Write] | Wait],
    timeout_seconds: float,
) -> None:
    """Carries out what is planned for what is observed, until no write is left."""
    from controllers.pool.import_steps import CannotImport

    deadline, refused = api.monotonic() + timeout_seconds, 0
    while True:
        observed = await observe(api, namespace, name)
        try:
            steps = planned(observed)
        except CannotImport as error:
            raise _failed(error) from None
        if steps == []:
            return
        if isinstance(steps, list):
            refused = 0 if await _apply(api, namespace, steps) else refused + 1
            deadline = api.monotonic() + timeout_seconds
        elif api.monotonic() >= deadline:
            raise Unreachable(f"{steps.reason}; run the command again to continue, or with --back")
        if refused > REFUSED_AT_MOST:
            raise Failed(f"other clients change the VMs of {name} all the time; run the command again")
        if refused or not isinstance(steps, list):
            await asyncio.sleep(POLL_SECONDS)


async def observe(api: Api, namespace: str, name: str) -> Observed:
    """Reads the pools. The objects of the namespace are read after them, so that none of the new pool is missing."""
    from controllers.pool import kubevirt_pools
    from controllers.pool.import_steps import Observed
    from poolhouse.cli.resources import POOLS
    from poolhouse.runtime.api import find
    from poolhouse.runtime.resource import CONTROLLER_REVISIONS, PVCS, VMIS, VMS

    older = replace(kubevirt_pools.KUBEVIRT_POOLS, version="v1alpha1")
    source = await find(api, kubevirt_pools.KUBEVIRT_POOLS, namespace, name) or await find(api, older, namespace, name)
    target = await find(api, POOLS, namespace, name)
    revisions, vms, vmis, claims = [
        tuple((await api.list(each, namespace))[0]) for each in (CONTROLLER_REVISIONS, VMS, VMIS, PVCS)
    ]
    served = source["apiVersion"].rpartition("/")[2] if source is not None else await _served(api)
    return Observed(namespace, name, source, target, revisions, vms, vmis, claims, served)


async def _served(api: Api) -> str:
    """The version of KubeVirt's pools that the API server has."""
    from controllers.pool.kubevirt_pools import KUBEVIRT_POOLS as RESOURCE
    from poolhouse.runtime.errors import NotFound

    for version in (RESOURCE.version, "v1alpha1"):
        with suppress(NotFound):
            await api.request("GET", f"/apis/{RESOURCE.group}/{version}")
            return version
    return ""


async def _apply(api: Api, namespace: str, steps: list[Write]) -> bool:
    """Carries the writes out in order. False if an object has changed meanwhile, so that the next are planned anew."""
    from poolhouse.runtime.errors import AlreadyExists, Conflict, NotFound

    for step in steps:
        body = step.body
        try:
            if step.verb == "create":
                with suppress(AlreadyExists):
                    await api.create(step.resource, body, strict=True)
            elif step.verb == "patch":
                metadata = {**body.get("metadata", {}), **({"uid": step.uid} if step.uid else {})}
                await api.patch(step.resource, namespace, step.name, {**body, "metadata": metadata})
            else:
                uid = step.uid or None
                await api.delete(step.resource, namespace, step.name, uid=uid, propagation=step.propagation)
        except (Conflict, NotFound):
            return False
    return True


async def _check_rights(api: Api, namespace: str, rights: Rights) -> None:
    from poolhouse.runtime.access_review import caller_may

    async def missing(verb: str, resource: Resource) -> str:
        allowed = await caller_may(api, verb, resource, namespace)
        return "" if allowed else f"{verb} {resource.plural}.{resource.group or 'core'}"

    found = await asyncio.gather(*(missing(verb, each) for each, verbs in rights for verb in verbs))
    if lacking := [each for each in found if each]:
        raise Failed(f"you may not {', '.join(lacking)} in namespace {namespace}; {IMPORT_RIGHTS} has a Role")


def _failed(error: CannotImport) -> Failed:
    problems = error.problems
    return Failed(problems[0] if len(problems) == 1 else "\n  ".join(["nothing was changed:", *problems]))
