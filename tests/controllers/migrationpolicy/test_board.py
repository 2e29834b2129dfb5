"""The board: it always says what a fresh look at everything would say, and decides no more than it must."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.migrationpolicy.board import Board
from migrationpolicies.precedence import RankedPolicy, Selectors, candidates, superseded


def contender(name: str, instance=None, namespace=None, created: str = "1") -> RankedPolicy:
    return RankedPolicy(name, Selectors.of(instance, namespace), created)


WEB, DB, LAB = ("shop", "web"), ("shop", "db"), ("lab", "web")


@pytest.fixture
def board() -> Board:
    found = Board()
    found.load(
        [contender("gold", None, {"tier": "gold"}), contender("web", {"app": "web"})],
        {"shop": {"tier": "gold"}, "lab": {}},
        [(WEB, {"app": "web"}), (DB, {"app": "db"}), (LAB, {"app": "web"})],
    )
    return found


def test_each_instance_has_its_winner_and_each_policy_its_counts(board: Board) -> None:
    assert [board.winner(key) for key in (WEB, DB, LAB)] == ["web", "gold", "web"]
    assert (board.wins("web"), board.losses("web")) == (2, 0)
    assert (board.wins("gold"), board.losses("gold")) == (1, 1)


def test_nothing_is_kept_of_namespaces_that_were() -> None:
    board, by_name = Board(), "kubernetes.io/metadata.name"
    for number in range(3):
        board.policy(f"p{number}", contender(f"p{number}", None, {by_name: f"shop-{number}"}))
    for number in range(100):
        namespace, vmi = f"shop-{number}", (f"shop-{number}", "vm")
        board.namespace(namespace, {by_name: namespace})
        board.instance(vmi, {"app": "web"})
        assert board.winner(vmi) == (f"p{number}" if number < 3 else None)
        board.instance(vmi, None)
        board.namespace(namespace, None)
    # Each that is asked for by name, and all others together.
    assert len(board._index._near) == 4
    assert not board._instances


def test_a_new_policy_touches_only_whom_it_matches(board: Board) -> None:
    touched = board.policy("both", contender("both", {"app": "web"}, {"tier": "gold"}))
    assert touched.instances == {WEB}
    assert touched.policies == {"both", "web"}
    assert board.winner(WEB) == "both"
    assert board.losses("web") == 1
    assert board.losses("gold") == 1


def test_a_policy_that_goes_gives_back_its_instances(board: Board) -> None:
    assert board.policy("web", None).instances == {WEB, LAB}
    assert [board.winner(key) for key in (WEB, DB, LAB)] == ["gold", "gold", None]
    assert board.wins("web") == board.losses("web") == 0


def test_the_same_selectors_again_touch_nothing(board: Board) -> None:
    assert not board.policy("web", contender("web", {"app": "web"}))


def test_a_duplicate_touches_no_instance_and_names_its_elder(board: Board) -> None:
    touched = board.policy("late", contender("late", {"app": "web"}, created="2"))
    assert touched.instances == set()
    assert touched.policies == {"late"}
    assert board.elder("late") == "web"


def test_an_elder_duplicate_takes_over(board: Board) -> None:
    touched = board.policy("early", contender("early", {"app": "web"}, created="0"))
    assert touched.instances == {WEB, LAB}
    assert touched.policies >= {"early", "web"}
    assert board.elder("web") == "early"
    assert board.policy("early", None).instances == {WEB, LAB}
    assert board.elder("web") is None
    assert board.winner(LAB) == "web"


def test_a_label_of_an_instance_touches_that_instance(board: Board) -> None:
    assert board.instance(DB, {"app": "web"}).instances == {DB}
    assert board.instance(DB, {"app": "web", "other": "label"}).instances == set()


def test_a_label_that_no_policy_asks_of_a_namespace_touches_nothing(board: Board) -> None:
    assert not board.namespace("shop", {"tier": "gold", "owner": "me"})


def test_a_label_of_a_namespace_touches_its_instances_and_no_others(board: Board) -> None:
    assert board.namespace("shop", {"tier": "lead"}).instances == {DB}
    assert board.winner(DB) is None


def test_an_instance_of_an_unknown_namespace_is_not_decided(board: Board) -> None:
    assert not board.instance(("new", "web"), {"app": "web"}).instances
    assert not board.decided(("new", "web"))
    assert board.namespace("new", {}).instances == {("new", "web")}
    assert board.winner(("new", "web")) == "web"


def test_an_instance_that_goes_is_counted_no_more(board: Board) -> None:
    assert board.instance(WEB, None).policies == {"web", "gold"}
    assert (board.wins("web"), board.losses("gold"), len(board)) == (1, 0, 2)


keys, values = st.sampled_from("ab"), st.sampled_from(["", "x", "y"])
labels = st.dictionaries(keys, values)
names, spaces = st.sampled_from("pqrs"), st.sampled_from(["n", "m"])
changes = st.lists(
    st.one_of(
        st.tuples(st.just("policy"), names, st.none() | st.tuples(labels, labels, st.sampled_from("12"))),
        st.tuples(st.just("namespace"), spaces, labels),
        st.tuples(st.just("instance"), st.tuples(spaces, names), st.none() | labels),
    ),
    max_size=25,
)


@given(changes)
def test_whatever_happens_it_says_what_a_fresh_look_says(changes) -> None:
    board, policies, namespaces, instances = Board(), {}, {}, {}
    before: dict = {}
    counted = dict.fromkeys("pqrs", (0, 0))
    for what, who, value in changes:
        if what == "policy":
            policies[who] = value and contender(who, *value)
            touched = board.policy(who, policies[who])
        elif what == "namespace":
            namespaces[who] = value
            touched = board.namespace(who, value)
        else:
            instances[who] = value
            touched = board.instance(who, value)
        there = [each for each in policies.values() if each]
        lost = superseded(there)
        active = [each for each in there if each.name not in lost]
        wins, losses, now = dict.fromkeys("pqrs", 0), dict.fromkeys("pqrs", 0), {}
        for key, own in instances.items():
            if own is None or key[0] not in namespaces:
                continue
            found = candidates(active, own, namespaces[key[0]])
            now[key] = found[0].name if found else None
            for place, each in enumerate(found):
                (losses if place else wins)[each.name] += 1
        assert {key: board.winner(key) for key in instances if board.decided(key)} == now
        assert all(board.wins(n) == wins[n] and board.losses(n) == losses[n] for n in "pqrs")
        assert touched.instances == {key for key in now if key not in before or before[key] != now[key]}
        counts = {n: (wins[n], losses[n]) for n in "pqrs"}
        assert touched.policies >= {n for n in "pqrs" if counts[n] != counted[n]}
        before, counted = now, counts
