"""The VMs that an import takes over."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.pool.import_members import adopt
from controllers.pool.import_steps import CannotImport, Observed
from controllers.pool.kubevirt_pools import FINALIZER, KUBEVIRT_POOLS, REVISION_LABEL
from controllers.pool.pools import POOLS
from poolhouse.runtime.resource import VMS
from tests.builders import manifest

Json = dict[str, Any]
DELETED = {"deletionTimestamp": "2026-03-01T12:00:00Z"}


def adopted(strategy: Json, **metadata: Any) -> list[Json]:
    """The metadata that the writes of one VM give it."""
    source = manifest(KUBEVIRT_POOLS, "web", {"scaleInStrategy": strategy}, "default", uid="old")
    target = manifest(POOLS, "web", {}, "default", uid="new")
    labels = {REVISION_LABEL: "web-1"}
    vm = manifest(VMS, "web-0", {}, "default", uid="u", resourceVersion="7", labels=labels, **metadata)
    return [
        each.body["metadata"]
        for each in adopt(Observed("default", "web", source, target), target, [vm], {"web-1": "r1"})
    ]


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


@pytest.mark.parametrize("value", ["Offline", "Online"])
@pytest.mark.parametrize("kind", ["opportunistic", "proactive"])
def test_a_vm_that_a_user_deletes_waits_for_kubevirt_to_keep_its_disks(kind: str, value: str) -> None:
    with pytest.raises(CannotImport, match="web-0: it is being deleted"):
        adopted({kind: {"statePreservation": value}}, **DELETED, finalizers=[FINALIZER])
