"""After any change the winners equal those of a fresh decision, and no more VMIs than necessary are decided."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.migrationpolicy.winners import Changes, LabelledVMIs, Winners
from poolhouse.api.migrationpolicies.precedence import RankedPolicy, Selectors, candidates, superseded


def ranked(name: str, vmi=None, namespace=None, created: str = "1") -> RankedPolicy:
    return RankedPolicy(name, Selectors.of(vmi, namespace), created)


WEB, DB, LAB = ("shop", "web"), ("shop", "db"), ("lab", "web")


@pytest.fixture
def winners() -> Winners:
    found = Winners()
    found.load(
        [ranked("gold", None, {"tier": "gold"}), ranked("web", {"app": "web"})],
        {"shop": {"tier": "gold"}, "lab": {}},
        [(WEB, {"app": "web"}), (DB, {"app": "db"}), (LAB, {"app": "web"})],
    )
    return found


def test_every_vmi_has_a_winner_and_every_policy_its_counts(winners: Winners) -> None:
    assert [winners.winner(key) for key in (WEB, DB, LAB)] == ["web", "gold", "web"]
    assert (winners.wins("web"), winners.losses("web")) == (2, 0)
    assert (winners.wins("gold"), winners.losses("gold")) == (1, 1)


def test_deleted_namespaces_leave_no_memory() -> None:
    winners, by_name = Winners(), "kubernetes.io/metadata.name"
    for number in range(3):
        winners.policy(f"p{number}", ranked(f"p{number}", None, {by_name: f"shop-{number}"}))
    for number in range(100):
        namespace, vmi = f"shop-{number}", (f"shop-{number}", "vm")
        winners.namespace(namespace, {by_name: namespace})
        winners.vmi(vmi, {"app": "web"})
        assert winners.winner(vmi) == (f"p{number}" if number < 3 else None)
        winners.vmi(vmi, None)
        winners.namespace(namespace, None)
    # One for each selected namespace, and one for all others.
    assert len(winners._index._by_namespace) == 4
    assert not winners._vmis


@pytest.mark.sentence("3.3")
def test_a_new_policy_changes_only_vmis_that_it_matches(winners: Winners) -> None:
    changes = winners.policy("both", ranked("both", {"app": "web"}, {"tier": "gold"}))
    assert changes.vmis == {WEB}
    assert changes.policies == {"both", "web"}
    assert winners.winner(WEB) == "both"
    assert winners.losses("web") == 1
    assert winners.losses("gold") == 1


def test_a_new_policy_with_two_labels_wins_all_vmis_that_have_both(winners: Winners) -> None:
    """Each of the labels is on VMIs without the other one."""
    both = {("shop", f"both-{number}") for number in range(20)}
    for key in both:
        winners.vmi(key, {"app": "web", "size": "small"})
        winners.vmi((key[0], f"{key[1]}-app"), {"app": "web"})
        winners.vmi((key[0], f"{key[1]}-size"), {"size": "small"})
    assert winners.policy("small-web", ranked("small-web", {"app": "web", "size": "small"})).vmis == both


@pytest.mark.sentence("3.3")
def test_vmis_of_a_deleted_policy_get_the_next_winner(winners: Winners) -> None:
    assert winners.policy("web", None).vmis == {WEB, LAB}
    assert [winners.winner(key) for key in (WEB, DB, LAB)] == ["gold", "gold", None]
    assert winners.wins("web") == winners.losses("web") == 0


def test_a_policy_may_select_by_another_label(winners: Winners) -> None:
    winners.vmi(DB, {"app": "db", "size": "small"})
    assert winners.policy("web", ranked("web", {"size": "small"})).vmis == {WEB, DB, LAB}
    assert [winners.winner(key) for key in (WEB, DB, LAB)] == ["gold", "web", None]


@pytest.mark.parametrize(
    ("selected", "names"),
    [
        pytest.param([{"app": "a"}], {"1", "2"}, id="one label"),
        pytest.param([{"app": "a", "size": "s"}], {"1"}, id="the rarest label"),
        pytest.param([{"size": ""}], {"1", "3"}, id="any value"),
        pytest.param([{"app": "b"}, {"size": "l"}], {"3"}, id="several policies"),
        pytest.param([{"app": "none"}], set(), id="no VMI"),
        pytest.param([{"app": "none"}, {}], {"1", "2", "3"}, id="a policy without VMI labels"),
    ],
)
def test_only_vmis_that_may_match_are_compared(selected: list[dict[str, str]], names: set[str]) -> None:
    vmis = LabelledVMIs(["app"])
    vmis.put("1", {"app": "b", "size": "s"})
    for name, labels in (("1", {"app": "a", "size": "s"}), ("2", {"app": "a"}), ("3", {"app": "b", "size": "l"})):
        vmis.put(name, labels)
    vmis.index(frozenset({"app", "size"}))
    vmis.put("4", {"size": "s"})
    vmis.drop("4")
    assert set(vmis.possible([ranked("p", labels) for labels in selected])) == names


def test_an_unchanged_policy_changes_nothing(winners: Winners) -> None:
    assert winners.policy("web", ranked("web", {"app": "web"})) == Changes()


def test_a_younger_duplicate_changes_no_vmi(winners: Winners) -> None:
    changes = winners.policy("late", ranked("late", {"app": "web"}, created="2"))
    assert changes.vmis == set()
    assert changes.policies == {"late"}
    assert winners.older_duplicate("late") == "web"


def test_an_older_duplicate_takes_over(winners: Winners) -> None:
    changes = winners.policy("early", ranked("early", {"app": "web"}, created="0"))
    assert changes.vmis == {WEB, LAB}
    assert changes.policies >= {"early", "web"}
    assert winners.older_duplicate("web") == "early"
    assert winners.policy("early", None).vmis == {WEB, LAB}
    assert winners.older_duplicate("web") is None
    assert winners.winner(LAB) == "web"


@pytest.mark.sentence("3.4")
def test_a_label_of_a_vmi_changes_only_that_vmi(winners: Winners) -> None:
    assert winners.vmi(DB, {"app": "web"}).vmis == {DB}
    assert winners.vmi(DB, {"app": "web", "other": "label"}) == Changes()


def test_a_namespace_label_that_no_policy_selects_changes_nothing(winners: Winners) -> None:
    assert winners.namespace("shop", {"tier": "gold", "owner": "me"}) == Changes()


def test_a_label_of_a_namespace_without_vmis_changes_nothing(winners: Winners) -> None:
    assert winners.namespace("empty", {}) == Changes()
    assert winners.namespace("empty", {"tier": "gold"}) == Changes()


@pytest.mark.sentence("3.6")
def test_a_namespace_label_changes_only_vmis_of_that_namespace(winners: Winners) -> None:
    assert winners.namespace("shop", {"tier": "lead"}).vmis == {DB}
    assert winners.winner(DB) is None


def test_a_vmi_of_an_unknown_namespace_is_not_decided(winners: Winners) -> None:
    assert not winners.vmi(("new", "web"), {"app": "web"}).vmis
    assert not winners.decided(("new", "web"))
    assert winners.namespace("new", {}).vmis == {("new", "web")}
    assert winners.winner(("new", "web")) == "web"


def test_vmis_of_a_deleted_namespace_are_not_counted(winners: Winners) -> None:
    assert winners.namespace("shop", None) == Changes(policies={"web", "gold"})
    assert not winners.decided(WEB)
    assert (winners.wins("web"), winners.losses("web"), winners.wins("gold"), winners.losses("gold")) == (1, 0, 0, 0)


def test_a_deleted_vmi_is_not_counted(winners: Winners) -> None:
    assert winners.vmi(WEB, None).policies == {"web", "gold"}
    assert (winners.wins("web"), winners.losses("gold"), len(winners)) == (1, 0, 2)


keys, values = st.sampled_from("ab"), st.sampled_from(["", "x", "y"])
labels = st.dictionaries(keys, values)
names, spaces = st.sampled_from("pqrs"), st.sampled_from(["n", "m"])
changes = st.lists(
    st.one_of(
        st.tuples(st.just("policy"), names, st.none() | st.tuples(labels, labels, st.sampled_from("12"))),
        st.tuples(st.just("namespace"), spaces, st.none() | labels),
        st.tuples(st.just("vmi"), st.tuples(spaces, names), st.none() | labels),
    ),
    max_size=25,
)


@given(changes)
@pytest.mark.sentence("3.2")
def test_any_sequence_of_changes_gives_the_result_of_a_fresh_decision(changes) -> None:
    winners, policies, namespaces, vmis = Winners(), {}, {}, {}
    before: dict = {}
    counted = dict.fromkeys("pqrs", (0, 0))
    for what, who, value in changes:
        if what == "policy":
            policies[who] = value and ranked(who, *value)
            changes = winners.policy(who, policies[who])
        elif what == "namespace":
            namespaces[who] = value
            changes = winners.namespace(who, value)
        else:
            vmis[who] = value
            changes = winners.vmi(who, value)
        there = [each for each in policies.values() if each]
        lost = superseded(there)
        active = [each for each in there if each.name not in lost]
        wins, losses, now = dict.fromkeys("pqrs", 0), dict.fromkeys("pqrs", 0), {}
        for key, own in vmis.items():
            if own is None or namespaces.get(key[0]) is None:
                continue
            found = candidates(active, own, namespaces[key[0]])
            now[key] = found[0].name if found else None
            for place, each in enumerate(found):
                (losses if place else wins)[each.name] += 1
        assert {key: winners.winner(key) for key in vmis if winners.decided(key)} == now
        assert all(winners.wins(n) == wins[n] and winners.losses(n) == losses[n] for n in "pqrs")
        assert changes.vmis == {key for key in now if key not in before or before[key] != now[key]}
        counts = {n: (wins[n], losses[n]) for n in "pqrs"}
        assert changes.policies >= {n for n in "pqrs" if counts[n] != counted[n]}
        before, counted = now, counts
