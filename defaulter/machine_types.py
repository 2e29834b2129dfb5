"""Machine types: which one an alias stands for, and which ones the cluster's nodes can run.

KubeVirt puts the machine types of a node on its labels. A client of the defaulter that watches nodes sends them with
each request. An alias is resolved to the type that the administrator configured, else to the type of this libvirt if
all nodes can run it, else to the newest version that all nodes can run.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

SCHEDULABLE_LABEL = "kubevirt.io/schedulable"
"""the label that every node of KubeVirt's has, whatever its value; others run no VM and say nothing about machines"""
_ARCHITECTURE = "kubernetes.io/arch"
_MACHINE = "machine-type.node.kubevirt.io/"


@dataclass(frozen=True)
class MachineTypes:
    everywhere: frozenset[str]
    """types that all nodes of an architecture can run: a VM of such a type can go to each of them"""
    somewhere: frozenset[str]
    """types that a node at least can run, those above included"""


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    architecture: str
    machines: frozenset[str]


def read_node(document: dict[str, Any]) -> Node:
    metadata = document["metadata"]
    labels = metadata.get("labels") or {}
    machines = frozenset(
        key.removeprefix(_MACHINE) for key, value in labels.items() if key.startswith(_MACHINE) and value == "true"
    )
    return Node(metadata["name"], labels.get(_ARCHITECTURE, ""), machines)


class MachineTypeIndex:
    """Kept up to date by the changes of a watch, so that asking costs nothing however many nodes there are."""

    def __init__(self) -> None:
        self._nodes: Counter[str] = Counter()
        self._machines: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._current: MachineTypes | None = None
        self._fresh = True

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        for seen, count in ((old, -1), (new, 1)):
            if seen is not None and seen.machines:
                self._nodes[seen.architecture] += count
                for machine in seen.machines:
                    self._machines[seen.architecture][machine] += count
        self._fresh = False

    def current(self) -> MachineTypes | None:
        """None while no node has said anything, which is no reason to refuse a machine."""
        if not self._fresh:
            somewhere = {m for found in self._machines.values() for m, count in found.items() if count > 0}
            everywhere = {
                m
                for architecture, found in self._machines.items()
                for m, count in found.items()
                if 0 < count == self._nodes[architecture]
            }
            self._current = MachineTypes(frozenset(everywhere), frozenset(somewhere)) if somewhere else None
            self._fresh = True
        return self._current


UnavailablePolicy = Literal["warn", "refuse"]

ALIASES = {"amd64": "q35", "arm64": "virt", "s390x": "s390-ccw-virtio"}
"""what KubeVirt asks for where a spec names none"""


def is_canonical(machine: str) -> bool:
    """A versioned machine type means the same hardware for ever, an alias what the next QEMU makes of it."""
    return any(part[:1].isdigit() or part.startswith("rhel") for part in machine.split("-")[1:])


def is_version_of(alias: str, machine: str) -> bool:
    """Whether the machine is a version of what the alias stands for."""
    same = machine.removeprefix("pc-").startswith(f"{alias.removeprefix('pc-')}-")
    return bool(alias) and not is_canonical(alias) and is_canonical(machine) and same


def resolve_alias(alias: str, ours: str, configured: Mapping[str, str], available: MachineTypes | None) -> str:
    """What an alias is made, where our own libvirt has made it `ours`."""
    if alias in configured:
        return configured[alias]
    if available is None or ours in available.everywhere:
        return ours
    for offered in (available.everywhere, available.somewhere):
        family = [machine for machine in offered if is_version_of(alias, machine)]
        if family:
            return max(family, key=_version)
    return ours


def _version(machine: str) -> tuple[tuple[int, ...], str]:
    return tuple(int(digits) for digits in re.findall(r"\d+", machine.rpartition("-")[2])), machine


def find_substitute(
    machine: str, known: Collection[str], configured: Mapping[str, str], available: MachineTypes | None
) -> str | None:
    """A machine of our own QEMU's to ask libvirt about instead of one that only the nodes have: the same family, whose
    slots are the same. None where the machine is nobody's."""
    if machine in configured.values():
        return next((a for a, real in configured.items() if real == machine and a in known), None)
    if available is None or machine not in available.somewhere:
        return None
    return next((alias for alias in ALIASES.values() if alias in known and is_version_of(alias, machine)), None)


def unavailable_message(machine: str, available: MachineTypes | None) -> str | None:
    """A sentence about a machine that no node can run; None where one can, or where nothing is known."""
    if available is None or machine in available.somewhere:
        return None
    family = sorted((m for m in available.everywhere if is_canonical(m)), key=_version, reverse=True)[:6]
    has = f"; all of them have {', '.join(family)}" if family else ""
    return f"no node of the cluster can run the machine type {machine}{has}"


def limited_message(machine: str, available: MachineTypes | None) -> str | None:
    """A sentence about a machine that some nodes cannot run."""
    if available is None or machine not in available.somewhere or machine in available.everywhere:
        return None
    return f"not every node can run the machine type {machine}: the VM cannot go to those that can't"
