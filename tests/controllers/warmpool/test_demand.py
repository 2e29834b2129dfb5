"""What claims want of pools."""

from __future__ import annotations

from controllers.warmpool.demand import Demand


def test_a_pool_hears_of_a_change_and_of_nothing_else() -> None:
    demand, heard = Demand(), list[str]()
    demand.subscribe(heard.append)
    demand.set_queued("a", 0)
    demand.set_queued("a", 2)
    demand.set_queued("a", 2)
    demand.set_queued("b", 1)
    demand.set_queued("a", 0)
    assert heard == ["a", "b", "a"]
    assert [demand.queued(uid) for uid in ("a", "b", "c")] == [0, 1, 0]


def test_a_machine_on_its_way_is_counted_once_until_it_is_seen() -> None:
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
