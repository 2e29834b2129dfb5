"""An object that asks for more replicas than the limit of its namespace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from controllers.pool import plan as pool_plan
from controllers.pool.actions import Create as CreateVM
from controllers.pool.cluster import Cluster
from controllers.pool.observe import observe
from controllers.pool.pools import parse_pool
from controllers.pool.status import pool_status
from controllers.pool.stores import Stores
from controllers.replicaset import observe as sets
from controllers.replicaset.actions import Create as CreateVMI
from controllers.replicaset.plan import plan as set_plan
from controllers.replicaset.plan import replica_set_status
from controllers.shared.replica_limits import excess, parse_namespace_limit
from controllers.warmpool.status import status as warm_status
from poolhouse.api.kinds.meta import MAX_REPLICAS
from poolhouse.api.kinds.metav1 import Condition
from poolhouse.api.kinds.pool import PoolStatus
from tests.controllers.pool import builders as a_pool
from tests.controllers.replicaset import builders as a_set
from tests.controllers.warmpool import builders as warm

Json = dict[str, Any]
LIMITED: Json = {"conditions": [{"type": "ScalingLimited", "status": "True"}]}


@pytest.mark.parametrize(
    ("wanted", "limit", "status", "replicas"),
    [
        pytest.param(5, 10, {}, None, id="below the limit"),
        pytest.param(10, 10, {}, None, id="the limit"),
        pytest.param(10**9, 10, {}, 10, id="above the limit"),
        pytest.param(12, 10, {"replicas": 12}, None, id="VMs that existed before the limit stay"),
        pytest.param(12, 10, {"replicas": 11}, 11, id="an older object that was still growing stops"),
        pytest.param(12, 10, {"replicas": 9, "desiredReplicas": 12}, None, id="lost VMs are created again"),
        pytest.param(15, 10, {"replicas": 12, "desiredReplicas": 12}, 12, id="but no more"),
        pytest.param(15, 10, {"replicas": 9, "desiredReplicas": 3}, 10, id="after a scale-in the limit applies"),
        pytest.param(10**9, None, {}, None, id="an unknown limit"),
        pytest.param(10**9, None, {"desiredReplicas": 10, **LIMITED}, 10, id="the controllers have told the limit"),
    ],
)
def test_the_replicas_that_a_controller_works_towards(
    wanted: int, limit: int | None, status: Json, replicas: int | None
) -> None:
    found = excess(wanted, limit, PoolStatus.model_validate(status))
    assert (found.replicas if found else None) == replicas


@pytest.mark.parametrize(
    ("annotations", "limit"),
    [(None, None), ({MAX_REPLICAS: "7"}, 7), ({MAX_REPLICAS: "0"}, 0), ({MAX_REPLICAS: "x"}, None)],
)
def test_the_limit_of_a_namespace(annotations: Json | None, limit: int | None) -> None:
    assert parse_namespace_limit({"metadata": {"name": "shop", "annotations": annotations}}).limit == limit


def conditions(found: Sequence[Condition]) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in found}


def observed_pool(replicas: int, limit: int, **status: Any) -> Any:
    document = a_pool.document(replicas, status=status, maxUnavailable="50%")
    stores = Stores(cluster=Cluster(replica_limit=lambda namespace: limit))
    stores.pools.put(("default", "web"), parse_pool(document))
    return observe(stores, ("default", "web"), synced=True, failure=None, burst=250)


def test_a_pool_above_the_limit_has_a_condition_and_no_endless_creation() -> None:
    found = observed_pool(10**9, 4)
    decided = pool_plan.plan(found, a_pool.NOW)
    assert sum(isinstance(each, CreateVM) for each in decided.actions) == 4
    assert found.pool.max_unavailable == 2, "percentages count the VMs that may exist"
    status = pool_status(found, decided, a_pool.NOW)
    assert (status.desired_replicas, status.unavailable_replicas) == (4, 4)
    assert conditions(status.conditions)["ScalingLimited"] == ("True", "TooManyReplicas")
    assert conditions(status.conditions)["Stalled"] == ("True", "TooManyReplicas")
    (message,) = (each.message for each in status.conditions if each.type == "ScalingLimited")
    assert message.startswith("1000000000 replicas are more than the limit of the namespace: the controller creates no")


def test_a_pool_within_the_limit_says_nothing() -> None:
    found = observed_pool(4, 4)
    status = pool_status(found, pool_plan.plan(found, a_pool.NOW), a_pool.NOW)
    assert "ScalingLimited" not in conditions(status.conditions)
    before = observed_pool(4, 4, **LIMITED)
    status = pool_status(before, pool_plan.plan(before, a_pool.NOW), a_pool.NOW)
    assert conditions(status.conditions)["ScalingLimited"] == ("False", "WithinLimit")


def test_a_replica_set_above_the_limit() -> None:
    stores = sets.Stores(replica_limit=lambda namespace: 2)
    stores.sets.put(("default", "web"), a_set.a_set(10**9))
    found = sets.observe(stores, ("default", "web"), synced=True, failure=None, burst=250)
    assert isinstance(found, sets.ReplicaSetSnapshot)
    decided = set_plan(found, a_set.NOW)
    assert sum(isinstance(each, CreateVMI) for each in decided.actions) == 2
    status = replica_set_status(found, decided, a_set.NOW)
    assert status.desired_replicas == 2
    assert conditions(status.conditions)["ScalingLimited"] == ("True", "TooManyReplicas")
    assert conditions(status.conditions)["Stalled"] == ("True", "TooManyReplicas")


def test_a_warm_pool_above_the_limit() -> None:
    pool = warm.a_pool(10**9)
    found = warm.a_snapshot(pool)
    found = replace(found, excess=excess(found.wanted, 3, pool.status))
    assert found.target == 3
    status = warm_status(found, warm.NOW)
    assert status.desired_replicas == 3
    assert conditions(status.conditions)["Stalled"] == ("True", "TooManyReplicas")
