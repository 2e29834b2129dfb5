"""How much memory of each node is taken: by the VMIs that are there, and by those on their way to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from local.engine.views import Instance, Node
from runtime.store import Store


class Room:
    """Whoever decides where a VMI goes keeps the room at once, until what is seen says so too: of a crowd each would
    find the same room free."""

    def __init__(self, instances: Store[Instance]) -> None:
        self._instances = instances
        self._kept: dict[str, tuple[str, int]] = {}

    def keep(self, uid: str, node: str, size: int) -> None:
        """For what has this UID: a VMI that starts, a migration that moves one."""
        self._kept[uid] = node, size

    def release(self, uid: str) -> None:
        self._kept.pop(uid, None)

    def kept(self, uid: str) -> str | None:
        """The node."""
        return self._kept[uid][0] if uid in self._kept else None

    def used(self, nodes: Iterable[Node]) -> Counter[str]:
        """Bytes of memory that are taken, by node."""
        used = Counter({node.name: sum(each.size for each in self._instances.by("node", node.name)) for node in nodes})
        for node, size in self._kept.values():
            used[node] += size
        return used
