"""Implements `poolhouse hardware fleet`, which lists what the next restart of each VM changes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.cli.cluster import Cluster, all_namespaces, cluster_options
from poolhouse.cli.output import Column, Failed, Listing, echo, field
from poolhouse.cli.parameters import qualified_name

if TYPE_CHECKING:
    from defaulter.fleet import Guest, Report
    from poolhouse.runtime.api import Api

REFUSED = "the defaulter refuses it"
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
@click.option("--server", metavar="URL", help="URL of a defaulter, which computes the PCI addresses that change.")
@click.option("--against", metavar="URL", help="URL of a defaulter with another libvirt and QEMU, to compare with.")
@VMS_LISTING.option
@all_namespaces
@cluster_options
def fleet(cluster: Cluster, server: str | None, against: str | None, output: str) -> None:
    """List VMs, who set their hardware, and what their next restart changes for the guest.

    The report shows what KubeVirt does with the spec as it is now. Where Poolhouse's controllers run, they write MAC
    addresses and other values of the guest into the spec when the VM stops. -o json has each change with its reason,
    and what cannot be foreseen. HELD is true if a hardware record and a hook keep the addresses of all devices.

    With --server, the command also lists the PCI addresses that change because somebody added or removed devices, of
    VMs without an instance type and a preference.

    With --against, it also lists what would move under that defaulter, such as the one of a newer release: compared
    with --server, or with the hardware record of each VM.

    The command names namespaces whose VMs you may not list, and goes on with the others.
    """
    present, other = (Domains.of(url.rstrip("/")) if url is not None else None for url in (server, against))
    rows, refused = cluster.run(lambda api: collect(api, cluster, present, other))
    nothing = "there are no VMs that you may list" if refused else f"there are no VMs in {cluster.place}"
    VMS_LISTING.show(output, rows, nothing=nothing, everywhere=cluster.everywhere)
    if output in ("text", "wide") and len(rows) > 1:
        echo(summarize(rows), err=True)
    for place in refused:
        echo(f"you may not list VMs in {place}", err=True)


def summarize(rows: Sequence[Json]) -> str:
    """How many VMs have each value of DEFAULTED, how many the next restart changes, and how many could not be compared
    with another defaulter."""
    from defaulter.fleet import OTHER_VERSIONS

    counts = Counter(row["defaulted"] for row in rows).most_common()
    changed = sum(bool(row["changes"]) for row in rows)
    values = ", ".join(f"{number} {value}" for value, number in counts)
    uncompared = sum(any(why.startswith(OTHER_VERSIONS) for why in row["unknown"]) for row in rows)
    without = f"; {uncompared} not compared, -o wide says why" if uncompared else ""
    return f"{count_noun(len(rows), 'VM')}: {values}; {changed} with changes{without}"


class Domains:
    """Asks a defaulter for the hardware of VMs. VMs of one shape are asked about once."""

    def __init__(self, server: str, version: tuple[str, str]) -> None:
        self._server, self._version = server, version
        self._known: dict[str, Json | None] = {}

    @classmethod
    def of(cls, server: str) -> Domains:
        """Raises Unreachable if no defaulter answers there, because a fleet without any VM to ask about would not."""
        from poolhouse.cli.domains import read_version

        return cls(server, read_version(server))

    def ask(self, document: Json) -> Json | None:
        """The hardware record of the document; None if the defaulter refuses the document."""
        from defaulter.fleet import shape
        from poolhouse.cli.domains import request_record, without_record

        key = shape(without_record(document))
        if key not in self._known:
            try:
                self._known[key] = request_record(self._server, self._version, document)
            except Failed:
                self._known[key] = None
        return self._known[key]

    async def foresee(self, found: Report, vm: Json, vmi: Json | None, guest: Guest | None) -> Report:
        """The report with the PCI addresses that change, if they can be foreseen."""
        from defaulter.fleet import at_start, foreseeable, with_moves

        start = at_start(vmi) if vmi is not None and foreseeable(vm) else None
        if start is None or guest is None:
            return found
        before, after = [await asyncio.to_thread(self.ask, each) for each in (start, vm)]
        return found if before is None or after is None else with_moves(found, guest, before, after)

    async def compare(self, found: Report, vm: Json, present: Domains | None) -> Report:
        """The report with the devices that move if this defaulter chooses their addresses. The comparison is with the
        `present` defaulter; without one, with the hardware record of the VM."""
        from defaulter.fleet import NOT_COMPARED, foreseeable, with_versions
        from poolhouse.cli.domains import recorded

        if not foreseeable(vm):
            why = "it has an instance type or a preference"
        elif (before := recorded(vm) if present is None else await asyncio.to_thread(present.ask, vm)) is None:
            why = "it has no hardware record, and no --server is given" if present is None else REFUSED
        elif (after := await asyncio.to_thread(self.ask, vm)) is None:
            why = REFUSED
        else:
            return with_versions(found, before, after)
        return replace(found, unknown=(*found.unknown, NOT_COMPARED.format(why=why)))


async def collect(
    api: Api, cluster: Cluster, present: Domains | None = None, other: Domains | None = None
) -> tuple[list[Json], list[str]]:
    """Returns the reports, and the places whose VMs the user may not list."""
    from poolhouse.runtime.errors import Forbidden
    from poolhouse.runtime.resource import NAMESPACES

    try:
        namespaces: list[Json] | None = (await api.list(NAMESPACES))[0]
    except Forbidden:
        namespaces = None
    facts = _Facts(
        {each["metadata"]["name"] for each in namespaces or () if _is_opted_out(each)},
        await _has_plugin(api),
        present,
        other,
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
    present: Domains | None
    other: Domains | None

    async def foresee(self, found: Report, vm: Json, vmi: Json | None, guest: Guest | None) -> Report:
        if self.present is not None:
            found = await self.present.foresee(found, vm, vmi, guest)
        return found if self.other is None else await self.other.compare(found, vm, self.present)


async def _has_plugin(api: Api) -> bool | None:
    """Whether the cluster has the plugin that restores hardware records; None if the user may not know."""
    from poolhouse.manifests.plugin import NAME
    from poolhouse.runtime.errors import Forbidden, NotFound
    from poolhouse.runtime.resource import Resource

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
    from poolhouse.runtime.errors import Forbidden
    from poolhouse.runtime.resource import VMS

    rows = []
    try:
        vmis: dict[tuple[str, str], Json] = {}
        guests = await _guests(api, namespace, vmis if facts.present is not None else None)
        async for page, _ in api.pages(VMS, namespace):
            for item in page:
                vm = {**item, "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine"}  # lists leave them out
                place, name = vm["metadata"]["namespace"], vm["metadata"]["name"]
                guest = (guests or {}).get((place, name))
                found = report(vm, guest, opted_out_namespace=place in facts.opted_out, plugin=facts.plugin)
                if found is not None:
                    found = found if guests is not None else replace(found, unknown=(NO_VMIS,))
                    rows.append((await facts.foresee(found, vm, vmis.get((place, name)), guest)).as_json())
    except Forbidden:
        return None
    return rows


async def _guests(
    api: Api, namespace: str | None, vmis: dict[tuple[str, str], Json] | None
) -> dict[tuple[str, str], Guest] | None:
    """Returns what VMIs show of their guests; None if the user may not list them. Keeps the VMIs, which are large, only
    in `vmis`."""
    from defaulter.fleet import read_guest
    from poolhouse.runtime.errors import Forbidden
    from poolhouse.runtime.resource import VMIS

    found = {}
    try:
        async for page, _ in api.pages(VMIS, namespace):
            for item in page:
                vmi = {**item, "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}  # lists leave them out
                key = vmi["metadata"]["namespace"], vmi["metadata"]["name"]
                found[key] = read_guest(vmi)
                if vmis is not None:
                    vmis[key] = vmi
    except Forbidden:
        return None
    return found
