"""The VMs that an import takes over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.import_members import adopt
from controllers.pool.import_plan import plan
from controllers.pool.import_steps import CannotImport, Observed, record_name
from controllers.pool.kubevirt_pools import FINALIZER, KUBEVIRT_POOLS, REVISION_LABEL
from controllers.pool.pools import POOLS
from poolhouse.api.apimachinery.owner_references import controller_reference
from poolhouse.api.kinds import meta
from poolhouse.runtime.resource import VMS
from tests.builders import manifest
from tests.controllers.pool.builders import document

Json = dict[str, Any]
DELETED = {"deletionTimestamp": "2026-03-01T12:00:00Z"}


def record_of(strategy: Json) -> Json:
    """The ControllerRevision that keeps the spec of KubeVirt's pool."""
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachinePool", "name": "web", "uid": "u-web"}
    data = {"uid": "old", "drops": [], "revisions": {}, "spec": {"scaleInStrategy": strategy}}
    return {"metadata": {"name": record_name("web"), "ownerReferences": [owner]}, "data": data}


def adopted(strategy: Json, gone: bool = False, **metadata: Any) -> list[Json]:
    """The metadata that the writes of one VM give it. KubeVirt's pool may be gone, with its CRD."""
    source = manifest(KUBEVIRT_POOLS, "web", {"scaleInStrategy": strategy}, "default", uid="old")
    target = manifest(POOLS, "web", {}, "default", uid="new")
    labels = {REVISION_LABEL: "web-1"}
    vm = manifest(VMS, "web-0", {}, "default", uid="u", resourceVersion="7", labels=labels, **metadata)
    observed = Observed("default", "web", None if gone else source, target, (record_of(strategy),))
    return [each.body["metadata"] for each in adopt(observed, target, [vm], {"web-1": "r1"})]


KEEPS = {"opportunistic": {"statePreservation": "Offline"}}


@pytest.mark.parametrize(
    ("strategy", "metadata"),
    [
        pytest.param(KEEPS, {"finalizers": [FINALIZER]}, id="it stays"),
        pytest.param({}, {**DELETED, "finalizers": [FINALIZER]}, id="it is being deleted with its disks"),
        pytest.param(KEEPS, {**DELETED, "finalizers": ["x"]}, id="KubeVirt has kept the disks already"),
    ],
)
def test_a_vm_loses_the_finalizer_of_kubevirt(strategy: Json, metadata: Json) -> None:
    (changed,) = adopted(strategy, **metadata)
    assert FINALIZER not in changed["finalizers"]
    assert changed["ownerReferences"][0]["uid"] == "new"


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("value", ["Offline", "Online"])
@pytest.mark.parametrize("kind", ["opportunistic", "proactive"])
def test_a_vm_that_a_user_deletes_waits_for_kubevirt_to_keep_its_disks(kind: str, value: str, gone: bool) -> None:
    with pytest.raises(CannotImport, match="web-0: it is being deleted"):
        adopted({kind: {"statePreservation": value}}, gone, **DELETED, finalizers=[FINALIZER])


def test_vms_of_a_pool_that_is_gone_with_its_crd_are_taken_over_before_the_new_pool_works() -> None:
    target = document(1)
    target["metadata"]["annotations"] = {meta.IMPORTING: "old"}
    owner = controller_reference("pool.kubevirt.io/v1beta1", "VirtualMachinePool", "web", "old")
    left = manifest(VMS, "web-0", {}, "default", uid="u", resourceVersion="7", ownerReferences=[owner])
    observed = Observed("default", "web", None, target, (record_of({}),), (left,))
    (taken,) = plan(observed)
    assert (taken.resource, taken.name) == (VMS, "web-0")
    assert [each["uid"] for each in taken.body["metadata"]["ownerReferences"]] == ["u-web"]
    (resumed,) = plan(replace(observed, vms=()))
    assert (resumed.resource, resumed.body["spec"]) == (POOLS, {"paused": False})


def test_an_import_whose_pool_is_gone_says_that_its_kind_is_missing() -> None:
    with pytest.raises(CannotImport, match=r"are gone, and the cluster does not have KubeVirt's pools"):
        plan(Observed("default", "web", None, None, (record_of({}),)))
