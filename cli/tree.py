"""`poolhouse tree`: whose a VM is, and what is its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from cli.cluster import Cluster, cluster_options, list_visible
from cli.output import Failed, is_structured, output_option, print_structured
from cli.resource_names import complete_names, named_kinds, parse_name, qualified_name, short_name
from cli.table import align_columns

if TYPE_CHECKING:
    from kinds.kind import Kind
    from runtime.api import Api

Json = dict[str, Any]


def tree_kinds() -> tuple[Kind, ...]:
    from kinds import KINDS, kubevirt

    return (kubevirt.VM, kubevirt.VMI, *(kind for kind in KINDS if kind.namespaced))


@dataclass(frozen=True)
class Node:
    """An object, and what belongs to it."""

    name: str
    summary: str
    children: tuple[Node, ...] = ()

    def json(self) -> Json:
        return {"name": self.name, "says": self.summary, "children": [each.json() for each in self.children]}


@click.command()
@click.argument("name", shell_complete=complete_names("virtualmachines", prefixes=tree_kinds))
@output_option("text", "name")
@cluster_options
def tree(cluster: Cluster, name: str, output: str) -> None:
    """Show whose a VM is, and what is its own: the running instance, disks and claims of volumes.

    NAME is a VM's, or one of vmi/NAME, vmpool/NAME, vmirs/NAME, vmwp/NAME and vmclaim/NAME: of a pool all its VMs are
    shown, and the disks that it keeps.
    """
    kind, rest = parse_name(name, *(each.kind for each in tree_kinds()))
    found, hidden = cluster.run(lambda api: _objects(api, cluster.namespace))
    grown = build_tree(found, kind, rest)
    if grown is None and kind in hidden:
        raise Failed(f"you may not list {kind}s in namespace {cluster.namespace}")
    if hidden:
        click.echo(f"not shown, because you may not list them: {', '.join(f'{each}s' for each in hidden)}", err=True)
    if grown is None:
        raise Failed(f"there is no {short_name(kind)} {rest} in namespace {cluster.namespace}")
    if is_structured(output):
        print_structured(output, grown.json())
        return
    if output == "name":
        for each in dict.fromkeys(_every(grown)):
            click.echo(each)
        return
    for line in align_columns([*draw(grown)]):
        click.echo(line)


def build_tree(objects: Sequence[Json], kind: str, name: str) -> Node | None:
    """From the topmost owner down to the object, and all below the object. None: there is no such object."""
    by_uid = {each["metadata"]["uid"]: each for each in objects}
    start = next((each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name), None)
    if start is None:
        return None
    node, here = _below(start, objects, frozenset()), start
    seen = {here["metadata"]["uid"]}
    while (above := _parent(here)) is not None and above[0] not in seen:
        seen.add(above[0])
        here = by_uid.get(above[0]) or {"kind": above[1], "metadata": {"name": above[2], "uid": above[0]}}
        gone = "" if above[0] in by_uid else "it is gone, or may not be read"
        node = Node(_named(here), gone or summarize(here), (node,))
    return node


def draw(node: Node, before: str = "", inner: str = "") -> Iterator[tuple[str, str]]:
    """Lines of two cells."""
    yield f"{before}{node.name}", node.summary
    for place, child in enumerate(node.children, 1):
        last = place == len(node.children)
        yield from draw(child, inner + ("└── " if last else "├── "), inner + ("    " if last else "│   "))


def _every(node: Node) -> Iterator[str]:
    kind, _, name = node.name.partition("/")
    yield qualified_name(next((each.kind for each in named_kinds() if each.short_name == kind), kind), name)
    for child in node.children:
        yield from _every(child)


def summarize(document: Json) -> str:
    """What is worth knowing of it at a glance."""
    from cli.health import assess, assess_phase

    metadata, spec, status = document["metadata"], document.get("spec") or {}, document.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return "it is being deleted"
    match document["kind"]:
        case "VirtualMachine":
            return str(status.get("printableStatus") or "")
        case "VirtualMachineInstance":
            node = f" on {status['nodeName']}" if status.get("nodeName") else ""
            return f"{status.get('phase') or 'Pending'}{node}"
        case "DataVolume":
            return str(status.get("phase") or "")
        case "PersistentVolumeClaim":
            size = (status.get("capacity") or (spec.get("resources") or {}).get("requests") or {}).get("storage")
            kept = f"kept for {kept}" if (kept := _kept_for(document)) else ""
            return ", ".join(part for part in (str(status.get("phase") or ""), size, kept) if part)
    phases = next((kind.phases for kind in tree_kinds() if kind.kind == document["kind"]), None)
    if phases is not None:
        return assess_phase(document, phases).says
    ready = status.get("readyReplicas") or 0
    judged = assess(document)
    return f"{ready} of {spec.get('replicas', 0)} ready" + (f"; {judged.says}" if judged.says else "")


def _below(document: Json, objects: Sequence[Json], above: frozenset[str]) -> Node:
    uid = document["metadata"]["uid"]
    path = above | {uid}
    own = [each for each in objects if (_parent(each) or ("",))[0] == uid and each["metadata"]["uid"] not in path]
    order = [each.kind for each in named_kinds()]
    own.sort(key=lambda each: (order.index(each["kind"]), each["metadata"]["name"]))
    return Node(_named(document), summarize(document), tuple(_below(each, objects, path) for each in own))


def _parent(document: Json) -> tuple[str, str, str] | None:
    """UID, kind and name of whose an object is: its controller's, else an owner's, else the pool's that keeps it."""
    from kinds import meta

    references = document["metadata"].get("ownerReferences") or ()
    owner = next((each for each in references if each.get("controller")), next(iter(references), None))
    if owner is not None:
        return owner["uid"], owner["kind"], owner["name"]
    keeper = (document["metadata"].get("labels") or {}).get(meta.KEPT_BY)
    return (keeper, "VirtualMachinePool", keeper) if keeper else None


def _kept_for(document: Json) -> str:
    from kinds import meta

    labels = document["metadata"].get("labels") or {}
    return str(labels.get(meta.KEPT_FOR, "")) if meta.KEPT_BY in labels else ""


def _named(document: Json) -> str:
    kind = document["kind"]
    return f"{short_name(kind)}/{document['metadata']['name']}"


async def _objects(api: Api, namespace: str) -> tuple[list[Json], list[str]]:
    """What may be in a tree, and the kinds that whoever asks may not list. A list's items do not say their kind; what
    the cluster does not have is not there."""
    from controllers.shared.sources import DATA_VOLUMES, PVCS
    from kinds import KINDS
    from runtime.resource import VMIS, VMS, Resource

    ours = [Resource.of(kind) for kind in KINDS if kind.namespaced]
    asked = (*ours, VMS, VMIS, DATA_VOLUMES, PVCS)
    answers = await asyncio.gather(*(list_visible(api, each, namespace) for each in asked))
    every = [*zip((each.kind for each in asked), answers, strict=True)]
    hidden = [kind for kind, found in every if found is None]
    return [{**each, "kind": kind} for kind, found in every for each in found or ()], hidden
