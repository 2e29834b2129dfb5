"""The objects that `plan -f` and the console plan, beside those of `kubectl apply`."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.apimachinery.merge_patch import LAST_APPLIED, with_last_applied
from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds.pool import POOL
from poolhouse.cli.apply import Change
from tests.kinds.documents import pool

STEPS = {"proactive": {"steps": [{"pause": {}}]}}


def document(**spec: Any) -> Any:
    made = pool()
    return {**made, "metadata": {"name": "web", "namespace": "shop"}, "spec": {**made["spec"], **spec}}


def stored(applied: Any, **spec: Any) -> Any:
    """The object of an applied manifest, after another manager has set fields of its spec."""
    made = with_last_applied(applied)
    metadata = {**made["metadata"], "uid": "u", "resourceVersion": "7"}
    return {**made, "metadata": metadata, "spec": {**made["spec"], **spec}, "status": {"replicas": 1}}


@pytest.mark.parametrize(
    ("last", "spec", "now", "path", "value"),
    [
        pytest.param({}, {"updateStrategy": STEPS}, {}, "updateStrategy", STEPS, id="set by another manager"),
        pytest.param({"updateStrategy": STEPS}, {}, {}, "updateStrategy", None, id="removed from the file"),
        pytest.param({"replicas": 1}, {"replicas": 5}, {"replicas": 1}, "replicas", 1, id="set by both"),
    ],
)
def test_fields_that_the_file_does_not_have(last: Any, spec: Any, now: Any, path: str, value: Any) -> None:
    found = Change(POOL, document(**now), stored(document(**last), **spec))
    assert at(found.merged, "spec", path) == value
    assert found.problems() == []
    assert found.merged["status"] == {"replicas": 1}


def test_a_new_object_is_the_manifest() -> None:
    found = Change(POOL, document(), None)
    assert LAST_APPLIED in found.merged["metadata"]["annotations"]
    assert {**found.merged, "metadata": document()["metadata"]} == document()


def test_problems_are_those_of_the_merged_object() -> None:
    found = Change(POOL, document(updateStrategy={"unmanaged": {}}), stored(document(), updateStrategy=STEPS))
    assert [each.path for each in found.problems()] == ["spec.updateStrategy"]
    partial = {**document(), "spec": {"replicas": 2}}
    assert Change(POOL, partial, stored({**document(), "spec": {}}, **document()["spec"])).problems() == []
