"""Implements `poolhouse hardware fleet`, which lists what the next restart of each VM changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from apimachinery.unstructured import Json, at
from cli.cluster import Cluster, all_namespaces, cluster_options
from cli.output import Column, Listing, echo, field
from cli.parameters import qualified_name

if TYPE_CHECKING:
    from defaulter.fleet import Guest
    from runtime.api import Api

NO_VMIS = "you may not list VMIs: the hardware of the guest is not known"

VMS_LISTING = Listing(
    (
        field("VM", "name"),
        field("DEFAULTED", "defaulted"),
        Column("CHANGES", lambda row: ", ".join(f"{each['device']} {each['field']}" for each in row["changes"])),
        field("HELD", "held"),
        Column("UNKNOWN", lambda row: len(row["unknown"])),
        Column("WHAT IS UNKNOWN", lambda row: "; ".join(row["unknown"]), wide=True),
    ),
    name=lambda row: qualified_name("VirtualMachine", row["name"]),
)


@click.command()
@VMS_LISTING.option
@all_namespaces
@cluster_options
def fleet(cluster: Cluster, output: str) -> None:
    """List VMs, who set their hardware, and what their next restart changes for the guest.

    The report shows what KubeVirt does with the spec as it is now. Where Poolhouse's controllers run, they write MAC
    addresses and other values of the guest into the spec when the VM stops. -o json has each change with its reason,
    and what cannot be foreseen. HELD is true if a hardware record and a hook keep the addresses of all devices.

    The command names namespaces whose VMs you may not list, and goes on with the others.
    """
    rows, refused = cluster.run(lambda api: collect(api, cluster))
    VMS_LISTING.show(output, rows, nothing=f"there are no VMs in {cluster.place}", everywhere=cluster.everywhere)
    for place in refused:
        echo(f"you may not list VMs in {place}", err=True)


async def collect(api: Api, cluster: Cluster) -> tuple[list[Json], list[str]]:
    """Returns the reports, and the places whose VMs the user may not list."""
    from runtime.errors import Forbidden
    from runtime.resource import NAMESPACES

    try:
        namespaces: list[Json] | None = (await api.list(NAMESPACES))[0]
    except Forbidden:
        namespaces = None
    facts = _Facts(
        {each["metadata"]["name"] for each in namespaces or () if _is_opted_out(each)}, await _has_plugin(api)
    )
    rows = await _reports(api, cluster.scope, facts)
    if rows is not None:
        return rows, []
    if not cluster.everywhere:
        return [], [cluster.place]
    if namespaces is None:  # the user cannot learn which namespaces exist
        own = await _reports(api, cluster.namespace, facts)
        return own or [], [
            f"all namespaces; this is namespace {cluster.namespace}" if own is not None else "any namespace"
        ]
    found: list[Json] = []
    refused = []
    for name in sorted(each["metadata"]["name"] for each in namespaces):
        rows = await _reports(api, name, facts)
        if rows is None:
            refused.append(f"namespace {name}")
        else:
            found += rows
    return found, refused


def _is_opted_out(namespace: Json) -> bool:
    from defaulter.vm_paths import OPT_OUT

    return bool(at(namespace, "metadata", "labels", OPT_OUT) == "disabled")


@dataclass(frozen=True)
class _Facts:
    """What is known of the cluster."""

    opted_out: set[str]
    plugin: bool | None


async def _has_plugin(api: Api) -> bool | None:
    """Whether the cluster has the plugin that restores hardware records; None if the user may not know."""
    from manifests.plugin import NAME
    from runtime.errors import Forbidden, NotFound
    from runtime.resource import Resource

    plugins = Resource("plugin.kubevirt.io", "v1alpha1", "plugins", "Plugin", namespaced=False)
    try:
        await api.get(plugins, None, NAME)
    except NotFound:
        return False
    except Forbidden:
        return None
    return True


async def _reports(api: Api, namespace: str | None, facts: _Facts) -> list[Json] | None:
    """Returns the reports of the VMs in a namespace; None if the user may not list them."""
    from defaulter.fleet import report
    from runtime.errors import Forbidden
    from runtime.resource import VMS

    rows = []
    try:
        guests = await _guests(api, namespace)
        async for page, _ in api.pages(VMS, namespace):
            for vm in page:
                place, name = vm["metadata"]["namespace"], vm["metadata"]["name"]
                guest = (guests or {}).get((place, name))
                kind = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine"}  # lists leave them out
                found = report({**vm, **kind}, guest, opted_out_namespace=place in facts.opted_out, plugin=facts.plugin)
                if found is not None:
                    row = found.as_json()
                    rows.append(row if guests is not None else {**row, "unknown": [NO_VMIS]})
    except Forbidden:
        return None
    return rows


async def _guests(api: Api, namespace: str | None) -> dict[tuple[str, str], Guest] | None:
    """Returns what VMIs show of their guests, and not the VMIs, which are large; None if the user may not list them."""
    from defaulter.fleet import read_guest
    from runtime.errors import Forbidden
    from runtime.resource import VMIS

    found = {}
    try:
        async for page, _ in api.pages(VMIS, namespace):
            for vmi in page:
                found[vmi["metadata"]["namespace"], vmi["metadata"]["name"]] = read_guest(vmi)
    except Forbidden:
        return None
    return found
