"""What claims want of pools."""

from __future__ import annotations

from controllers.warmpool.demand import Demand


def test_a_pool_hears_of_a_change_and_of_nothing_else() -> None:
    demand, heard = Demand(), list[str]()
    demand.subscribe(heard.append)
    demand.wait("a", 0)
    demand.wait("a", 2)
    demand.wait("a", 2)
    demand.wait("b", 1)
    demand.wait("a", 0)
    assert heard == ["a", "b", "a"]
    assert [demand.queued(uid) for uid in ("a", "b", "c")] == [0, 1, 0]


def test_a_machine_on_its_way_is_counted_once_until_it_is_seen() -> None:
    demand = Demand()
    demand.make("a", "x")
    demand.make("a", "x")
    demand.make("a", "y")
    assert demand.making("a") == 2
    demand.made("a", "x")
    demand.made("a", "x")
    demand.made("a", "y")
    demand.made("b", "z")
    assert demand.making("a") == 0
