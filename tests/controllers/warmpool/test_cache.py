"""VMs found by their labels, and joined with their VMIs and nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controllers.warmpool.cache import Demand
from controllers.warmpool.warm_vm import Node
from poolhouse.api.kinds.warm_states import WarmState
from tests.controllers.claim.builders import a_claim
from tests.controllers.warmpool.builders import a_cache, a_pool, a_vm, a_vmi

POOL = a_pool()


@pytest.mark.sentence("5.30")
def test_vms_are_found_by_state() -> None:
    found = a_cache(*(a_vm(state.name, state) for state in WarmState), a_vm("deleted", deleting=True))
    for state in WarmState:
        assert [m.uid for m in found.in_state(POOL, state)] == [state.name]
    assert len(found.of_pool(POOL)) == len(WarmState) + 1
    assert found.in_state(a_pool(uid="another pool"), WarmState.READY) == []


def test_a_changed_state_label_moves_the_vm() -> None:
    found = a_cache(a_vm("a"))
    found.vms.put(("ns", "web-a"), replace(a_vm("a"), state=WarmState.UNHEALTHY))
    assert found.in_state(POOL, WarmState.READY) == []
    assert [m.uid for m in found.in_state(POOL, WarmState.UNHEALTHY)] == ["a"]


def test_a_vm_is_joined_with_its_own_vmi_and_node() -> None:
    (vm,) = a_cache(a_vm("a")).in_state(POOL, WarmState.READY)
    assert (vm.vmi is not None, vm.node) == (True, Node("node-1"))
    (stranger,) = a_cache(a_vm("a", vmi=a_vmi(name="web-a", owner_uid="another"))).in_state(POOL, WarmState.READY)
    assert (stranger.vmi, stranger.node) == (None, None), "the VMI of an earlier VM of this name"


def test_a_changed_node_is_joined_again() -> None:
    found = a_cache(a_vm("a"))
    (before,) = found.in_state(POOL, WarmState.READY)
    assert found.in_state(POOL, WarmState.READY)[0] is before
    found.nodes.put(("", "node-1"), Node("node-1", leaving=True))
    assert found.in_state(POOL, WarmState.READY)[0].node == Node("node-1", leaving=True)


def test_a_deleted_node_is_not_ready() -> None:
    (m,) = a_cache(a_vm("a"), nodes=(Node("node-2"),)).in_state(POOL, WarmState.READY)
    assert not m.node.ready


def test_vms_are_found_by_claim_pool_name_and_node() -> None:
    found = a_cache(a_vm("a"), a_vm("b", WarmState.IN_USE))
    assert [m.uid for m in found.of_claim(a_claim(uid="claim-b"))] == ["b"]
    assert {m.uid for m in found.with_pool_name(("ns", "web"))} == {"a", "b"}
    assert {m.uid for m in found.on_node("node-1")} == {"a", "b"}
    assert found.get(("ns", "web-z")) is None


@pytest.mark.parametrize(("namespace", "counted"), [("ns", 1), ("elsewhere", 0)])
def test_a_vm_of_another_namespace_cannot_join_a_pool_or_claim_by_its_uid(namespace: str, counted: int) -> None:
    """Without the admission policies, a user of another namespace can write any UID into the labels of a VM. It would
    count towards `maxTotal`, and the claim would delete it or be handed over to it."""
    found = a_cache(a_vm("a", namespace=namespace), a_vm("b", WarmState.IN_USE, namespace=namespace))
    assert found.count(POOL) == len(found.of_pool(POOL)) == 2 * counted
    assert len(found.in_state(POOL, WarmState.READY)) == counted
    assert len(found.of_claim(a_claim(uid="claim-b"))) == counted


def test_subscribers_are_called_for_changes_only() -> None:
    demand, heard = Demand(), list[str]()
    demand.subscribe(heard.append)
    demand.set_queued("a", 0)
    demand.set_queued("a", 2)
    demand.set_queued("a", 2)
    demand.set_queued("b", 1)
    demand.set_queued("a", 0)
    assert heard == ["a", "b", "a"]
    assert [demand.queued(uid) for uid in ("a", "b", "c")] == [0, 1, 0]


def test_a_vm_being_created_counts_once() -> None:
    demand = Demand()
    demand.expect_creation("a", "x")
    demand.expect_creation("a", "x")
    demand.expect_creation("a", "y")
    assert demand.creating("a") == 2
    demand.creation_over("a", "x")
    demand.creation_over("a", "x")
    demand.creation_over("a", "y")
    demand.creation_over("b", "z")
    assert demand.creating("a") == 0
