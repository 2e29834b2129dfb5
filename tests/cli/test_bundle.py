"""What leaves the cluster in a support bundle."""

from __future__ import annotations

from typing import Any

import pytest

from cli.bundle import REDACTED, Listing, redacted
from runtime.resource import Resource

Json = dict[str, Any]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            {"volumes": [{"name": "init", "cloudInitNoCloud": {"userData": "password: x"}}]},
            {"volumes": [{"name": "init", "cloudInitNoCloud": {"userData": REDACTED}}]},
            id="cloud-init data is left out, wherever it is",
        ),
        pytest.param(
            {"metadata": {"name": "a", "managedFields": [1], "annotations": {"b": "c"}}},
            {"metadata": {"name": "a", "annotations": {"b": "c"}}},
            id="who wrote what is left out",
        ),
        pytest.param(
            {"metadata": {"annotations": {"kubevirt.io/ignitiondata": "{}"}}},
            {"metadata": {"annotations": {"kubevirt.io/ignitiondata": REDACTED}}},
            id="so is what Ignition is given",
        ),
        pytest.param(
            {"webhooks": [{"clientConfig": {"caBundle": "QQ==", "url": "u"}}]},
            {"webhooks": [{"clientConfig": {"caBundle": REDACTED, "url": "u"}}]},
            id="certificates are left out",
        ),
    ],
)
def test_secrets_stay(before: Json, after: Json) -> None:
    assert redacted(before) == after


def test_instances_that_no_label_tells_are_told_by_who_made_them() -> None:
    def made_by(kind: str, controller: bool = True) -> Json:
        return {"metadata": {"ownerReferences": [{"kind": kind, "controller": controller}]}}

    instances = Resource("kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance")
    of_sets = Listing("x.yaml", instances, controller="VirtualMachineInstanceReplicaSet")
    assert of_sets.takes(made_by("VirtualMachineInstanceReplicaSet"))
    assert not of_sets.takes(made_by("VirtualMachineInstanceReplicaSet", controller=False))
    assert not of_sets.takes(made_by("VirtualMachine"))
    assert not of_sets.takes({"metadata": {}})


def test_the_copy_that_kubectl_keeps_is_left_out_with_what_it_repeats() -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": '{"userData": "x"}'}
    assert redacted({"annotations": annotations}) == {"annotations": {}}
