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


def test_bursts_that_were_seen_outweigh_the_distribution() -> None:
    table = DemandTable()
    for before in [*range(20)] * 50:
        table.add(context(0.1), before)
    assert table.replicas(0.1, 0.01) == 20
    assert table.replicas(3.0, 0.01) < 12, "another context learns nothing from it"


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
