"""What the nodes that run VMs can allocate together. Admission warns of replicas that need more."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from fractions import Fraction

from defaulter.contract import Node

Capacity = Mapping[str, Fraction]
"""allocatable amounts by resource"""


class NodeCapacity:
    """Adds up the nodes as a watch reports changes, so that a review does not visit every node."""

    def __init__(self) -> None:
        self._nodes = 0
        self._known: Counter[str] = Counter()
        self._total: defaultdict[str, Fraction] = defaultdict(Fraction)

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """A cordoned node counts, because somebody will uncordon it."""
        for node, sign in ((old, -1), (new, 1)):
            if node is not None:
                self._nodes += sign
                for resource, amount in node.allocatable.items():
                    self._known[resource] += sign
                    self._total[resource] += sign * amount

    @property
    def total(self) -> Capacity:
        """Of the resources of which every node says how much it has. Empty if there is no node."""
        told = [name for name, nodes in self._known.items() if nodes and nodes == self._nodes]
        return {name: self._total[name] for name in told}
