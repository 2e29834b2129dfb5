"""The number of VMs for the claims that a boot time brings."""

import math
from itertools import islice, pairwise

import pytest

from controllers.warmpool.autoscaling.quantiles import DemandTable, bucket, context, poisson_tails


@pytest.mark.parametrize(
    ("expected", "late_share", "replicas"),
    [
        pytest.param(0.0, 0.01, 1, id="one VM is enough for the first claim"),
        pytest.param(1.0, 0.01, 5, id="99 % of the Poisson distribution"),
        pytest.param(1.0, 0.5, 2, id="half of the claims"),
        pytest.param(100.0, 0.01, 125, id="a large demand"),
        pytest.param(10_000.0, 0.01, 10_234, id="a demand that is computed as a normal distribution"),
    ],
)
def test_without_claims_the_demand_is_a_poisson_distribution(expected: float, late_share: float, replicas: int) -> None:
    assert abs(DemandTable().replicas(expected, late_share) - replicas) <= 1


def a_table(counts: dict[float, list[int]]) -> DemandTable:
    """The table of claims by what was expected before them."""
    table = DemandTable()
    for expected, found in counts.items():
        for before in found:
            table.add(context(expected), before)
    return table


BURSTS = [*range(20)] * 50
RARE_BURSTS = [*range(10)] * 100 + [*range(40)]


@pytest.mark.parametrize(
    ("table", "expected", "replicas"),
    [
        pytest.param(a_table({0.1: BURSTS}), 0.1, 20, id="bursts that were seen outweigh the distribution"),
        pytest.param(a_table({0.1: BURSTS}), 3.0, 19, id="a context without claims expects the bursts of others"),
        pytest.param(a_table({0.1: BURSTS, 3.0: [0, 1] * 500}), 3.0, 6, id="a context that differs has its own size"),
        pytest.param(a_table({0.1: BURSTS, 3.0: [0, 1] * 500}), 0.1, 20, id="another context keeps its own size"),
        pytest.param(a_table({0.1: RARE_BURSTS * 5, 3.0: [*range(10)] * 40}), 3.0, 20, id="too few claims to differ"),
        pytest.param(a_table({0.1: [0] * 500}), 50.0, 68, id="a demand that was never seen"),
        pytest.param(a_table({0.1: [0] * 500, 1.0: [0] * 500}), 1.0, 3, id="claims that all came alone"),
    ],
)
def test_a_context_uses_the_claims_of_all_unless_it_differs(table: DemandTable, expected: float, replicas: int) -> None:
    assert table.replicas(expected, 0.01) == replicas


def test_the_sum_of_the_contexts_follows_old_claims() -> None:
    table = a_table({0.0: [30] * 4100, 1.0: [3] * 10})
    assert table.total == table.counts[0] + table.counts[context(1.0)]
    assert DemandTable(0.0, table.counts).total == table.total


def test_a_share_of_claims_may_be_late() -> None:
    table = DemandTable()
    for before in [0] * 900 + [9] * 100:
        table.add(context(0.0), before)
    assert table.replicas(0.0, 0.2) == 1
    assert table.replicas(0.0, 0.05) == 10


def test_old_claims_lose_weight_and_the_table_stays_bounded() -> None:
    table = DemandTable()
    for _ in range(4000):
        table.add(0, 30)
    for _ in range(40_000):
        table.add(0, 0)
    assert table.counts[0].total() <= 4000
    assert table.replicas(0.0, 0.01) < 30


def test_a_bucket_is_at_least_its_count_and_near_it() -> None:
    for count in range(5000):
        assert count <= bucket(count) <= count * 1.15
    assert len({bucket(count) for count in range(100_000)}) < 150


def test_the_tails_are_those_of_the_distribution() -> None:
    assert next(poisson_tails(2.0)) == pytest.approx(1 - math.exp(-2))
    for mean in (0.0, 0.3, 50.0, 499.0, 501.0):
        tails = list(islice(poisson_tails(mean), int(mean) + 200))
        assert all(before >= after for before, after in pairwise(tails))
        assert tails[-1] < 0.001
