"""The four queues: what the labels say, joined with runs and nodes."""

from __future__ import annotations

from dataclasses import replace

from controllers.warmpool.cache import WarmVMCache
from controllers.warmpool.warm_vm import Node, WarmVM
from kinds.warm_states import WarmState
from tests.controllers.warmpool.builders import UID, a_vm, a_vmi


def queues(*machines: WarmVM, nodes: tuple[Node, ...] = (Node("node-1"),)) -> WarmVMCache:
    found = WarmVMCache()
    for m in machines:
        found.vms.put(m.key, replace(m, vmi=None, node=None))
        if m.vmi is not None:
            found.vmis.put(m.key, m.vmi)
    for each in nodes:
        found.nodes.put(each.key, each)
    return found


def test_each_state_has_its_queue() -> None:
    found = queues(*(a_vm(state.name, state) for state in WarmState), a_vm("leaving", deleting=True))
    for state in WarmState:
        assert [m.uid for m in found.in_state(UID, state)] == [state.name]
    assert len(found.of_pool(UID)) == len(WarmState) + 1
    assert found.in_state("another pool", WarmState.READY) == []


def test_a_label_that_changes_changes_the_queue() -> None:
    found = queues(a_vm("a"))
    found.vms.put(("ns", "web-a"), replace(a_vm("a"), state=WarmState.UNHEALTHY))
    assert found.in_state(UID, WarmState.READY) == []
    assert [m.uid for m in found.in_state(UID, WarmState.UNHEALTHY)] == ["a"]


def test_a_machine_is_joined_with_its_own_run_and_node() -> None:
    (m,) = queues(a_vm("a")).in_state(UID, WarmState.READY)
    assert (m.vmi is not None, m.node) == (True, Node("node-1"))
    (stranger,) = queues(a_vm("a", vmi=a_vmi(name="web-a", owner_uid="another"))).in_state(UID, WarmState.READY)
    assert (stranger.vmi, stranger.node) == (None, None), "a run of one that had this name before"


def test_what_changes_is_joined_anew() -> None:
    found = queues(a_vm("a"))
    (before,) = found.in_state(UID, WarmState.READY)
    assert found.in_state(UID, WarmState.READY)[0] is before
    found.nodes.put(("", "node-1"), Node("node-1", leaving=True))
    assert found.in_state(UID, WarmState.READY)[0].node == Node("node-1", leaving=True)


def test_a_node_that_is_gone_does_not_answer() -> None:
    (m,) = queues(a_vm("a"), nodes=(Node("node-2"),)).in_state(UID, WarmState.READY)
    assert m.node is not None
    assert not m.node.ready


def test_machines_are_found_by_claim_pool_name_and_node() -> None:
    found = queues(a_vm("a"), a_vm("b", WarmState.IN_USE))
    assert [m.uid for m in found.vms.by("claim", "claim-b")] == ["b"]
    assert {m.uid for m in found.with_pool_name(("ns", "web"))} == {"a", "b"}
    assert {m.uid for m in found.on_node("node-1")} == {"a", "b"}
    assert found.get(("ns", "web-z")) is None
