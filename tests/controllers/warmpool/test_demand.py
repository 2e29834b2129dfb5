"""What claims need from pools."""

from __future__ import annotations

from controllers.warmpool.demand import Demand


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
