"""Schedules VMIs to nodes by memory, and accounts for memory that scheduled VMIs and migrations will take."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from local.engine.objects import VMI, Node, Pairs
from runtime.store import Store


def schedule(
    node_selector: Pairs, memory: int, nodes: Iterable[Node], used: Mapping[str, int], avoid: str = ""
) -> str | None:
    """The matching, schedulable node with the least memory in use and enough left, by name among equals. `used` is in
    bytes. Only memory counts: all guests share this machine, and a pool of a thousand would take it all."""
    fit = [node for node in nodes if node.name != avoid and node.schedulable and node.matches(node_selector)]
    fit = [node for node in fit if used.get(node.name, 0) + memory <= node.memory]
    return min(fit, key=lambda node: (used.get(node.name, 0), node.name)).name if fit else None


def unschedulable_message(node_selector: Pairs, memory: int, nodes: Iterable[Node], used: Mapping[str, int]) -> str:
    """Why `schedule` found no node, in the words of kube-scheduler."""
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
    """Memory in use on each node, by observed VMIs and by reservations.

    A scheduling decision reserves memory at once, until the informer shows the VMI on its node. Without the reservation
    VMIs that are scheduled at the same time would all count the same memory as free.
    """

    def __init__(self, vmis: Store[VMI]) -> None:
        self._vmis = vmis
        self._reservations: dict[str, tuple[str, int]] = {}
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, freed: Callable[[], None]) -> None:
        """Calls `freed` when a reservation is released: VMIs that wait for a node may find one."""
        self._subscribers.append(freed)

    def reserve(self, uid: str, node: str, memory: int) -> None:
        """`uid` is that of a VMI that starts or of a migration."""
        self._reservations[uid] = node, memory

    def release(self, uid: str, observed_on: str = "") -> None:
        """A VMI that is observed on its reserved node takes the memory itself, so none is freed."""
        node, _ = self._reservations.pop(uid, (observed_on, 0))
        if node != observed_on:
            for freed in self._subscribers:
                freed()

    def reserved_node(self, uid: str) -> str | None:
        return self._reservations[uid][0] if uid in self._reservations else None

    def used(self, nodes: Iterable[Node]) -> Counter[str]:
        """Bytes of memory in use, by node."""
        used = Counter(
            {node.name: sum(vmi.memory_with_overhead for vmi in self._vmis.by("node", node.name)) for node in nodes}
        )
        for node, memory in self._reservations.values():
            used[node] += memory
        return used
