"""Which node a VMI goes to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from local.engine.objects import Node, Pairs


def schedule(selector: Pairs, size: int, nodes: Iterable[Node], used: Mapping[str, int], avoid: str = "") -> str | None:
    """The open node with the least memory in use that offers what is asked for and has room, by name among equals.

    `used` is in bytes. Memory is the one thing that is counted: guests share this machine with everything else on it,
    and a pool of a thousand would otherwise take all of it.
    """
    fit = [node for node in nodes if node.name != avoid and node.open and node.offers(selector)]
    fit = [node for node in fit if used.get(node.name, 0) + size <= node.memory]
    return min(fit, key=lambda node: (used.get(node.name, 0), node.name)).name if fit else None


def unschedulable_message(selector: Pairs, size: int, nodes: Iterable[Node], used: Mapping[str, int]) -> str:
    """Why `place` found none, as the scheduler would say it."""
    nodes = list(nodes)
    reasons = {
        "node(s) were unschedulable": sum(node.cordoned for node in nodes),
        "node(s) had untolerated taint": sum(bool(node.taints) and not node.cordoned for node in nodes),
        "node(s) were not ready": sum(not node.ready or node.lost for node in nodes),
        "node(s) didn't match the node selector": sum(not node.offers(selector) for node in nodes),
        "Insufficient memory": sum(node.open and used.get(node.name, 0) + size > node.memory for node in nodes),
    }
    said = ", ".join(f"{count} {reason}" for reason, count in reasons.items() if count)
    return f"0/{len(nodes)} nodes are available: {said or 'none is there'}."
