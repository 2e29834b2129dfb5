"""Schedules VMIs to nodes by memory, and reserves memory for scheduled VMIs and migrations."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from poolhouse.runtime.store import Store
from poolhouse.stack.engine.api_object import Pairs
from poolhouse.stack.engine.objects import VMI, Node


def schedule(
    node_selector: Pairs, memory: int, nodes: Iterable[Node], used: Mapping[str, int], avoid: str = ""
) -> str | None:
    """Returns the matching node with the least memory in use (`used`, in bytes) with enough left, or None.
    The only resource is memory, because all guests share the memory of this machine."""
    fit = [node for node in nodes if node.name != avoid and node.schedulable and node.matches(node_selector)]
    fit = [node for node in fit if used.get(node.name, 0) + memory <= node.memory]
    return min(fit, key=lambda node: (used.get(node.name, 0), node.name)).name if fit else None


def unschedulable_message(node_selector: Pairs, memory: int, nodes: Iterable[Node], used: Mapping[str, int]) -> str:
    """Returns kube-scheduler's message for a VMI that fits on no node."""
    nodes = list(nodes)
    reasons = {
        "node(s) were unschedulable": sum(node.cordoned for node in nodes),
        "node(s) had untolerated taint": sum(bool(node.taints) and not node.cordoned for node in nodes),
        "node(s) were not ready": sum(not node.ready or node.lost for node in nodes),
        "node(s) didn't match the node selector": sum(not node.matches(node_selector) for node in nodes),
        "Insufficient memory": sum(
            node.schedulable and used.get(node.name, 0) + memory > node.memory for node in nodes
        ),
    }
    counted = ", ".join(f"{count} {reason}" for reason, count in reasons.items() if count)
    return f"0/{len(nodes)} nodes are available: {counted or 'the cluster has no nodes'}."


class NodeCapacity:
    """Counts the memory in use on each node: that of observed VMIs, and reservations.

    A scheduling decision reserves memory until the informer shows the VMI on its node. Without reservations, VMIs that
    are scheduled at the same time would all use the same free memory.
    """

    def __init__(self, vmis: Store[VMI]) -> None:
        self._vmis = vmis
        self._reservations: dict[str, tuple[str, int]] = {}
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, freed: Callable[[], None]) -> None:
        """Calls `freed` when a release frees memory, so that the caller can retry VMIs that wait for a node."""
        self._subscribers.append(freed)

    def reserve(self, uid: str, node: str, memory: int) -> None:
        """Reserves memory for the VMI or the migration with this UID."""
        self._reservations[uid] = node, memory

    def release(self, uid: str, observed_on: str = "") -> None:
        """Releases a reservation. A VMI that is observed on the reserved node uses the memory, so none is freed."""
        node, _ = self._reservations.pop(uid, (observed_on, 0))
        if node != observed_on:
            for freed in self._subscribers:
                freed()

    def reserved_node(self, uid: str) -> str | None:
        return self._reservations[uid][0] if uid in self._reservations else None

    def used(self, nodes: Iterable[Node]) -> Counter[str]:
        """Returns the bytes of memory in use, by node."""
        used = Counter(
            {node.name: sum(vmi.memory_with_overhead for vmi in self._vmis.by("node", node.name)) for node in nodes}
        )
        for node, memory in self._reservations.values():
            used[node] += memory
        return used
