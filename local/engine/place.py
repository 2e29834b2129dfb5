"""Which node a VMI goes to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from local.engine.views import Node, Pairs


def place(selector: Pairs, nodes: Iterable[Node], loads: Mapping[str, int], avoid: str = "") -> str | None:
    """The open node with the fewest VMIs that offers what is asked for, by name among equals. Nodes have no capacity
    here: that is the machine's, and all nodes share it."""
    fit = [node for node in nodes if node.open and node.offers(selector) and node.name != avoid]
    return min(fit, key=lambda node: (loads.get(node.name, 0), node.name)).name if fit else None


def unplaceable(selector: Pairs, nodes: Iterable[Node]) -> str:
    """Why `place` found none, as the scheduler would say it."""
    nodes = list(nodes)
    reasons = {
        "node(s) were unschedulable": sum(node.cordoned for node in nodes),
        "node(s) had untolerated taint": sum(bool(node.taints) and not node.cordoned for node in nodes),
        "node(s) were not ready": sum(not node.ready or node.lost for node in nodes),
        "node(s) didn't match the node selector": sum(not node.offers(selector) for node in nodes),
    }
    said = ", ".join(f"{count} {reason}" for reason, count in reasons.items() if count)
    return f"0/{len(nodes)} nodes are available: {said or 'none is there'}."
