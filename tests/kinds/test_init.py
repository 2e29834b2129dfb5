"""The list of kinds."""

from __future__ import annotations

import pytest

import kinds
from kinds import by_gvk, disabled_kinds


def test_a_kind_is_found_by_its_name_and_version() -> None:
    assert by_gvk("kubevirt.io/v1", "VirtualMachinePool") is kinds.POOL
    assert by_gvk("pool.kubevirt.io/v1beta1", "VirtualMachinePool") is None


def test_an_unknown_kind_cannot_be_disabled() -> None:
    assert disabled_kinds({"POOLHOUSE_KINDS_OFF": "virtualmachinepools, virtualmachineclaims"}) == {
        "virtualmachinepools",
        "virtualmachineclaims",
    }
    with pytest.raises(ValueError, match="POOLHOUSE_KINDS_OFF: there is no pools"):
        disabled_kinds({"POOLHOUSE_KINDS_OFF": "pools"})
