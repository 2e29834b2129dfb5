"""The list of kinds."""

from __future__ import annotations

import pytest

from poolhouse.api.kinds import POOL, by_gvk, disabled_kinds
from poolhouse.api.kinds.resource_types import OURS, ResourceType


def test_a_kind_is_found_by_its_name_and_version() -> None:
    assert by_gvk("kubevirt.io/v1", "VirtualMachinePool") is POOL
    assert by_gvk("pool.kubevirt.io/v1beta1", "VirtualMachinePool") is None


def test_an_unknown_kind_cannot_be_disabled() -> None:
    assert disabled_kinds({"POOLHOUSE_KINDS_OFF": "virtualmachinepools, virtualmachineclaims"}) == {
        "virtualmachinepools",
        "virtualmachineclaims",
    }
    with pytest.raises(ValueError, match="POOLHOUSE_KINDS_OFF: there is no pools"):
        disabled_kinds({"POOLHOUSE_KINDS_OFF": "pools"})


# The short names of KubeVirt 1.9 (crds.go in pkg/virt-operator/resource/generate/components), without their plurals.
OF_KUBEVIRT = set(
    """
    kv vm vmbackup vmbackuptracker vmcf vmclone vmclusterinstancetype vmcp vmexport vmf vmi vmim vminstancetype
    vmipreset vmirs vmp vmpool vmpref vmrestore vmsnapshot vmsnapshotcontent
    """.split()  # noqa: SIM905
)


@pytest.mark.parametrize("kind", [each for each in OURS if each.kind != "VirtualMachineInstanceReplicaSet"])
def test_each_kind_has_a_short_name_that_kubevirt_has_not(kind: ResourceType) -> None:
    """The replica set is the same resource in KubeVirt."""
    assert set(kind.short_names) - OF_KUBEVIRT - {f"{each}s" for each in OF_KUBEVIRT}
