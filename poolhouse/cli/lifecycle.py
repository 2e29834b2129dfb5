"""Implements `poolhouse lifecycle`: lists the VMs that wait for lifecycle hooks, and ends hooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.cluster import Cluster, all_namespaces, cluster_options
from poolhouse.cli.command_group import CommandGroup
from poolhouse.cli.output import Failed, Listing, field, output_option, print_result
from poolhouse.cli.parameters import POOL, VM, qualified_name
from poolhouse.cli.pools import get_vm

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api

LISTING = Listing(
    (
        field("VM", "vm"),
        field("POOL", "pool"),
        field("TRANSITION", "transition"),
        field("HOOK", "hook"),
        field("ENDS", "ends"),
        field("SINCE", "since", wide=True),
    ),
    name=lambda row: qualified_name("VirtualMachine", row["vm"]),
)
vm_argument = click.argument("vm", type=VM)
hook_option = click.option("--hook", metavar="HOOK", help="Default: the only hook that holds the VM.")


@click.group(cls=CommandGroup)
def lifecycle() -> None:
    """List held VMs, and end the lifecycle hooks that hold them."""


@lifecycle.command("list")
@click.argument("pool", type=POOL, required=False)
@LISTING.option
@all_namespaces
@cluster_options
def list_held(cluster: Cluster, pool: str | None, output: str) -> None:
    """List the VMs that wait for lifecycle hooks, and the time at which each hook times out."""
    rows = [row for row in cluster.run(lambda api: _rows(api, cluster.scope)) if pool in (None, row["pool"])]
    nothing = f"no VM of {pool} waits for a lifecycle hook" if pool else "no VM waits for a lifecycle hook"
    LISTING.show(output, rows, nothing=f"{nothing} in {cluster.place}", everywhere=cluster.everywhere)


@lifecycle.command()
@vm_argument
@hook_option
@click.option(
    "--result",
    type=click.Choice(["Continue", "Abandon"]),
    default="Continue",
    show_default=True,
    help="Abandon: do not wait for the other hooks either.",
)
@output_option("text")
@cluster_options
def complete(cluster: Cluster, vm: str, hook: str | None, result: str, output: str) -> None:
    """End a lifecycle hook of a VM. After the last one, the pool deletes or restarts the VM."""

    async def end(api: Api) -> str:
        document = await get_vm(api, cluster, vm)
        name = _chosen(document, hook)
        await _annotate(api, document, name, "Abandon" if result == "Abandon" else None)
        return name

    name = cluster.run(end)
    print_result(output, f"hook {name} of {vm} has ended with {result}", vm=vm, hook=name, result=result)


async def _rows(api: Api, namespace: str | None) -> list[Json]:
    from poolhouse.api.kinds import meta
    from poolhouse.runtime.resource import VMS

    documents, _ = await api.list(VMS, namespace, label_selector=meta.TRANSITION)
    return [row for each in documents for row in _hooks(each)]


def _hooks(document: Json) -> Iterator[Json]:
    from controllers.shared.vm import parse_hold
    from poolhouse.api.apimachinery.owner_references import controller_of

    metadata, hold = document["metadata"], parse_hold(document["metadata"])
    if hold is None:
        return
    for hook, ends in hold.hooks or (("", ""),):
        yield {
            "namespace": metadata["namespace"],
            "vm": metadata["name"],
            "pool": (controller_of(document) or {}).get("name"),
            "transition": hold.transition,
            "hook": hook,
            "ends": ends,
            "since": hold.since,
        }


def _chosen(document: Json, name: str | None) -> str:
    """The hook of this name, or the only one. Raises Failed if no such hook holds the VM."""
    from controllers.shared.vm import parse_hold

    vm, hold = document["metadata"]["name"], parse_hold(document["metadata"])
    names = [hook for hook, _ in hold.hooks] if hold is not None else []
    if not names:
        raise Failed(f"no lifecycle hook holds {vm}")
    if name is None and len(names) > 1:
        raise Failed(f"several lifecycle hooks hold {vm}; choose one with --hook: {', '.join(names)}")
    if name is not None and name not in names:
        raise Failed(f"lifecycle hook {name} does not hold {vm}; {', '.join(names)} does")
    return name or names[0]


async def _annotate(api: Api, vm: Json, hook: str, value: str | None) -> None:
    from poolhouse.api.kinds import meta
    from poolhouse.runtime.resource import VMS

    metadata = vm["metadata"]
    # With the resourceVersion, no hook of a later transition is changed.
    change = {
        "resourceVersion": metadata["resourceVersion"],
        "annotations": {f"{meta.HOOK_PREFIX}{hook}": value},
    }
    await api.patch(VMS, metadata["namespace"], metadata["name"], {"metadata": change})
