"""The order in which waiting claims are served."""

from __future__ import annotations

from random import Random

import pytest

from controllers.claim.wait_queue import WaitQueue


def queue(*tickets: str) -> WaitQueue:
    """`a1` is the claim that requester a made in second 1."""
    found = WaitQueue()
    for each in tickets:
        found.join(each[0], each[1:], each)
    return found


@pytest.mark.parametrize(
    ("tickets", "order"),
    [
        pytest.param(("a1", "a2", "a3"), "a1 a2 a3", id="claims of one requester: oldest first"),
        pytest.param(("a3", "a1", "a2"), "a1 a2 a3", id="the order of events does not matter"),
        pytest.param(
            ("a1", "a2", "a3", "b4", "b5"), "a1 b4 a2 b5 a3", id="requesters alternate, the oldest claim first"
        ),
        pytest.param(("b4", "a1", "c2", "a2"), "a1 c2 b4 a2", id="one claim of each requester in a round"),
    ],
)
def test_order(tickets: tuple[str, ...], order: str) -> None:
    found = queue(*tickets)
    assert " ".join(found.first(99)) == order
    assert [found.position(uid) for uid in order.split()] == list(range(1, len(tickets) + 1))


def test_served_requester_goes_to_the_end_of_the_turns() -> None:
    found = queue("a1", "a2", "a3", "b4", "b5")
    served = []
    while len(found):
        served += found.first(1)
        found.leave(served[-1], served=True)
    assert served == ["a1", "b4", "a2", "b5", "a3"]


def test_leaving_unserved_keeps_the_turn() -> None:
    found = queue("a1", "a2", "b4")
    found.leave("a1")
    assert found.first(2) == ["a2", "b4"]


def test_rejoining_gains_nothing_and_joining_twice_counts_once() -> None:
    found = queue("a1", "b2")
    found.leave("a1", served=True)
    found.join("a", "1", "a1")
    found.join("a", "1", "a1")
    assert (len(found), found.first(2)) == (2, ["b2", "a1"])


def test_claims_of_the_same_second_are_served_in_the_order_of_observation() -> None:
    found = WaitQueue()
    for uid, observed_at in (("z", "1"), ("a", "3"), ("m", "2")):
        found.join("who", "12:00:00", uid, observed_at=observed_at)
    assert found.first(3) == ["z", "m", "a"]


def test_claim_outside_the_queue_would_be_last() -> None:
    assert (queue().position("x"), queue("a1", "a2").position("x")) == (1, 3)


@pytest.mark.parametrize("seed", range(20))
def test_positions_match_a_queue_that_is_built_anew(seed: int) -> None:
    chance, found = Random(seed), WaitQueue()
    own: dict[str, list[str]] = {}
    served: dict[str, int] = {}
    for number in range(80):
        match chance.choice(["join", "join", "serve", "leave"]):
            case "join":
                who, uid = chance.choice("abcdef"), f"{number:03}"
                found.join(who, uid, uid)
                own.setdefault(who, []).append(uid)
            case "serve" | "leave" as why if len(found):
                uid = found.first(1)[0] if why == "serve" else chance.choice(found.first(99))
                found.leave(uid, served=why == "serve")
                who = next(each for each, uids in own.items() if uid in uids)
                own[who].remove(uid)
                served |= {who: number} if why == "serve" else {}
        waiting = {who: uids for who, uids in own.items() if uids}
        served = served if waiting else {}
        turns = sorted(waiting, key=lambda who: (served.get(who, -1), waiting[who]))
        order = [waiting[who][depth] for depth in range(80) for who in turns if depth < len(waiting[who])]
        assert found.first(99) == order
        assert [found.position(uid) for uid in order] == list(range(1, len(found) + 1))


def test_requester_with_one_claim_is_served_within_one_round() -> None:
    found = queue(*(f"{who}{number:03}" for who in "abc" for number in range(100)), "z999")
    for _ in range(10):
        found.leave(found.first(1)[0], served=True)
    assert found.position("z999") <= 4 or "z999" not in found
