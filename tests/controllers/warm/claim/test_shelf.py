"""Which machine is given away."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

from controllers.warm.claim.shelf import Kin, Shelves
from controllers.warm.machine import Machine
from kinds.warm import Warm


def machine(name: str, **facts: Any) -> Machine:
    return Machine("ns", name, f"uid-{name}", **{"state": Warm.READY, "pool_uid": "p", "template_hash": "new", **facts})


def stocked(*machines: Machine) -> Shelves:
    shelves = Shelves()
    for m in machines:
        shelves.changed(None, m)
    return shelves


def offered(shelves: Shelves, placement: str = "") -> list[str]:
    return [name for _, name in shelves.of("p").candidates(lambda kin: kin.template_hash == "new", placement)]


def test_the_soonest_first_then_todays_template() -> None:
    shelves = stocked(
        machine("stopped", standby="Stopped"),
        machine("paused", standby="Paused"),
        machine("old", template_hash="old"),
        machine("running"),
        machine("paused-old", standby="Paused", template_hash="old"),
    )
    assert offered(shelves) == ["running", "old", "paused", "paused-old", "stopped"]


def test_among_equals_by_chance_and_the_same_again() -> None:
    names = [f"m{number}" for number in range(50)]
    shelves = stocked(*(machine(name, placement="ab"[int(name[1:]) % 2]) for name in names))
    first = offered(shelves)
    assert first == offered(shelves), "to look changes nothing"
    assert sorted(first) == sorted(names)
    assert first != names
    halves = {machine_name: int(machine_name[1:]) % 2 for machine_name in first[:20]}
    assert set(halves.values()) == {0, 1}, "placements are mixed"
    assert offered(shelves, "a") == [name for name in first if int(name[1:]) % 2 == 0]
    assert offered(shelves, "c") == []


def test_what_is_taken_is_offered_to_nobody_until_its_event() -> None:
    one, two = machine("one"), machine("two")
    shelves = stocked(one, two)
    shelves.take(one)
    assert offered(shelves) == ["two"]
    shelves.changed(one, replace(one, resource_version="9"))
    assert (offered(shelves), len(shelves.of("p"))) == (["two"], 1), "a status write does not bring it back"
    given = replace(one, state=Warm.ALLOCATING, claim_uid="c")
    shelves.changed(one, given)
    shelves.changed(given, None)
    assert offered(shelves) == ["two"]


def test_what_was_not_given_away_is_offered_again() -> None:
    one = machine("one")
    shelves = stocked(one)
    shelves.take(one)
    shelves.put_back(one.uid, one)
    assert offered(shelves) == ["one"]
    shelves.take(one)
    shelves.put_back(one.uid, None)
    assert offered(shelves) == [], "as the store shows it"
    assert shelves.changed(one, one), "and its event brings it back"


def test_it_says_when_there_is_one_more() -> None:
    one = machine("one")
    shelves = Shelves()
    unready = replace(one, state=Warm.PROVISIONING)
    assert not shelves.changed(None, unready)
    assert shelves.changed(unready, one)
    assert not shelves.changed(one, replace(one, resource_version="2"))
    assert not shelves.changed(one, replace(one, deleting=True))
    assert offered(shelves) == []


def test_another_of_the_same_name_is_another() -> None:
    one, two = machine("one"), replace(machine("one"), uid="other")
    shelves = stocked(one)
    shelves.changed(one, two)
    assert len(shelves.of("p")) == 1
    assert offered(shelves) == ["one"]
    shelves.changed(two, replace(two, pool_uid="q"))
    assert (len(shelves.of("p")), len(shelves.of("q"))) == (0, 1)


def test_a_machine_that_changes_its_tier_moves_there() -> None:
    one, two = machine("one", standby="Paused"), machine("two")
    shelves = stocked(one, two)
    shelves.changed(one, replace(one, standby="Running"))
    assert sorted(offered(shelves)) == ["one", "two"]
    assert len(list(islice(shelves.of("p").candidates(lambda kin: isinstance(kin, Kin)), 5))) == 2
