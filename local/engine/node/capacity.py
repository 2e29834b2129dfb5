"""How much memory of each node is taken: by the VMIs that are there, and by those on their way to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from local.engine.objects import VMI, Node
from runtime.store import Store


class NodeCapacity:
    """Whoever decides where a VMI goes keeps the room at once, until what is seen says so too: of a crowd each would
    find the same room free."""

    def __init__(self, vmis: Store[VMI]) -> None:
        self._instances = vmis
        self._kept: dict[str, tuple[str, int]] = {}
        self._waiting: list[Callable[[], None]] = []

    def subscribe(self, again: Callable[[], None]) -> None:
        """Called whenever kept room is given back: there may be a place for those that found none."""
        self._waiting.append(again)

    def keep(self, uid: str, node: str, size: int) -> None:
        """For what has this UID: a VMI that starts, a migration that moves one."""
        self._kept[uid] = node, size

    def release(self, uid: str, seen_on: str = "") -> None:
        """What is seen where it was to go takes its room from now on, and gives none back."""
        node, _ = self._kept.pop(uid, (seen_on, 0))
        if node != seen_on:
            for again in self._waiting:
                again()

    def kept(self, uid: str) -> str | None:
        """The node."""
        return self._kept[uid][0] if uid in self._kept else None

    def used(self, nodes: Iterable[Node]) -> Counter[str]:
        """Bytes of memory that are taken, by node."""
        used = Counter({node.name: sum(each.size for each in self._instances.by("node", node.name)) for node in nodes})
        for node, size in self._kept.values():
            used[node] += size
        return used
