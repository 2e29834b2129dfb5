"""What the reference pages say about conditions."""

import pytest

from poolhouse.api.kinds.conditions import CONDITIONS, presence
from poolhouse.api.kinds.resource_types import CLAIMS, POOLS, REPLICA_SETS, ResourceType


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        pytest.param("Ready", POOLS, "always", id="a condition of all objects"),
        pytest.param("Ready", REPLICA_SETS, "always", id="a condition of replica sets"),
        pytest.param("Reconciling", POOLS, "only while it is `True`", id="a condition that ends"),
        pytest.param("Paused", POOLS, "since it was first `True`", id="a condition that stays"),
        pytest.param("ReplicaFailure", REPLICA_SETS, "only while it is `True`", id="others of replica sets"),
        pytest.param("ApplicationHealthy", CLAIMS, "with `spec.application`", id="a condition of some claims"),
    ],
)
def test_a_page_says_when_an_object_has_a_condition(name: str, kind: ResourceType, said: str) -> None:
    assert presence(CONDITIONS[name], kind) == said
