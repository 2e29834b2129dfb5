"""Validation of hostile documents: any content, depth and size."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolhouse.api.kinds import KINDS, POOL, Kind
from poolhouse.api.kinds.kind import MAX_PROBLEMS
from poolhouse.api.kinds.replicaset import REPLICA_SET
from poolhouse.manifests.crd import object_schema
from tests.kinds.documents import INSTANCE, changed, pool

OURS = tuple(dict.fromkeys((*KINDS, REPLICA_SET)))
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)


def nested(depth: int) -> Any:
    found: Any = {}
    for _ in range(depth):
        found = {"a": [found]}
    return found


def paths(value: Any, *here: str | int) -> list[tuple[str | int, ...]]:
    found = [here] if here else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += paths(inner, *here, key)
    return found


def answers(kind: Kind, document: Any) -> None:
    settled = kind.normalize(document)
    for problem in kind.problems(settled):
        assert problem.message
        assert len(str(problem)) < 1500
        assert str(problem).isprintable()
    assert all(isinstance(warning, str) for warning in kind.warnings(settled))


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.kind)
@given(document=anything)
@settings(max_examples=60, deadline=None)
def test_any_document_can_be_validated(kind: Kind, document: Any) -> None:
    answers(kind, document)


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.kind)
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_any_field_can_have_any_value(kind: Kind, data: st.DataObject) -> None:
    schema = object_schema(kind)["properties"]["spec"]
    document = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "x"}, "spec": {}}
    here = document["spec"]
    assert isinstance(here, dict)
    while schema.get("properties"):
        name = data.draw(st.sampled_from(sorted(schema["properties"])))
        schema = schema["properties"][name]
        value = data.draw(anything | st.just({}))
        here[name] = value
        if value != {}:
            break
        here = here[name]
    answers(kind, document)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_value_of_a_pool_can_be_replaced(data: st.DataObject) -> None:
    full = pool(
        updateStrategy={
            "proactive": {"selectionPolicy": {"orderedPolicies": [{"labelSelector": {"matchLabels": {}}}]}}
        },
        scaleInStrategy={
            "proactive": {
                "selectionPolicy": {
                    "orderedPolicies": [
                        {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}}
                    ]
                }
            }
        },
    )
    path = data.draw(st.sampled_from(paths(full)))
    answers(KINDS[0], changed(full, data.draw(anything), *path))


DEEP = nested(5000)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(DEEP, id="the whole"),
        pytest.param({**pool(), "metadata": DEEP}, id="metadata"),
        pytest.param({**pool(), "spec": DEEP}, id="the spec"),
        pytest.param(pool(replicas=DEEP), id="a number"),
        pytest.param(pool(template={"spec": DEEP}), id="the template"),
        pytest.param(changed(pool(), DEEP, *INSTANCE, "domain", "devices", "gpus"), id="what the schema does not know"),
        pytest.param(changed(pool(), DEEP, *INSTANCE, "volumes", 0, "dataVolume", "name"), id="a name"),
    ],
)
def test_deep_documents_can_be_validated(document: Any) -> None:
    answers(KINDS[0], document)


def test_the_number_of_problems_is_limited() -> None:
    document = pool(**{f"replica{index}": index for index in range(200_000)})
    found = KINDS[0].problems(document)
    assert len(found) == MAX_PROBLEMS + 1
    assert "more than" in found[-1].message


def test_many_devices_are_validated_in_linear_time() -> None:
    devices = [{"name": f"disk{index}"} for index in range(10_000)]
    document = changed(pool(), devices, *INSTANCE, "domain", "devices", "disks")
    assert len(KINDS[0].problems(document)) == MAX_PROBLEMS + 1


@pytest.mark.parametrize("steps", [0, "x", True, [3], {"a": 1}])
def test_a_rule_is_no_obstacle_to_the_problem_of_a_wrong_type(steps: Any) -> None:
    strategy = {"proactive": {"steps": steps}}
    document = changed(pool(), strategy, "spec", "updateStrategy")
    assert any(each.path.startswith("spec.updateStrategy.proactive.steps") for each in POOL.problems(document))


@pytest.mark.parametrize(("given", "normal"), [(3.0, int), (1e18, int), (1e19, float), (1e300, float), (3.5, float)])
def test_a_float_becomes_an_integer_that_json_can_hold(given: float, normal: type) -> None:
    document = POOL.normalize(changed(pool(), given, "spec", "replicas"))
    assert type(document["spec"]["replicas"]) is normal


def test_huge_numbers_are_shortened() -> None:
    answers(KINDS[0], pool(replicas=10**5000))
    answers(KINDS[0], pool(replicas=json.loads("1e400")))


def test_control_characters_are_escaped() -> None:
    document = pool(**{"\x1b[31m\u202e": 1}, maxUnavailable="\x1b]0;x\x07")
    answers(KINDS[0], document)
