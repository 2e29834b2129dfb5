"""The VMI that a replica set creates."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.replicaset.actions import Create, build_vmi
from poolhouse.api.kinds.resource_types import REPLICA_SETS
from poolhouse.runtime.resource import VMIS
from tests.builders import manifest, owned_by
from tests.controllers.replicaset.builders import a_set

Json = dict[str, Any]


@pytest.mark.sentence("2.2", "2.11")
def test_a_vmi_has_the_template_and_the_owner_reference() -> None:
    labels, annotations = {"app": "web", "tier": "x"}, {"note": "y", "poolhouse.dev/attempt": "9"}
    template = {"metadata": {"labels": labels, "annotations": annotations, "name": "z"}, "spec": {"domain": {"a": [1]}}}
    found = a_set(1, template=template)
    made = build_vmi(found, Create("z-1", ""))
    owner = made["metadata"].pop("ownerReferences")
    assert made == manifest(VMIS, "z-1", {"domain": {"a": [1]}}, "default", labels=labels, annotations={"note": "y"})
    assert owner == owned_by(REPLICA_SETS, "web", "u-web")
    assert build_vmi(found, Create("z-1", "", attempt=2))["metadata"]["annotations"]["poolhouse.dev/attempt"] == "2"
    made["spec"]["domain"]["a"].append(2)
    assert found.spec.template["spec"] == {"domain": {"a": [1]}}, "no two share what one of them might change"
