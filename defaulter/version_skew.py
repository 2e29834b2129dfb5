"""Finds out whether the defaulter's libvirt or QEMU is newer than that of a node.

A newer libvirt may choose what the libvirt of a node does not know. KubeVirt does not publish the versions of its
nodes. Their labels have the machine types of QEMU, and each release of KubeVirt is built with one libvirt and one QEMU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from defaulter.machine_types import Notation, newest_by_notation
from defaulter.nodes import Node
from poolhouse.api.kubevirt.versions import HYPERVISORS, Release, dotted

if TYPE_CHECKING:
    from defaulter.messages import Version

Component = Literal["libvirt", "qemu"]
COMPONENTS: tuple[Component, ...] = get_args(Component)


@dataclass(frozen=True)
class Newer:
    """A part of the defaulter that is newer than that of a node."""

    component: Component
    ours: str
    theirs: str
    """version or machine type, and who has it"""

    def __str__(self) -> str:
        name = "QEMU" if self.component == "qemu" else self.component
        return f"the defaulter's {name} is newer than that of the nodes: {self.ours}, but {self.theirs}"


def newer_than_nodes(ours: Version, nodes: Iterable[Node], release: Release | None) -> list[Newer]:
    """What is newer in the defaulter. Empty if nothing is, or if nothing is known of the nodes. `release` is the
    cluster's oldest release of KubeVirt."""
    built_with = HYPERVISORS.get(release) if release is not None else None
    found, compared = _by_machine_types(ours.machines, nodes)
    if built_with is not None:
        named = dotted(release or ())
        found += _by_release("libvirt", (ours.libvirt,), built_with.libvirt, named)
        others = (version for architecture, version in ours.qemu.items() if architecture not in compared)
        found += _by_release("qemu", others, built_with.qemu, named)
    return list(dict.fromkeys(found))


def _by_machine_types(
    machines: Mapping[str, Iterable[str]], nodes: Iterable[Node]
) -> tuple[list[Newer], frozenset[str]]:
    """What the labels of the nodes show, and the architectures of which they show something. Of many nodes, the one
    with the oldest QEMU is named."""
    newest = {architecture: newest_by_notation(names) for architecture, names in machines.items()}
    oldest: dict[tuple[str, Notation], tuple[tuple[int, ...], str, str]] = {}
    for node in nodes:
        for notation, (version, machine) in newest_by_notation(node.machines).items():
            key, found = (node.architecture, notation), (version, machine, node.name)
            oldest[key] = min(oldest.get(key, found), found)
    compared = {key: found for key, found in oldest.items() if key[1] in newest.get(key[0], {})}
    newer = [
        Newer("qemu", newest[architecture][notation][1], f"node {node} has {machine} at most")
        for (architecture, notation), (version, machine, node) in sorted(compared.items())
        if newest[architecture][notation][0] > version
    ]
    return newer, frozenset(architecture for architecture, _ in compared)


def _by_release(component: Component, ours: Iterable[str], theirs: str, release: str) -> Iterator[Newer]:
    for version in ours:
        if _numbers(version) > _numbers(theirs):
            yield Newer(component, version, f"KubeVirt {release} has {theirs}")


def _numbers(version: str) -> tuple[int, ...]:
    """The major and the minor version. Others are corrections."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))
