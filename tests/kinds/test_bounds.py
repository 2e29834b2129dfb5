"""Bounds of what multiplies: lists and maps of specs, and the products of selectors with VMs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from controllers.pool.pools import Pool, parse_pool
from controllers.replicaset.observe import ReplicaSet, parse_replica_set
from poolhouse.api.kinds import KINDS, POOL, REPLICA_SET
from tests.controllers.pool.builders import document as stored_pool
from tests.controllers.replicaset.builders import document as stored_set
from tests.kinds.documents import pool
from tests.webhook.builders import request
from webhook.admission import validate_kind

Json = dict[str, Any]


def unbounded(schema: Json, path: str) -> Iterator[str]:
    """Paths of lists and maps without a bound, apart from templates of KubeVirt's objects, which admission bounds as a
    whole."""
    if schema.get("type") == "array":
        if "maxItems" not in schema:
            yield path
        yield from unbounded(schema.get("items", {}), f"{path}[]")
    if isinstance(inner := schema.get("additionalProperties"), dict):
        if "maxProperties" not in schema:
            yield path
        yield from unbounded(inner, f"{path}{{}}")
    for name, inner in schema.get("properties", {}).items():
        if name != "template":
            yield from unbounded(inner, f"{path}.{name}")


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.kind) for kind in KINDS])
def test_every_list_and_map_has_a_bound(kind: Any) -> None:
    assert list(unbounded(kind.spec_schema, kind.kind)) == []


def expressions(number: int, values: int = 0) -> list[Json]:
    operator = "NotIn" if values else "Exists"
    values_of = {"values": [f"v{n}" for n in range(values)]} if values else {}
    return [{"key": f"k{n}", "operator": operator, **values_of} for n in range(number)]


def ordered(policies: int, labels: int, number: int, values: int = 0) -> Json:
    selector = {"matchLabels": {f"l{n}": "x" for n in range(labels)}, "matchExpressions": expressions(number, values)}
    return {"orderedPolicies": [{"labelSelector": selector}] * policies}


def with_policy(policy: Json) -> Json:
    return pool(scaleInStrategy={"proactive": {"selectionPolicy": policy}})


ORDERED = "spec.scaleInStrategy.proactive.selectionPolicy.orderedPolicies"


@pytest.mark.parametrize(
    ("document", "paths"),
    [
        pytest.param(with_policy(ordered(32, 2, 2)), [], id="many policies"),
        pytest.param(with_policy(ordered(2, 32, 32)), [], id="large policies"),
        pytest.param(with_policy(ordered(32, 2, 3)), [ORDERED], id="one requirement more in each of many policies"),
        pytest.param(with_policy(ordered(2, 0, 1, 256)), [], id="many values"),
        pytest.param(with_policy(ordered(3, 0, 1, 256)), [ORDERED], id="too many values"),
        pytest.param(with_policy(ordered(1, 32, 33)), [f"{ORDERED}[0].labelSelector"], id="one large selector"),
        pytest.param(with_policy(ordered(1, 0, 2, 129)), [f"{ORDERED}[0].labelSelector"], id="values of one selector"),
        pytest.param(pool(revisionHistoryLimit=100), [], id="revisions"),
        pytest.param(pool(revisionHistoryLimit=101), ["spec.revisionHistoryLimit"], id="too many revisions"),
        pytest.param(pool(maxReplicas=3), [], id="the maximum"),
        pytest.param(pool(maxReplicas=2), ["spec.replicas"], id="above the maximum"),
    ],
)
def test_products_are_bounded(document: Json, paths: list[str]) -> None:
    assert [each.path for each in POOL.problems(document)] == paths


def test_a_stored_object_beyond_a_bound_can_be_changed_and_is_reconciled() -> None:
    policy = {"proactive": {"selectionPolicy": ordered(32, 0, 63)}}
    before = with_policy(ordered(32, 0, 63))
    after = {**before, "spec": {**before["spec"], "paused": True}}
    response = validate_kind(request(after, before), POOL)
    assert response.problems == ()
    assert len(response.warnings) == 1
    assert isinstance(parse_pool(stored_pool(scaleInStrategy=policy, revisionHistoryLimit=1000)), Pool)
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"] * 200}] * 2}
    assert [each.path for each in REPLICA_SET.problems(stored_set(selector=selector))] == ["spec.selector"]
    assert isinstance(parse_replica_set(stored_set(selector=selector)), ReplicaSet)
