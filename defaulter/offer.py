"""Which machine types the cluster's nodes can run, by the labels that KubeVirt puts on them.

The defaulter asks nobody: whoever watches nodes tells it with each request. The canonical type that its own QEMU has
for an alias may be one that no node has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

SELECTOR = "kubevirt.io/schedulable"
"""the label that every node of KubeVirt's has, whatever its value; others run no VM and say nothing about machines"""
_ARCHITECTURE = "kubernetes.io/arch"
_MACHINE = "machine-type.node.kubevirt.io/"


@dataclass(frozen=True)
class Offer:
    everywhere: frozenset[str]
    """types that all nodes of an architecture can run: a VM of such a type can go to each of them"""
    somewhere: frozenset[str]
    """types that a node at least can run, those above included"""


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    architecture: str
    machines: frozenset[str]


def node(document: dict[str, Any]) -> Node:
    metadata = document["metadata"]
    labels = metadata.get("labels") or {}
    machines = frozenset(
        key.removeprefix(_MACHINE) for key, value in labels.items() if key.startswith(_MACHINE) and value == "true"
    )
    return Node(metadata["name"], labels.get(_ARCHITECTURE, ""), machines)


class Offers:
    """Kept up to date by the changes of a watch, so that asking costs nothing however many nodes there are."""

    def __init__(self) -> None:
        self._nodes: Counter[str] = Counter()
        self._machines: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._now: Offer | None = None
        self._fresh = True

    def changed(self, old: Node | None, new: Node | None) -> None:
        for seen, count in ((old, -1), (new, 1)):
            if seen is not None and seen.machines:
                self._nodes[seen.architecture] += count
                for machine in seen.machines:
                    self._machines[seen.architecture][machine] += count
        self._fresh = False

    def now(self) -> Offer | None:
        """None while no node has said anything, which is no reason to refuse a machine."""
        if not self._fresh:
            somewhere = {m for found in self._machines.values() for m, count in found.items() if count > 0}
            everywhere = {
                m
                for architecture, found in self._machines.items()
                for m, count in found.items()
                if 0 < count == self._nodes[architecture]
            }
            self._now = Offer(frozenset(everywhere), frozenset(somewhere)) if somewhere else None
            self._fresh = True
        return self._now
