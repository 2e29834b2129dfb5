"""Implements `poolhouse tree`, which shows the owners of an object and the objects that it owns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.quantity import for_people
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.resource_types import DATA_VOLUMES, OURS, PVCS, VMIS, VMS
from poolhouse.cli.cluster import Cluster, cluster_options, list_kinds
from poolhouse.cli.completion import complete_names
from poolhouse.cli.health import assess, describe_deletion
from poolhouse.cli.live import FOLLOW, LiveLines
from poolhouse.cli.output import Failed, align_columns, echo, is_structured, output_option, print_structured
from poolhouse.cli.parameters import NAMED_KINDS, parse_name, qualified_name, short_name
from poolhouse.cli.pools import POOL_KIND
from poolhouse.runtime.resource import Resource

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api

POLL_SECONDS = 2.0


TREE_KINDS = (VMS, VMIS, *(kind for kind in OURS if kind.namespaced))


@dataclass(frozen=True)
class Node:
    """An object and the objects that it owns."""

    name: str
    summary: str
    children: tuple[Node, ...] = ()

    def json(self) -> Json:
        return {"name": self.name, "message": self.summary, "children": [each.json() for each in self.children]}


@click.command()
@click.argument("name", shell_complete=complete_names("virtualmachines", prefixes=lambda: TREE_KINDS))
@click.option("--watch", "-w", is_flag=True, help=f"{FOLLOW}, else as a new tree.")
@output_option("text", "name")
@cluster_options
def tree(cluster: Cluster, name: str, watch: bool, output: str) -> None:
    """Show the owners of a VM, and the objects that it owns: its VMI, DataVolumes and PersistentVolumeClaims.

    NAME is the name of a VM, or vmi/NAME, vpool/NAME, vmirs/NAME, vmwp/NAME or vmclaim/NAME. For a pool, the tree has
    all its VMs and retained disks.
    """
    kind, rest = parse_name(name, *(each.kind for each in TREE_KINDS))
    if watch and is_structured(output):
        raise click.UsageError("--watch needs -o text or -o name")
    told: list[str] = []

    async def read(api: Api) -> Node:
        found, unseen = await list_kinds(api, (*TREE_KINDS, DATA_VOLUMES, PVCS), cluster.namespace)
        hidden = [each.kind for each in unseen]
        root = build_tree(found, kind, rest)
        if root is None and kind in hidden:
            root = build_tree([*found, *await _read(api, cluster.namespace, kind, rest)], kind, rest)
        if hidden and hidden != told:
            told[:] = hidden
            echo(f"not shown, because you may not list them: {', '.join(f'{each}s' for each in hidden)}", err=True)
        if root is None:
            raise Failed(
                f"there is no {short_name(kind)} {rest} in namespace {cluster.namespace}{_others(found, rest)}"
            )
        return root

    def lines(root: Node) -> list[str]:
        return list(dict.fromkeys(_names(root)) if output == "name" else align_columns([*draw(root)]))

    async def follow(api: Api) -> None:
        with LiveLines() as view:
            while True:
                shown = lines(await read(api))
                view.show(shown, tuple(shown))
                await asyncio.sleep(POLL_SECONDS)

    if watch:
        cluster.run(follow)
    root = cluster.run(read)
    if is_structured(output):
        print_structured(output, root.json())
        return
    for line in lines(root):
        echo(line)


def build_tree(objects: Sequence[Json], kind: str, name: str) -> Node | None:
    """Returns the tree from the topmost owner to the object and all objects that it owns. None without the object."""
    by_uid = {each["metadata"]["uid"]: each for each in objects}
    start = next((each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name), None)
    if start is None:
        return None
    node, here = _below(start, objects, frozenset()), start
    seen = {here["metadata"]["uid"]}
    while (owner := _owner(here)) is not None and owner[0] not in seen:
        uid, owner_kind, owner_name = owner
        seen.add(uid)
        here = by_uid.get(uid) or {"kind": owner_kind, "metadata": {"name": owner_name, "uid": uid}}
        missing = "" if uid in by_uid else "it is gone, or may not be read"
        node = Node(_name(here), missing or summarize(here), (node,))
    return node


def _others(objects: Sequence[Json], name: str) -> str:
    """Names the objects of other kinds with this name."""
    found = [f"{short_name(each['kind'])}/{name}" for each in objects if each["metadata"]["name"] == name]
    return f"; there is {' and '.join(found)}" if found else ""


def draw(node: Node, before: str = "", inner: str = "") -> Iterator[tuple[str, str]]:
    """Yields lines with two cells: the name and the summary."""
    yield f"{before}{node.name}", node.summary
    for number, child in enumerate(node.children, 1):
        last = number == len(node.children)
        yield from draw(child, inner + ("└── " if last else "├── "), inner + ("    " if last else "│   "))


def _names(node: Node) -> Iterator[str]:
    kind, _, name = node.name.partition("/")
    yield qualified_name(next((each.kind for each in NAMED_KINDS if each.short_name == kind), kind), name)
    for child in node.children:
        yield from _names(child)


def summarize(document: Json) -> str:
    metadata, spec, status = document["metadata"], document.get("spec") or {}, document.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return describe_deletion(metadata)
    match document["kind"]:
        case "VirtualMachine":
            return str(status.get("printableStatus") or "")
        case "VirtualMachineInstance":
            node = f" on {status['nodeName']}" if status.get("nodeName") else ""
            return f"{status.get('phase') or 'Pending'}{node}"
        case "DataVolume":
            return str(status.get("phase") or "")
        case "PersistentVolumeClaim":
            return _summarize_pvc(document)
    message = assess(document).message
    if status.get("phase"):
        return message
    ready = status.get("readyReplicas") or 0
    return f"{ready} of {spec.get('replicas', 0)} ready" + (f"; {message}" if message else "")


def _summarize_pvc(document: Json) -> str:
    size = at(document, "status", "capacity", "storage") or at(document, "spec", "resources", "requests", "storage")
    parts = (str(at(document, "status", "phase") or ""), for_people(size), _retained_for(document))
    return ", ".join(part for part in parts if part)


def _below(document: Json, objects: Sequence[Json], above: frozenset[str]) -> Node:
    uid = document["metadata"]["uid"]
    path = above | {uid}
    own = [each for each in objects if (_owner(each) or ("",))[0] == uid and each["metadata"]["uid"] not in path]
    order = [each.kind for each in NAMED_KINDS]
    own.sort(key=lambda each: (order.index(each["kind"]), each["metadata"]["name"]))
    return Node(_name(document), summarize(document), tuple(_below(each, objects, path) for each in own))


def _owner(document: Json) -> tuple[str, str, str] | None:
    """Returns UID, kind and name of the controller, or of the first owner, or of the pool that retains the disk."""
    metadata = document["metadata"]
    owner = controller_of(document) or next(iter(metadata.get("ownerReferences") or ()), None)
    if owner is not None:
        return owner["uid"], owner["kind"], owner["name"]
    uid = (metadata.get("labels") or {}).get(meta.KEPT_BY)
    return (uid, POOL_KIND, uid) if uid else None


def _retained_for(document: Json) -> str:
    labels = document["metadata"].get("labels") or {}
    return f"retained for {labels.get(meta.KEPT_FOR)}" if meta.KEPT_BY in labels and labels.get(meta.KEPT_FOR) else ""


def _name(document: Json) -> str:
    return f"{short_name(document['kind'])}/{document['metadata']['name']}"


async def _read(api: Api, namespace: str, kind: str, name: str) -> list[Json]:
    """The object, if it exists. Raises `Failed` for a user who may neither list the objects of the kind nor read it."""
    from poolhouse.runtime.errors import Forbidden, NotFound

    resource = next(Resource.of(each) for each in TREE_KINDS if each.kind == kind)
    try:
        return [{**await api.get(resource, namespace, name), "kind": kind}]
    except Forbidden:
        raise Failed(f"you may neither list {kind}s in namespace {namespace} nor read {name}") from None
    except NotFound:
        return []
