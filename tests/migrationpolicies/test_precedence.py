"""Precedence of migration policies: the example of the design document, and properties of any set."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse.api.migrationpolicies.precedence import (
    RankedPolicy,
    Selectors,
    WinnerIndex,
    candidates,
    is_active,
    missing,
    ranked_policy,
    reason,
    superseded,
)

VMI = {"size": "small", "os": "fedora", "gpu": "nvidia"}
NAMESPACE = {"priority": "high", "bandwidth": "medium", "hpc-workload": "true"}


def policy(
    name: str, instance: dict[str, str] | None = None, namespace: dict[str, str] | None = None, created: str = ""
):
    return RankedPolicy(name, Selectors.of(instance, namespace), created)


# By the document's numbers. The names are in the wrong order, so that none of them decides anything.
DOCUMENT = (
    policy("z1", {"size": "small", "gpu": "nvidia"}, {"priority": "high", "bandwidth": "medium"}),
    policy("y2", {"size": "small", "gpu": "nvidia"}, {"priority": "high", "hpc-workload": "true"}),
    policy("x3", {"size": "small", "gpu": "nvidia"}, {"priority": "high"}),
    policy("w4", {"size": "small"}, {"priority": "high", "hpc-workload": "true"}),
    policy("v5", {"gpu": "nvidia"}, {"priority": "high"}),
    policy("u6", {"gpu": "nvidia"}),
    policy("t7", {"gpu": "intel"}, {"priority": "high"}),
)


def names(found) -> list[str]:
    return [each.name for each in found]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(
            {
                "metadata": {"name": "p", "creationTimestamp": "2026-03-01T12:00:00Z"},
                "spec": {
                    "selectors": {
                        "virtualMachineInstanceSelector": {"matchLabels": {"app": "web"}},
                        "namespaceSelector": {"matchLabels": {"tier": "gold"}},
                    }
                },
            },
            policy("p", {"app": "web"}, {"tier": "gold"}, "2026-03-01T12:00:00Z"),
            id="a policy",
        ),
        pytest.param({"metadata": {"name": 7, "creationTimestamp": 8}}, policy(""), id="metadata of other types"),
        pytest.param({}, policy(""), id="an empty document"),
        pytest.param("p", policy(""), id="a text"),
    ],
)
def test_a_document_of_any_shape_has_a_policy(document: Any, expected: RankedPolicy) -> None:
    assert ranked_policy(document) == expected


@pytest.mark.sentence("3.13")
def test_the_example_has_the_order_of_the_design_document() -> None:
    assert names(candidates(DOCUMENT, VMI, NAMESPACE)) == ["z1", "y2", "x3", "w4", "v5", "u6"]
    assert names(WinnerIndex(DOCUMENT).candidates(VMI, NAMESPACE)) == ["z1", "y2", "x3", "w4", "v5", "u6"]


@pytest.mark.sentence("3.13")
def test_each_policy_of_the_example_wins_without_the_earlier_ones() -> None:
    for place, each in enumerate(DOCUMENT[:6]):
        assert candidates(DOCUMENT[place:], VMI, NAMESPACE)[0] is each


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        pytest.param(
            policy("z", {"a": "1", "b": "2"}),
            policy("a", {"a": "1"}),
            "it matches more labels, 2 to 1",
            id="more labels win",
            marks=pytest.mark.sentence("3.9"),
        ),
        pytest.param(
            DOCUMENT[0],
            DOCUMENT[1],
            "both match 4, and its key 'bandwidth' comes before 'gpu'",
            id="the first key in lexicographic order",
            marks=pytest.mark.sentence("3.11"),
        ),
        pytest.param(
            policy("z", {"a": "", "c": ""}),
            policy("a", {"a": "", "d": ""}),
            "both match 2, and its key 'c' comes before 'd'",
            id="the first key that differs, where the first ones are the same",
        ),
        pytest.param(
            policy("z", None, {"a": "1"}),
            policy("a", {"z": "1"}),
            "both match 1, and its key 'a' comes before 'z'",
            id="keys come before the VMI: here KubeVirt's own code differs",
        ),
        pytest.param(
            policy("z", {"B": ""}),
            policy("a", {"a": ""}),
            "both match 1, and its key 'B' comes before 'a'",
            id="capitals come first",
        ),
        pytest.param(
            policy("z", {"a": "", "b": ""}),
            policy("a", {"a": ""}, {"b": ""}),
            "the keys are the same, and more of its labels are the VMI's, 2 to 1",
            id="equal keys: more VMI labels",
            marks=pytest.mark.sentence("3.12"),
        ),
        pytest.param(
            policy("a", {"k": "v"}),
            policy("b", {"k": "w"}),
            "the keys are the same, and its name 'a' comes before 'b'",
            id="equal keys: the name",
        ),
        pytest.param(
            policy("z", {"k": "v"}),
            policy("a", {"k": ""}),
            "the keys are the same, and it requires more values, 1 to 0",
            id="equal keys: a value is more detailed than any value",
            marks=pytest.mark.sentence("3.10"),
        ),
        pytest.param(
            policy("z", {"a": "", "b": ""}),
            policy("a", {"b": "v", "c": "v"}),
            "both match 2, and its key 'a' comes before 'b'",
            id="the order of the keys comes before values",
            marks=pytest.mark.sentence("3.11"),
        ),
        pytest.param(
            policy("z", {"a": ""}, {"b": "v", "c": "v"}),
            policy("a", {"a": "", "b": "", "c": "v"}),
            "the keys are the same, and it requires more values, 2 to 1",
            id="equal keys: values come before more VMI labels",
            marks=pytest.mark.sentence("3.10"),
        ),
        pytest.param(
            policy("z", {"a": "", "b": "", "c": ""}),
            policy("a", {"a": "1", "b": "2"}),
            "it matches more labels, 3 to 2",
            id="more labels come before values",
        ),
    ],
)
def test_tie_breaks(first: RankedPolicy, second: RankedPolicy, why: str) -> None:
    assert first.rank < second.rank
    assert reason(first, second) == why


@pytest.mark.parametrize(
    ("asked", "instance", "namespace", "matches"),
    [
        pytest.param(policy("p"), {}, {}, False, id="no selectors match nothing"),
        pytest.param(policy("p"), VMI, NAMESPACE, False, id="no selectors match nothing, whatever labels there are"),
        pytest.param(
            policy("p", {"size": "small"}), VMI, {}, True, id="an absent namespace selector constrains nothing"
        ),
        pytest.param(policy("p", None, {"priority": "high"}), {}, NAMESPACE, True, id="a VMI without labels"),
        pytest.param(
            policy("p", {"size": "small"}), {}, NAMESPACE, False, id="a VMI without labels does not match labels"
        ),
        pytest.param(
            policy("p", {"size": ""}),
            VMI,
            {},
            True,
            id="an empty value is any value",
            marks=pytest.mark.sentence("3.18"),
        ),
        pytest.param(policy("p", {"size": ""}), {"size": ""}, {}, True, id="an empty value is the empty value too"),
        pytest.param(
            policy("p", {"size": ""}),
            {"os": "x"},
            {},
            False,
            id="any value, but not none",
            marks=pytest.mark.sentence("3.18"),
        ),
        pytest.param(
            policy("p", {"size": "small"}),
            {"size": ""},
            {},
            False,
            id="a value is not the empty one",
            marks=pytest.mark.sentence("3.17"),
        ),
        pytest.param(
            policy("p", {"priority": "high"}),
            VMI,
            NAMESPACE,
            False,
            id="a namespace's label is not the VMI's",
            marks=pytest.mark.sentence("3.5"),
        ),
    ],
)
@pytest.mark.sentence("3.5", "3.7")
def test_a_policy_matches_a_vmi_with_all_labels_of_its_selectors(
    asked: RankedPolicy, instance: dict[str, str], namespace: dict[str, str], matches: bool
) -> None:
    assert bool(candidates([asked], instance, namespace)) is matches
    assert bool(WinnerIndex([asked]).candidates(instance, namespace)) is matches
    assert not asked.selectors or bool(missing(asked.selectors, instance, namespace)) is not matches


@pytest.mark.sentence("3.8")
def test_the_oldest_policy_supersedes_equal_ones() -> None:
    old = policy("z", {"a": "1"}, created="2026-01-01T00:00:00Z")
    young = policy("a", {"a": "1"}, created="2026-01-01T00:00:01Z")
    asked_for = policy("0", {"a": "1"})
    assert superseded([asked_for, young, old]) == {"a": "z", "0": "z"}


def test_the_first_name_supersedes_in_the_same_second() -> None:
    assert superseded([policy(n, {"a": "1"}, created="2026-01-01T00:00:00Z") for n in "cab"]) == {"b": "a", "c": "a"}


def test_policies_without_selectors_do_not_supersede() -> None:
    assert superseded([policy("a"), policy("b")]) == {}


def test_a_superseded_policy_is_never_a_candidate() -> None:
    both = [policy("a", {"k": "v"}, created="2"), policy("b", {"k": "v"}, created="1")]
    assert names(WinnerIndex(both).candidates({"k": "v"}, {})) == ["b"]


keys, values = st.sampled_from("abcd"), st.sampled_from(["", "x", "y"])
labels = st.dictionaries(keys, values)
some = st.lists(st.builds(Selectors.of, labels, labels), max_size=12).map(
    lambda found: [RankedPolicy(f"p{n}", each, str(n % 3)) for n, each in enumerate(found)]
)


@given(some, labels, labels, st.randoms(use_true_random=False))
@pytest.mark.sentence("3.2")
def test_the_order_of_the_policies_does_not_matter(policies, instance, namespace, chance) -> None:
    shuffled = list(policies)
    chance.shuffle(shuffled)
    assert candidates(policies, instance, namespace) == candidates(shuffled, instance, namespace)
    assert superseded(policies) == superseded(shuffled)
    assert WinnerIndex(policies).candidates(instance, namespace) == WinnerIndex(shuffled).candidates(
        instance, namespace
    )


@given(some, labels, st.lists(labels))
def test_the_index_finds_the_same_policies(policies, instance, namespaces) -> None:
    """Whatever it has kept of the namespaces before."""
    lost, index = superseded(policies), WinnerIndex(policies)
    left = [each for each in policies if each.name not in lost]
    for namespace in namespaces:
        assert index.candidates(instance, namespace) == candidates(left, instance, namespace)


@given(some, labels, labels, st.builds(Selectors.of, labels, labels))
def test_a_policy_without_a_match_changes_no_winner(policies, instance, namespace, other) -> None:
    if not other.matches(instance, namespace):
        more = [*policies, RankedPolicy("other", other)]
        assert candidates(more, instance, namespace) == candidates(policies, instance, namespace)


@given(some, labels, labels)
def test_removing_a_loser_leaves_the_winner(policies, instance, namespace) -> None:
    found = candidates(policies, instance, namespace)
    for loser in found[1:]:
        assert candidates([p for p in policies if p is not loser], instance, namespace)[0] == found[0]


@given(some, labels, labels, keys, values)
def test_another_label_never_loses_a_candidate(policies, instance, namespace, key, value) -> None:
    more = {key: value, **instance}
    before = candidates(policies, instance, namespace)
    assert set(before) <= set(candidates(policies, more, namespace))


@given(some, labels, labels)
def test_every_precedence_has_a_reason(policies, instance, namespace) -> None:
    found = candidates(policies, instance, namespace)
    for loser in found[1:]:
        assert reason(found[0], loser)
        assert len(found[0].selectors) >= len(loser.selectors)


@given(st.builds(Selectors.of, labels, labels), st.builds(Selectors.of, labels, labels), labels, labels)
def test_policies_that_match_the_same_vmi_overlap(one, other, instance, namespace) -> None:
    if one.matches(instance, namespace) and other.matches(instance, namespace):
        assert one.overlaps(other)
    assert one.overlaps(other) == other.overlaps(one)
    if one.overlaps(other):
        together = [
            {k: v or "x" for k, v in [*mine, *(i for i in theirs if i[1]), *(i for i in mine if i[1])]}
            | {k: v or dict(mine).get(k) or "x" for k, v in theirs}
            for mine, theirs in ((one.instance, other.instance), (one.namespace, other.namespace))
        ]
        assert one.matches(*together)
        assert other.matches(*together)


@given(st.builds(Selectors.of, labels, labels), labels, labels)
@pytest.mark.sentence("3.7")
def test_a_policy_matches_if_no_label_is_missing(selectors, instance, namespace) -> None:
    if selectors:
        assert selectors.matches(instance, namespace) is not bool(missing(selectors, instance, namespace))


@pytest.mark.parametrize(
    ("vmi", "obeys"),
    [
        pytest.param({"metadata": {}}, True, id="a new one"),
        pytest.param({"metadata": {}, "status": {"phase": "Running"}}, True, id="one that runs"),
        pytest.param({"metadata": {}, "status": {"phase": "Succeeded"}}, False, id="one that has ended"),
        pytest.param({"metadata": {}, "status": {"phase": "Failed"}}, False, id="one that has failed"),
        pytest.param({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, False, id="one that goes"),
    ],
)
def test_only_active_vmis_get_a_policy(vmi: dict[str, Any], obeys: bool) -> None:
    assert is_active(vmi) is obeys
