"""Which VM comes first."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from controllers.pool.selection import ORDERS, sort_victims
from controllers.shared.vm import VM
from poolhouse.api.kinds.pool_strategies import BasePolicy, SelectionPolicy
from tests.controllers.pool.builders import halted, vm


def names(machines: list[VM], **policy: Any) -> list[str]:
    return [vm.name for vm in sort_victims(machines, SelectionPolicy.model_validate(policy))]


@pytest.mark.sentence("1.14")
def test_every_base_policy_has_an_order() -> None:
    assert set(ORDERS) == set(get_args(BasePolicy))


BORN = [vm(1, created_at="2026-02"), vm(2, created_at="2026-01"), vm(3, created_at="2026-03")]
LABELLED = [vm(1), vm(2, labels={"tier": "b"}), vm(3, labels={"tier": "a", "x": ""}), vm(4)]


def by(key: str, value: str) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {key: value}}}


@pytest.mark.parametrize(
    ("machines", "policy", "expected"),
    [
        pytest.param(BORN, {"basePolicy": "Oldest"}, ["web-2", "web-1", "web-3"], id="the oldest"),
        pytest.param(BORN, {"basePolicy": "Newest"}, ["web-3", "web-1", "web-2"], id="the newest"),
        pytest.param(
            [vm(10), vm(2), vm(1)],
            {"basePolicy": "Oldest"},
            ["web-1", "web-2", "web-10"],
            id="of one age, by ordinal",
        ),
        pytest.param(
            [vm(10), vm(2), vm(1)],
            {"basePolicy": "Newest"},
            ["web-10", "web-2", "web-1"],
            id="of one age, by ordinal from the highest",
        ),
        pytest.param(
            [vm(1, printable_status="Migrating"), vm(2), vm(3, ready=False), halted(4)],
            {},
            ["web-4", "web-3", "web-2", "web-1"],
            id="Random takes first what is missed least",
            marks=pytest.mark.sentence("1.48"),
        ),
        pytest.param(
            LABELLED,
            {
                "basePolicy": "Oldest",
                "orderedPolicies": [
                    {"labelSelector": {"matchLabels": {"tier": "a"}}},
                    {"labelSelector": {"matchLabels": {"tier": "b"}}},
                ],
            },
            ["web-3", "web-2", "web-1", "web-4"],
            id="ordered policies in their order, then all the rest",
            marks=pytest.mark.sentence("1.47", "1.49"),
        ),
        pytest.param(
            LABELLED,
            {
                "basePolicy": "Oldest",
                "orderedPolicies": [{"labelSelector": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}],
            },
            ["web-3", "web-1", "web-2", "web-4"],
            id="expressions select too",
        ),
        pytest.param(
            LABELLED,
            {"basePolicy": "Oldest", "orderedPolicies": [{"labelSelector": {"matchLabels": {"no": "vm"}}}]},
            ["web-1", "web-2", "web-3", "web-4"],
            id="a policy that selects nobody leaves nobody out",
            marks=pytest.mark.sentence("1.47"),
        ),
        pytest.param(
            LABELLED,
            {"basePolicy": "Oldest", "orderedPolicies": [{"labelSelector": {}}, by("tier", "a")]},
            ["web-1", "web-2", "web-3", "web-4"],
            id="an empty selector selects all, so that nothing is left for those behind it",
        ),
        pytest.param(
            LABELLED,
            {"basePolicy": "Oldest", "orderedPolicies": [by("tier", "b"), {"labelSelector": {}}, by("tier", "b")]},
            ["web-2", "web-1", "web-3", "web-4"],
            id="of two that select a VM the first counts",
            marks=pytest.mark.sentence("1.49"),
        ),
    ],
)
def test_sort_victims(machines: list[VM], policy: dict[str, Any], expected: list[str]) -> None:
    assert names(machines, **policy) == expected


def test_a_random_order_is_stable_and_not_the_order_of_names() -> None:
    machines = [vm(n) for n in range(1, 40)]
    assert names(machines) == names(machines[::-1])
    assert names(machines) != [m.name for m in machines]
