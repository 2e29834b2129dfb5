"""The document's four queues: an index of what the labels say, never a list of its own."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from controllers.warmpool.node import Node
from controllers.warmpool.vmi import VMI
from controllers.warmpool.warm_vm import WarmVM
from kinds.warm_states import WarmState
from runtime.resource import Key
from runtime.store import Store


def _by_pool(m: WarmVM) -> Iterator[Hashable]:
    if m.pool_uid:
        yield m.pool_uid


def _by_place(m: WarmVM) -> Iterator[Hashable]:
    if m.pool_uid and not m.orphaned:
        yield m.pool_uid


def _by_state(m: WarmVM) -> Iterator[Hashable]:
    if m.pool_uid and not m.deleting:
        yield m.pool_uid, m.state


def _by_claim(m: WarmVM) -> Iterator[Hashable]:
    if m.claim_uid:
        yield m.claim_uid


def _by_name(m: WarmVM) -> Iterator[Hashable]:
    if m.pool:
        yield m.namespace, m.pool


VM_INDEXES: Mapping[str, Callable[[WarmVM], Iterable[Hashable]]] = {
    "pool": _by_pool,
    "place": _by_place,
    "state": _by_state,
    "claim": _by_claim,
    "name": _by_name,
}
"""what the store of machines is to be indexed by"""


def _by_node(g: VMI) -> Iterator[Hashable]:
    if g.node:
        yield g.node


VMI_INDEXES: Mapping[str, Callable[[VMI], Iterable[Hashable]]] = {"node": _by_node}


SPARE = 100
DELETED_NODE = Node("(deleted)", ready=False)


@dataclass(frozen=True)
class WarmVMCache:
    vms: Store[WarmVM]
    """indexed by INDEXES"""
    vmis: Store[VMI]
    """indexed by GUEST_INDEXES"""
    nodes: Store[Node]
    _joined: dict[Key, tuple[WarmVM, VMI | None, Node | None, WarmVM]] = field(default_factory=dict)
    """what was joined last: of a thousand machines all but a few are as they were a moment ago"""

    def provisioning(self, pool_uid: str) -> list[WarmVM]:
        return self.of(pool_uid, WarmState.PROVISIONING) + self.of(pool_uid, WarmState.STANDING_BY)

    def ready(self, pool_uid: str) -> list[WarmVM]:
        return self.of(pool_uid, WarmState.READY)

    def allocating(self, pool_uid: str) -> list[WarmVM]:
        return self.of(pool_uid, WarmState.ALLOCATING)

    def unhealthy(self, pool_uid: str) -> list[WarmVM]:
        return self.of(pool_uid, WarmState.UNHEALTHY)

    def of(self, pool_uid: str, state: WarmState) -> list[WarmVM]:
        """Those in one state, without those that are being deleted."""
        return [self.joined(m) for m in self.vms.by("state", (pool_uid, state))]

    def all(self, pool_uid: str) -> list[WarmVM]:
        """Every machine that says it is of the pool, those that are claimed or being deleted included."""
        return [self.joined(m) for m in self.vms.by("pool", pool_uid)]

    def places(self, pool_uid: str) -> int:
        """How many of `maxTotal` are taken: orphans are nobody's, and nobody takes them away."""
        return len(self.vms.by("place", pool_uid))

    def named(self, pool: Key) -> list[WarmVM]:
        """Machines of all pools that have, or had, this name."""
        return self.vms.by("name", pool)

    def claimed(self, claim_uid: str) -> list[WarmVM]:
        """Machines that say they are this claim's. More than one is a race that the claim has to end."""
        return [self.joined(m) for m in self.vms.by("claim", claim_uid)]

    def get(self, key: Key) -> WarmVM | None:
        found = self.vms.get(key)
        return self.joined(found) if found is not None else None

    def on(self, node: str) -> list[WarmVM]:
        """Those that run on a node."""
        found = (self.vms.get(g.key) for g in self.vmis.by("node", node))
        return [m for m in found if m is not None]

    def joined(self, m: WarmVM) -> WarmVM:
        guest = self.vmis.get(m.key)
        if guest is None or guest.owner != m.uid:
            return m
        node = self._node(guest.node) if guest.node else None
        known = self._joined.get(m.key)
        if known is not None and known[0] is m and known[1] is guest and known[2] is node:
            return known[3]
        if len(self._joined) > 2 * len(self.vms) + SPARE:
            self._joined.clear()  # most of it is of machines that are gone
        found = replace(m, vmi=guest, node=node)
        self._joined[m.key] = m, guest, node, found
        return found

    def _node(self, name: str) -> Node | None:
        """One that was deleted answers no more than one that is silent."""
        found = self.nodes.get(("", name))
        return DELETED_NODE if found is None and len(self.nodes) else found
