"""Resolves aliases of machine types, and counts the machine types that the cluster's nodes can run.

KubeVirt puts the machine types of a node on its labels. A client of the defaulter that watches nodes sends them with
each request. An alias is resolved to the first of these:

1. the type that the administrator configured;
2. this libvirt's type, if all nodes can run it;
3. the newest version of the type that all nodes can run.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from apimachinery.unstructured import Json

SCHEDULABLE_LABEL = "kubevirt.io/schedulable"
"""label of all nodes that KubeVirt manages, with any value; other nodes run no VMs"""
ARCHITECTURE_LABEL = "kubernetes.io/arch"
MACHINE_TYPE_LABEL_PREFIX = "machine-type.node.kubevirt.io/"

UnavailablePolicy = Literal["warn", "refuse"]

ALIASES = {"amd64": "q35", "arm64": "virt", "s390x": "s390-ccw-virtio"}
"""KubeVirt's machine type for a VM without one, by architecture"""


@dataclass(frozen=True)
class MachineTypes:
    everywhere: frozenset[str]
    """types that all nodes of an architecture can run"""
    somewhere: frozenset[str]
    """types that at least one node can run"""


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    architecture: str
    machines: frozenset[str]


def read_node(document: Json) -> Node:
    metadata = document["metadata"]
    labels = metadata.get("labels") or {}
    machines = frozenset(
        key.removeprefix(MACHINE_TYPE_LABEL_PREFIX)
        for key, value in labels.items()
        if key.startswith(MACHINE_TYPE_LABEL_PREFIX) and value == "true"
    )
    return Node(metadata["name"], labels.get(ARCHITECTURE_LABEL, ""), machines)


class MachineTypeIndex:
    """Counts the nodes of each machine type as a watch reports changes, so that a query does not visit every node."""

    def __init__(self) -> None:
        self._nodes: Counter[str] = Counter()
        self._machines: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._current: MachineTypes | None = None
        self._fresh = True

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        for node, count in ((old, -1), (new, 1)):
            if node is not None and node.machines:
                self._nodes[node.architecture] += count
                for machine in node.machines:
                    self._machines[node.architecture][machine] += count
        self._fresh = False

    def current(self) -> MachineTypes | None:
        """The machine types of the nodes; None while no node has a machine type."""
        if not self._fresh:
            counts = [
                (machine, count, self._nodes[architecture])
                for architecture, machines in self._machines.items()
                for machine, count in machines.items()
                if count > 0
            ]
            somewhere = frozenset(machine for machine, _, _ in counts)
            everywhere = frozenset(machine for machine, count, nodes in counts if count == nodes)
            self._current = MachineTypes(everywhere, somewhere) if somewhere else None
            self._fresh = True
        return self._current


def is_canonical(machine: str) -> bool:
    """Whether a machine type has a version, and so always means the same hardware. An alias depends on QEMU."""
    return any(part[:1].isdigit() or part.startswith("rhel") for part in machine.split("-")[1:])


def is_version_of(alias: str, machine: str) -> bool:
    same = machine.removeprefix("pc-").startswith(f"{alias.removeprefix('pc-')}-")
    return bool(alias) and not is_canonical(alias) and is_canonical(machine) and same


def resolve_alias(alias: str, ours: str, configured: Mapping[str, str], available: MachineTypes | None) -> str:
    """The canonical type of an alias; `ours` is the type that this libvirt has for it."""
    if alias in configured:
        return configured[alias]
    if available is None or ours in available.everywhere:
        return ours
    for types in (available.everywhere, available.somewhere):
        versions = [machine for machine in types if is_version_of(alias, machine)]
        if versions:
            return max(versions, key=_version)
    return ours


def _version(machine: str) -> tuple[tuple[int, ...], str]:
    return tuple(int(digits) for digits in re.findall(r"\d+", machine.rpartition("-")[2])), machine


def find_substitute(
    machine: str, known: Collection[str], configured: Mapping[str, str], available: MachineTypes | None
) -> str | None:
    """An alias that this libvirt knows, for a machine type that only the nodes have. None if the nodes do not have the
    type either. All versions of a type have the same PCI slots."""
    if machine in configured.values():
        return next((alias for alias, real in configured.items() if real == machine and alias in known), None)
    if available is None or machine not in available.somewhere:
        return None
    return next((alias for alias in ALIASES.values() if alias in known and is_version_of(alias, machine)), None)


def unavailable_message(machine: str, available: MachineTypes | None) -> str | None:
    """A message that no node can run the machine type. None if a node can, or if the nodes are unknown."""
    if available is None or machine in available.somewhere:
        return None
    newest = sorted((each for each in available.everywhere if is_canonical(each)), key=_version, reverse=True)[:6]
    alternatives = f"; all of them have {', '.join(newest)}" if newest else ""
    return f"no node of the cluster can run the machine type {machine}{alternatives}"


def limited_message(machine: str, available: MachineTypes | None) -> str | None:
    """A message that only some nodes can run the machine type; None otherwise."""
    if available is None or machine not in available.somewhere or machine in available.everywhere:
        return None
    return f"not every node can run the machine type {machine}: the scheduler skips the other nodes"
