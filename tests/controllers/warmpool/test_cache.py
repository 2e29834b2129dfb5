"""The four queues: what the labels say, joined with runs and nodes."""

from __future__ import annotations

from dataclasses import replace

from controllers.warmpool.cache import VM_INDEXES, VMI_INDEXES, WarmVMCache
from controllers.warmpool.node import Node
from controllers.warmpool.vmi import VMI
from controllers.warmpool.warm_vm import WarmVM
from kinds.warm_states import WarmState
from runtime.store import Store
from tests.controllers.warmpool.builders import UID, a_vm, a_vmi


def queues(*machines: WarmVM, nodes: tuple[Node, ...] = (Node("node-1"),)) -> WarmVMCache:
    found: Store[WarmVM] = Store(VM_INDEXES)
    guests: Store[VMI] = Store(VMI_INDEXES)
    known: Store[Node] = Store()
    for m in machines:
        found.put(m.key, replace(m, vmi=None, node=None))
        if m.vmi is not None:
            guests.put(m.key, m.vmi)
    for each in nodes:
        known.put(each.key, each)
    return WarmVMCache(found, guests, known)


def test_each_state_has_its_queue() -> None:
    found = queues(*(a_vm(state.name, state) for state in WarmState), a_vm("leaving", deleting=True))
    names = {
        queue.__name__: [m.uid for m in queue(UID)]
        for queue in (found.provisioning, found.ready, found.allocating, found.unhealthy)
    }
    assert names == {
        "provisioning": ["PROVISIONING", "STANDING_BY"],
        "ready": ["READY"],
        "allocating": ["ALLOCATING"],
        "unhealthy": ["UNHEALTHY"],
    }
    assert len(found.all(UID)) == len(WarmState) + 1
    assert found.ready("another pool") == []


def test_a_label_that_changes_changes_the_queue() -> None:
    found = queues(a_vm("a"))
    found.vms.put(("ns", "web-a"), replace(a_vm("a"), state=WarmState.UNHEALTHY))
    assert found.ready(UID) == []
    assert [m.uid for m in found.unhealthy(UID)] == ["a"]


def test_a_machine_is_joined_with_its_own_run_and_node() -> None:
    (m,) = queues(a_vm("a")).ready(UID)
    assert (m.vmi is not None, m.node) == (True, Node("node-1"))
    (stranger,) = queues(a_vm("a", vmi=a_vmi(name="web-a", owner="another"))).ready(UID)
    assert (stranger.vmi, stranger.node) == (None, None), "a run of one that had this name before"


def test_what_changes_is_joined_anew() -> None:
    found = queues(a_vm("a"))
    (before,) = found.ready(UID)
    assert found.ready(UID)[0] is before
    found.nodes.put(("", "node-1"), Node("node-1", leaving=True))
    assert found.ready(UID)[0].node == Node("node-1", leaving=True)


def test_a_node_that_is_gone_does_not_answer() -> None:
    (m,) = queues(a_vm("a"), nodes=(Node("node-2"),)).ready(UID)
    assert m.node is not None
    assert not m.node.ready


def test_machines_are_found_by_claim_pool_name_and_node() -> None:
    found = queues(a_vm("a"), a_vm("b", WarmState.IN_USE))
    assert [m.uid for m in found.claimed("claim-b")] == ["b"]
    assert {m.uid for m in found.named(("ns", "web"))} == {"a", "b"}
    assert {m.uid for m in found.on("node-1")} == {"a", "b"}
    assert found.get(("ns", "web-z")) is None
