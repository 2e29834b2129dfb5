"""Summarizes what the nodes can run: machine types, CPU models and features, from the labels that KubeVirt gives them,
and what they can allocate.

A client of the defaulter that watches nodes sends the summary with each request.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from sys import intern

from poolhouse.api.apimachinery.quantity import to_fraction
from poolhouse.api.apimachinery.unstructured import Json, at

SCHEDULABLE_LABEL = "kubevirt.io/schedulable"
"""label of all nodes that KubeVirt manages, with any value; other nodes run no VMs"""
ARCHITECTURE_LABEL = "kubernetes.io/arch"
MACHINE_TYPE_LABELS = ("machine-type.node.kubevirt.io/",)
CPU_MODEL_LABELS = (
    "cpu-model.node.kubevirt.io/",
    "cpu-model-migration.node.kubevirt.io/",
    "host-model-cpu.node.kubevirt.io/",
)
"""models that a node can run, those that its libvirt knows, and the host's own"""
CPU_FEATURE_LABELS = ("cpu-feature.node.kubevirt.io/", "host-model-required-features.node.kubevirt.io/")


@dataclass(frozen=True)
class MachineTypes:
    __pydantic_config__ = {"use_attribute_docstrings": True}  # noqa: RUF012 (pydantic reads it from the class)

    everywhere: frozenset[str]
    """types that all nodes of an architecture can run"""
    somewhere: frozenset[str]
    """types that at least one node can run"""


@dataclass(frozen=True)
class CPUs:
    """Names that the libvirt of at least one node knows."""

    models: frozenset[str]
    features: frozenset[str]


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    architecture: str
    machines: frozenset[str]
    cpu_models: frozenset[str] = frozenset()
    cpu_features: frozenset[str] = frozenset()
    allocatable: Mapping[str, Fraction] = field(default_factory=dict)
    """CPUs, bytes of memory and Pods, as far as the node's status has them. A node that runs VMs without Pods has room
    for 0 Pods, which says nothing."""


def read_node(document: Json) -> Node:
    metadata = document["metadata"]
    labels = metadata.get("labels") or {}
    amounts = {name: to_fraction(at(document, "status", "allocatable", name)) for name in ("cpu", "memory", "pods")}
    return Node(
        name=metadata["name"],
        architecture=labels.get(ARCHITECTURE_LABEL, ""),
        machines=_names(labels, MACHINE_TYPE_LABELS),
        cpu_models=_names(labels, CPU_MODEL_LABELS),
        cpu_features=_names(labels, CPU_FEATURE_LABELS),
        allocatable={name: amount for name, amount in amounts.items() if amount},
    )


def _names(labels: Mapping[str, str], prefixes: tuple[str, ...]) -> frozenset[str]:
    found = (key.partition("/") for key, value in labels.items() if key.startswith(prefixes) and value == "true")
    return frozenset(intern(name) for _, _, name in found)


class NodeIndex:
    """Counts the nodes of each machine type, CPU model and feature as a watch reports changes, so that a query does not
    visit every node."""

    def __init__(self) -> None:
        self._nodes: Counter[str] = Counter()
        self._machines: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._models: Counter[str] = Counter()
        self._features: Counter[str] = Counter()
        self._current: tuple[MachineTypes | None, CPUs | None] = None, None
        self._fresh = True

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        for node, count in ((old, -1), (new, 1)):
            if node is not None and node.machines:
                self._nodes[node.architecture] += count
                for machine in node.machines:
                    self._machines[node.architecture][machine] += count
            if node is not None:
                for names, counter in ((node.cpu_models, self._models), (node.cpu_features, self._features)):
                    for name in names:
                        counter[name] += count
        self._fresh = False

    def machine_types(self) -> MachineTypes | None:
        """The machine types of the nodes; None while no node has a machine type."""
        return self._updated()[0]

    def cpus(self) -> CPUs | None:
        """The CPU models and features of the nodes; None while no node has a model."""
        return self._updated()[1]

    def _updated(self) -> tuple[MachineTypes | None, CPUs | None]:
        if not self._fresh:
            self._current = self._machine_types(), self._cpus()
            self._fresh = True
        return self._current

    def _machine_types(self) -> MachineTypes | None:
        counts = [
            (machine, count, self._nodes[architecture])
            for architecture, machines in self._machines.items()
            for machine, count in machines.items()
            if count > 0
        ]
        somewhere = frozenset(machine for machine, _, _ in counts)
        everywhere = frozenset(machine for machine, count, nodes in counts if count == nodes)
        return MachineTypes(everywhere, somewhere) if somewhere else None

    def _cpus(self) -> CPUs | None:
        models, features = (frozenset(+counter) for counter in (self._models, self._features))
        return CPUs(models, features) if models else None
