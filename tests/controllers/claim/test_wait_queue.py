"""Whose turn it is."""

from __future__ import annotations

from random import Random

import pytest

from controllers.claim.wait_queue import WaitQueue


def line(*tickets: str) -> WaitQueue:
    """`a1` is requester a's claim of second 1."""
    found = WaitQueue()
    for each in tickets:
        found.join(each[0], each[1:], each)
    return found


@pytest.mark.parametrize(
    ("tickets", "order"),
    [
        pytest.param(("a1", "a2", "a3"), "a1 a2 a3", id="one's own in the order in which they came"),
        pytest.param(("a3", "a1", "a2"), "a1 a2 a3", id="whatever order they are seen in"),
        pytest.param(("a1", "a2", "a3", "b4", "b5"), "a1 b4 a2 b5 a3", id="in turns, who came first begins"),
        pytest.param(("b4", "a1", "c2", "a2"), "a1 c2 b4 a2", id="a turn each"),
    ],
)
def test_order(tickets: tuple[str, ...], order: str) -> None:
    found = line(*tickets)
    assert " ".join(found.first(99)) == order
    assert [found.place(uid) for uid in order.split()] == list(range(1, len(tickets) + 1))


def test_who_was_served_goes_to_the_end_of_the_turns() -> None:
    found = line("a1", "a2", "a3", "b4", "b5")
    served = []
    while len(found):
        served += found.first(1)
        found.leave(served[-1], served=True)
    assert served == ["a1", "b4", "a2", "b5", "a3"]


def test_who_gives_up_loses_no_turn() -> None:
    found = line("a1", "a2", "b4")
    found.leave("a1")
    assert found.first(2) == ["a2", "b4"]


def test_coming_back_gains_nothing_and_joining_twice_is_once() -> None:
    found = line("a1", "b2")
    found.leave("a1", served=True)
    found.join("a", "1", "a1")
    found.join("a", "1", "a1")
    assert (len(found), found.first(2)) == (2, ["b2", "a1"])


def test_within_a_second_the_order_is_that_in_which_they_were_seen() -> None:
    found = WaitQueue()
    for uid, seen in (("z", "1"), ("a", "3"), ("m", "2")):
        found.join("who", "12:00:00", uid, seen=seen)
    assert found.first(3) == ["z", "m", "a"]


def test_one_who_is_not_in_line_would_be_last() -> None:
    assert (line().place("x"), line("a1", "a2").place("x")) == (1, 3)


@pytest.mark.parametrize("seed", range(20))
def test_places_are_the_order_whatever_happened(seed: int) -> None:
    """And the order is what it would be if it were made anew."""
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
        assert [found.place(uid) for uid in order] == list(range(1, len(found) + 1))


def test_nobody_waits_for_more_than_a_round() -> None:
    """However many others ask for: who is alone with one claim is served within one turn of each."""
    found = line(*(f"{who}{number:03}" for who in "abc" for number in range(100)), "z999")
    for _ in range(10):
        found.leave(found.first(1)[0], served=True)
    assert found.place("z999") <= 4 or "z999" not in found
