"""Which machine is given away."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from controllers.claim.ready_queue import ReadyQueues, Variant
from controllers.warmpool.vmi import PAUSED_BY_USER
from controllers.warmpool.warm_vm import NO_OWNER, POOL_KIND, Owner, WarmVM
from kinds.warm_states import WarmState
from tests.controllers.warmpool.builders import CORDONED, NOT_READY_NODE, a_vmi


def machine(name: str, pool: str = "p", **facts: Any) -> WarmVM:
    home = {"pool_uid": pool, "owner": Owner(POOL_KIND, "web", pool), "template_hash": "new"}
    standby = facts.get("standby", "Running")
    guest = None if standby == "Stopped" else a_vmi(paused=PAUSED_BY_USER if standby == "Paused" else "")
    return WarmVM("ns", name, f"uid-{name}", **{"state": WarmState.READY, "vmi": guest, **home, **facts})


def stocked(*machines: WarmVM) -> ReadyQueues:
    shelves = ReadyQueues()
    for m in machines:
        shelves.changed(None, m)
    return shelves


def offered(shelves: ReadyQueues, placement: str = "") -> list[str]:
    def does(kin: Variant) -> bool:
        return placement in ("", kin.placement)

    return [name for _, name in shelves.of("p").candidates(lambda kin: kin.template_hash == "new", does)]


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
    given = replace(one, state=WarmState.ALLOCATING, claim_uid="c")
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
    shelves = ReadyQueues()
    unready = replace(one, state=WarmState.PROVISIONING)
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
    shelves.changed(two, replace(machine("one", "q"), uid="other"))
    assert (len(shelves.of("p")), len(shelves.of("q"))) == (0, 1)


def test_a_machine_that_changes_its_tier_moves_there() -> None:
    one, two = machine("one", standby="Paused"), machine("two")
    shelves = stocked(one, two)
    shelves.changed(one, machine("one"))
    assert sorted(offered(shelves)) == ["one", "two"]
    assert len(list(islice(shelves.of("p").candidates(lambda kin: isinstance(kin, Variant)), 5))) == 2


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"orphaned": "Disowned"}, id="an orphan, though its state is Ready for ever"),
        pytest.param({"owner": NO_OWNER}, id="one from which somebody took its owner"),
        pytest.param({"claim_uid": "c"}, id="one that has a claim"),
        pytest.param({"deleting": True}, id="one that goes"),
        pytest.param({"node": CORDONED}, id="one that will have to go"),
        pytest.param({"node": NOT_READY_NODE}, id="a silent one"),
        pytest.param({"vmi": None}, id="one that does not run"),
    ],
)
def test_what_can_not_be_given_away_is_not_counted(facts: dict[str, Any]) -> None:
    fit = machine("one")
    shelves = stocked(replace(fit, **facts), machine("two"))
    assert (offered(shelves), len(shelves.of("p"))) == (["two"], 1)
    assert shelves.changed(fit, fit), "until it can"
    assert not shelves.changed(fit, replace(fit, **facts))
    assert (offered(shelves), len(shelves.of("p"))) == (["two"], 1)


def test_a_machine_that_comes_and_goes_is_there_once() -> None:
    one = machine("one")
    shelves = stocked(one, machine("two"))
    for _ in range(3):
        shelves.changed(one, replace(one, node=CORDONED))
        shelves.changed(one, one)
    assert sorted(offered(shelves)) == ["one", "two"]
    assert shelves.of("p").count(lambda kin: kin.template_hash == "new") == 2
    assert shelves.of("p").count(lambda kin: kin.template_hash == "old") == 0
