"""The VM for a create request."""

from __future__ import annotations

from typing import Any

from controllers.warmpool.backends import CreateRequest
from controllers.warmpool.vm_manifest import build_vm
from controllers.warmpool.warm_vm import Owner
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.warm_states import WarmState

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "x"}, "annotations": {"note": "y"}},
    "spec": {
        "dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": {"pvc": {"accessModes": ["ReadWriteOnce"]}}}],
        "template": {
            "metadata": {"labels": {"app": "x"}},
            "spec": {
                "nodeSelector": {"arch": "amd64"},
                "networks": [{"name": "default", "pod": {}}],
                "volumes": [
                    {"name": "root", "dataVolume": {"name": "root"}},
                    {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}},
                    {"name": "layer", "ephemeral": {"persistentVolumeClaim": {"claimName": "root"}}},
                    {"name": "golden", "ephemeral": {"persistentVolumeClaim": {"claimName": "golden"}}},
                ],
            },
        },
    },
}
PLACEMENT = {
    "name": "east",
    "nodeSelector": {"zone": "east"},
    "networks": [{"name": "default", "multus": {"networkName": "east"}}],
    "storageClassName": "fast",
}


def request(**given: Any) -> CreateRequest:
    pool = Owner("VirtualMachineWarmPool", "web", "p")
    return CreateRequest("ns", "web-x7k2", "web", "p", pool, TEMPLATE, "v1.abc", **given)


def test_labels_and_owner() -> None:
    made = build_vm(request(placement=PLACEMENT, standby="Paused"))
    assert made["metadata"]["labels"] == {
        "app": "x",
        meta.WARM_STATE: "PENDING_WARMPOOL_PROVISIONING",
        meta.WARM_POOL: "web",
        meta.POOL_UID: "p",
        meta.TEMPLATE_HASH: "v1.abc",
        meta.PLACEMENT: "east",
        meta.STANDBY: "Paused",
    }
    assert made["metadata"]["annotations"] == {"note": "y"}
    assert made["metadata"]["ownerReferences"][0]["uid"] == "p"
    assert "blockOwnerDeletion" not in made["metadata"]["ownerReferences"][0]
    assert made["spec"]["runStrategy"] == "Always", "a VM that will wait stopped runs for its first check"
    assert made["spec"]["template"]["metadata"]["labels"] == {"app": "x", meta.WARM_POOL: "web"}


def test_placement() -> None:
    inner = build_vm(request(placement=PLACEMENT))["spec"]
    assert inner["template"]["spec"]["nodeSelector"] == {"arch": "amd64", "zone": "east"}
    assert inner["template"]["spec"]["networks"] == PLACEMENT["networks"]
    pvc = inner["dataVolumeTemplates"][0]["spec"]["pvc"]
    assert pvc == {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"}


def test_each_vm_has_its_own_disks() -> None:
    spec = build_vm(request())["spec"]
    assert spec["dataVolumeTemplates"][0]["metadata"]["name"] == "root-x7k2"
    root, shared, *layers = spec["template"]["spec"]["volumes"]
    assert root["dataVolume"]["name"] == "root-x7k2"
    assert shared["persistentVolumeClaim"]["claimName"] == "shared", "not a disk of the template"
    below = [each["ephemeral"]["persistentVolumeClaim"]["claimName"] for each in layers]
    assert below == ["root-x7k2", "golden"]


def test_a_vm_created_for_a_claim_carries_its_uid() -> None:
    made = build_vm(request(state=WarmState.ALLOCATING, claim_uid="c", annotations={meta.CLAIM_NAME: "mine"}))
    assert made["metadata"]["labels"][meta.CLAIM_UID] == "c"
    assert made["metadata"]["labels"][meta.WARM_STATE] == "PENDING_POD_PROVISIONING"
    assert made["metadata"]["annotations"] == {"note": "y", meta.CLAIM_NAME: "mine"}


def test_the_template_is_not_changed() -> None:
    before = repr(TEMPLATE)
    build_vm(request(placement=PLACEMENT))
    assert repr(TEMPLATE) == before
